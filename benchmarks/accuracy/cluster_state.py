"""What the ultrascale sweep of nanotron would be predicted like if the state of its cluster were known in every job.

Its clusters had two states, which the probes of collectives in every job tell apart: from job 14019196 on a layer
takes 2.7 ms more per further tensor rank, gradients are neither hidden nor reduced over a tree
(docs/decisions/host-speed.md). Nobody knows the state of a run to come, so that no prediction uses it; this is the
figure beside the honest one.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from forerun.search.measured.validate import MeasuredRun, Metrics, metrics_of, predict

TABLE = "hf_ultrascale"
FIRST_JOB_OF_THE_SECOND_STATE = 14019196
FIRST: dict[str, Any] = {"pipeline_rank_s": 0.0, "gathers_ahead": False, "pipeline_idle": 0.0}
SECOND: dict[str, Any] = {
    "host_rank_s": 2.7e-3,
    "pipeline_rank_s": 0.0,
    "overlap_gradients": 0.0,
    "tree_reduction": False,
}
_JOB = re.compile(r"job=(\d+)")


def with_known_state(runs: Sequence[MeasuredRun]) -> Metrics | None:
    """Return the figures of the sweep's runs with the state of each; None where there are none."""
    mine = [_known(run) for run in runs if run.file == TABLE]
    return metrics_of(predict(mine)) if mine else None


def _known(run: MeasuredRun) -> MeasuredRun:
    job = _JOB.search(run.cells["notes"])
    second = job is not None and int(job[1]) >= FIRST_JOB_OF_THE_SECOND_STATE
    profile = replace(run.context.framework, **(SECOND if second else FIRST))
    return replace(run, context=replace(run.context, framework=profile))
