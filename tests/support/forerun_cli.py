"""The command line as tests call it."""

import pytest

from forerun.search.cli import main


def cli(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    """Run words and return the exit code, standard output and standard error."""
    code = main([word for text in words for word in text.split()])
    out, err = capsys.readouterr()
    return code, out, err
