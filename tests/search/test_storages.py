"""The contract of storages of studies, a file and a database: what killed and other searches leave and find there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from forerun.search.explore.samplers.driver import StopConditions, evaluate, explore
from forerun.search.explore.samplers.local_sampler import LocalSampler
from forerun.search.explore.samplers.stored_sampler import StoredSampler
from forerun.search.files import studies
from forerun.search.files.studies import open_storage
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies.staged_space import StagedSpace

FEW = StopConditions(evaluations=8, asked=8)
pytest.importorskip("optuna")


@pytest.fixture(params=["study.log", pytest.param("sqlite:///study.db", marks=pytest.mark.slow)])
def storage(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.chdir(tmp_path)
    yield str(request.param)


@pytest.fixture(scope="module")
def space() -> StagedSpace:
    own = {"tp": [1, 2], "mbs": [1, 2], "cp": [1], "vpp": [1], "recompute": ["none"]}
    request = Request(model="qwen3-0.6b", cluster="dgx-h100", gpus="4", global_batch=16, seq_len=1024, overrides=own)
    return StagedSpace(flat=resolve(request).space(), reach=1)


def sampler_on(storage: str, seed: int = 0) -> StoredSampler:
    return StoredSampler(LocalSampler(seed), storage)


def test_a_search_goes_on_where_another_was_killed(space: StagedSpace, storage: str) -> None:
    """Trials that nobody will ever tell anything of hold nobody up, and what was told is looked at first."""
    killed = sampler_on(storage)
    killed.begin(space, ())
    killed.ask(6)  # and never tells of them
    found = explore(space, sampler_on(storage, 1), limits=FEW)
    assert found.scored

    again = sampler_on(storage, 2)
    again.begin(space, ())
    earlier = again.earlier()
    assert earlier and set(earlier) <= set(found.known)
    assert earlier[0] == found.feasible[0]
    assert len(again.ask(2)) == 2


def test_two_searches_share_one_storage(space: StagedSpace, storage: str) -> None:
    """In turns, as two processes would: each told what it asked, and a third finds the best of both."""
    both = [sampler_on(storage, seed) for seed in (1, 2)]
    for sampler in both:
        sampler.begin(space, ())
    best: list[float] = []
    for _ in range(3):
        batches = [sampler.ask(2) for sampler in both]
        for sampler, batch in zip(both, batches, strict=True):
            legal = [one for one in batch if one is not None and bool(space.legal([one])[0])]
            told = dict(zip(legal, evaluate(space, legal), strict=True)) if legal else {}
            sampler.tell(batch, [None if one is None else told.get(one) for one in batch])
            best += [evaluation.value for evaluation in told.values() if evaluation.fits]
    third = sampler_on(storage)
    third.begin(space, ())
    earlier = third.earlier()

    assert best and evaluate(space, [earlier[0]])[0].value == pytest.approx(min(best))


def test_the_same_seed_proposes_the_same(space: StagedSpace, storage: str, tmp_path: Path) -> None:
    other = storage.replace("study", "other")
    batches = []
    for one in (storage, other):
        sampler = sampler_on(one, 7)
        sampler.begin(space, ())
        batches.append(sampler.ask(5))
    assert batches[0] == batches[1]


@pytest.mark.parametrize("damage", [b"", b"\x00" * 50, b"not a study\n"])
def test_a_damaged_storage_is_one_sentence(damage: bytes, space: StagedSpace, storage: str) -> None:
    path = Path(storage.removeprefix("sqlite:///"))
    path.write_bytes(damage)
    try:
        sampler = sampler_on(storage)
        sampler.begin(space, ())
    except RequestError as error:
        assert "storage" in str(error) and "\n" not in str(error)
    else:
        assert not damage or path.stat().st_size > len(damage)  # an empty file is a new storage


def test_tables_that_another_process_creates_meanwhile_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    calls = list[str]()

    def opened(url: str) -> str:
        calls.append(url)
        if len(calls) == 1:
            raise RuntimeError("table studies already exists")
        return "opened"

    monkeypatch.setattr(optuna.storages, "RDBStorage", opened)
    monkeypatch.setattr(studies, "CREATED_S", 0.0)

    assert open_storage("sqlite:///new.db") == "opened"
    assert calls == ["sqlite:///new.db"] * 2
