"""A short run of the fuzzer over every reader (``tests/fuzz``; hours of it are for by hand)."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


# The alarm that ends a case may ring inside a callback of the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.slow
def test_every_mutated_document_has_one_clear_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from tests.fuzz.corpus import samples
    from tests.fuzz.run import fuzz

    corpus = samples(tmp_path)
    assert len(corpus) > 60
    # How long a case takes depends on what else runs here: `python -m tests.fuzz.run` reports slow ones and hangs.
    count, failures = fuzz(corpus, cases=2000, seed=0, folder=tmp_path, minutes=0.2)
    assert count > 60
    assert not [(one.kind, one.words, one.detail) for one in failures if one.kind not in ("slow", "memory", "hang")]


@pytest.mark.slow
def test_random_requests_keep_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(ROOT), *sys.path])
    from tests.fuzz.laws import run

    answered, found = run(cases=30, seed=1, minutes=1.0)
    assert answered.total() > 0 and not found
