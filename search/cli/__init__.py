"""The command line: entry point ``program``, list of verbs ``registry``, one file per verb in ``verbs``."""

from forerun.search.cli.program import main

__all__ = ["main"]
