"""The best rows of searches as launch files, and back: what is read is what was predicted."""

import pytest

from benchmarks.round_trip import SEARCHES, compared


@pytest.mark.slow  # twenty searches
@pytest.mark.parametrize("entry", SEARCHES, ids=lambda entry: f"{entry['model']}-{entry['framework']}")
def test_ten_rows_come_back_equal(entry: dict[str, object]) -> None:
    told = compared(entry)
    assert len(told) >= 4
    assert [text for _, text in told if text] == []
