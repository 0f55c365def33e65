"""Lengths of packed documents: a number or a file."""

from pathlib import Path

import pytest

from forerun.search.request.quantities import document_tokens
from forerun.spaces.errors import RequestError


def test_a_number_is_itself() -> None:
    assert document_tokens("600", 4096) == 600.0
    assert document_tokens("2k", 4096) == 2000.0


def test_a_file_is_averaged_by_token_and_cut_to_sequences(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("100\n300\n\n9000\n")
    lengths = [100, 300, 4096, 4096, 808]
    assert document_tokens(str(file), 4096) == pytest.approx(sum(n * n for n in lengths) / sum(lengths))


@pytest.mark.parametrize(
    ("text", "told"), [("12 tokens", "line 1: a length"), ("0", "line 1: a length"), ("", "has no lengths")]
)
def test_lines_that_are_no_lengths_are_refused(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text(text)
    with pytest.raises(RequestError, match=told):
        document_tokens(str(file), 4096)


@pytest.mark.parametrize("text", ["0", "5000", "0.5"])
def test_lengths_beyond_a_sequence_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="documents have 1 to 4096 tokens"):
        document_tokens(text, 4096)
