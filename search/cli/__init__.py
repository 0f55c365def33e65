"""The command line: ``program`` runs it, ``registry`` lists the verbs, ``verbs`` has one file for each."""

from forerun.search.cli.program import main

__all__ = ["main"]
