"""The command line: entry point ``start``, list of verbs ``registry``, one file per verb in ``verbs``."""

from forerun.search.cli.start import main

__all__ = ["main"]
