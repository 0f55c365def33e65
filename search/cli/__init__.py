"""The command line: entry point ``start``, list of verbs ``registry``, one file per verb in ``verbs``.

All of it raises ``RequestError`` for wrong input, which ``program`` prints.
"""

from forerun.search.cli.start import main

__all__ = ["main"]
