"""The present run that a tuning is compared with: a time with or without its unit, or a log of any form."""

from pathlib import Path
from typing import Any

import pytest

from forerun.search.request.request import Request
from forerun.search.tune.launchers import launcher_named
from forerun.search.tune.loop import TuningWatch
from forerun.search.tune.request import TuningRequest
from forerun.search.tune.tuning import tune
from forerun.spaces.errors import RequestError


class SearchBeganError(Exception):
    """Raised in place of a search, which begins only once the baseline is read."""


def begin(folder: Path, baseline: str, pattern: str | None = None) -> None:
    """Begin a tuning."""

    def search(setting: Any) -> Any:
        raise SearchBeganError

    tuning = TuningRequest(
        request=Request(model="llama3-8b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=4096),
        launcher=launcher_named(["dry"]),
        folder=folder / "night",
        log_pattern=pattern,
        baseline=baseline,
    )
    tune(tuning, search, TuningWatch())


@pytest.mark.parametrize("baseline", ["4.4", "4.4s", "210ms", "1 min"])
def test_the_time_of_a_present_run_has_any_unit(tmp_path: Path, baseline: str) -> None:
    with pytest.raises(SearchBeganError):
        begin(tmp_path, baseline)


def test_the_log_of_a_present_run_is_read_by_the_pattern_of_the_runs(tmp_path: Path) -> None:
    log = tmp_path / "present.log"
    log.write_text("".join(f"batch {n} needed 4.4 s\n" for n in range(9)))

    with pytest.raises(SearchBeganError):
        begin(tmp_path, str(log), r"needed (?P<step_s>[0-9.]+) s")
    with pytest.raises(RequestError, match="no step times"):
        begin(tmp_path, str(log))


@pytest.mark.parametrize("baseline", ["0", "0ms", "inf", "nan", "-1", "4.4 parsecs", "missing.log"])
def test_what_is_no_time_and_no_log_is_refused_before_the_search(tmp_path: Path, baseline: str) -> None:
    with pytest.raises(RequestError):
        begin(tmp_path, baseline)
