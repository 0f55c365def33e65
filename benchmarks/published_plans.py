"""Published best plans beside forerun's own picks for the same problems.

    python benchmarks/published_plans.py [DIR ...] [--only TEXT] [--plans]

A problem is the model, devices, batch and software of a published plan (``published_plans.yaml``). For each: the plan
and its measured step, forerun's prediction of it, and forerun's pick with its prediction. A pick *promises too much*
where even the slow end of its 80 % interval lies below the measured step of the published plan: such picks are listed
with the plan's nearest measured neighbours. ``--plans`` plans stages of unlike size, too, for dense models on as many
devices as ``PLANNED``. Tables are read from ``benchmarks/measured`` and further folders DIR, where
those lie whose licence forbids to copy them (amp.csv). Prints Markdown.
"""

import argparse
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from forerun.search.answer.diagnosis.diagnosis import NothingFeasible
from forerun.search.answer.refine import refine
from forerun.search.answer.searches import leaderboard_of
from forerun.search.answer.trees import with_plans
from forerun.search.board.requested import TreeRow
from forerun.search.board.rows import Row
from forerun.search.explore.flat.flat_search import problem_of
from forerun.search.explore.flat.slicing import search_with
from forerun.search.measured.validate import load_runs, predict
from forerun.search.measured.validate.runs import MeasuredRun
from forerun.search.request.request import DEFAULT_OBJECTIVE, Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.search.workers import IN_THIS_PROCESS

HERE = Path(__file__).resolve().parent
PLANS = HERE / "published_plans.yaml"
MEASURED = HERE / "measured"
HEAD = (
    *("problem", "published plan", "measured s", "predicted s", "error %", "forerun's pick", "s", "interval s"),
    *("search CPU s", "unlike stages", "planning CPU s"),
)
ASKED = {"dense": 0.06, "moe": 0.12}
WORTH = 0.01
PLANNED = 64
NEIGHBOURS = 3
"""Measured runs of the same model and devices that are named beside a pick that promises too much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A published plan and forerun's pick; ``predicted_s``: a step of the plan, None where that is unknown.
    ``planned``: the best plan of unlike stages that betters the pick; ``search_s``, ``planned_s``: CPU seconds."""

    name: str
    kind: str
    plan: str
    measured_s: float
    predicted_s: float | None
    pick: Row | None
    search_s: float
    planned: TreeRow | None = None
    planned_s: float = 0.0

    @property
    def error(self) -> float | None:
        """Predicted over measured step of the published plan, less one."""
        return None if self.predicted_s is None else self.predicted_s / self.measured_s - 1

    @property
    def promises_too_much(self) -> bool:
        """Whether the whole interval of the pick is faster than what was measured."""
        high_s = None if self.pick is None else self.pick.step_time_high_s
        return high_s is not None and high_s < self.measured_s

    @property
    def as_good(self) -> bool:
        """Whether the pick is predicted as fast as the published plan (where that is unknown: as its measurement);
        searches give ``WORTH`` of a step for less risk of running out of memory."""
        return self.pick is not None and self._as_fast(self.pick)

    @property
    def planned_as_good(self) -> bool:
        """The same of what was planned, which betters the pick where there is any."""
        return self.as_good or (self.planned is not None and self._as_fast(self.planned.row))

    def _as_fast(self, row: Row) -> bool:
        return row.step_time_s <= (self.predicted_s or self.measured_s) * (1 + WORTH)


def main() -> None:
    """Print one line per problem, then medians and the picks that promise too much."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path, help="more folders with tables of measured runs")
    parser.add_argument("--only", default="", help="problems whose name has this text")
    parser.add_argument(
        "--plans", action="store_true", help="plan stages of unlike size, too (seconds to a minute each)"
    )
    args = parser.parse_args()
    document = yaml.safe_load(PLANS.read_text(encoding="utf-8"))
    every = load_runs(_tables(document["plans"], (MEASURED, *args.folders))).runs
    runs = published(document["plans"], every)
    print(f"| {' | '.join(HEAD)} |")
    print("|---|---|---:|---:|---:|---|---:|---|---:|---|---:|")
    answers = []
    for answer in _answers(document, runs, args.only, args.plans):
        print(_line(answer), flush=True)
        answers.append(answer)
    print(f"\n{_summary(answers)}")
    for answer in answers:
        if answer.promises_too_much and answer.name in runs:
            print(f"\n{_neighbours(answer, runs[answer.name], every)}")


def published(names: Sequence[str], every: Sequence[MeasuredRun]) -> dict[str, MeasuredRun]:
    """Return the measured runs of some names, those that are there."""
    found = {run.run_id: run for run in every}
    return {name: found[name] for name in names if name in found}


def _tables(names: Sequence[str], folders: Sequence[Path]) -> list[Path]:
    """Return the tables that runs of some names stand in, each from the first folder that has it."""
    tables = sorted({name.rpartition("-")[0] for name in names})
    files = ([folder / f"{table}.csv" for folder in folders] for table in tables)
    return [found for each in files if (found := next((file for file in each if file.exists()), None)) is not None]


def _answers(document: dict[str, Any], runs: dict[str, MeasuredRun], only: str, plans: bool) -> Iterator[Answer]:
    """Yield the answers to the problems of a document."""
    predictions = predict(tuple(runs.values()))
    for place, (name, run) in enumerate(runs.items()):
        if only not in f"{name} {run.context.model.name}" or run.step_time_s is None:
            continue
        yield _answer(
            name,
            Setting(
                request=Request(model=run.context.model.name, cluster=run.context.cluster.name, global_batch=1),
                context=run.context,
                gpus=(run.strategy.devices,),
                objective=DEFAULT_OBJECTIVE,
                top=1,
                usd_per_gpu_hour=None,
                defaults=(),
                notes=(),
            ),
            plan=str(run.strategy),
            measured_s=run.step_time_s,
            predicted_s=float(predictions.step_time_s[place]),
            plans=plans,
        )
    for problem in document["stated"]:
        if only in problem["name"]:
            setting = resolve(Request(**problem["request"], top=1))
            yield _answer(
                problem["name"], setting, plan="not published", measured_s=problem["step_time_s"], plans=plans
            )


def _answer(
    name: str, setting: Setting, *, plan: str, measured_s: float, predicted_s: float | None = None, plans: bool = False
) -> Answer:
    start = time.process_time()
    piece, who, remarks = search_with(problem_of(setting), IN_THIS_PROCESS)
    pick = planned = None
    try:
        board = leaderboard_of(setting, piece, workers=who, remarks=remarks, noted=False)
        pick, searched = board.rows[0], time.process_time()
        if plans and not setting.context.moe and pick.gpus <= PLANNED:
            trees = with_plans(refine(board, setting, 1), setting).trees
            planned = trees.rows[0] if trees is not None and trees.rows else None
    except NothingFeasible:
        searched = time.process_time()
    return Answer(
        name=name,
        kind="moe" if setting.context.moe else "dense",
        plan=plan,
        measured_s=measured_s,
        predicted_s=predicted_s,
        pick=pick,
        search_s=searched - start,
        planned=planned,
        planned_s=time.process_time() - searched,
    )


def _line(answer: Answer) -> str:
    pick = answer.pick
    low_s, high_s = (None, None) if pick is None else (pick.step_time_low_s, pick.step_time_high_s)
    cells = (
        answer.name,
        answer.plan,
        f"{answer.measured_s:.3f}",
        "" if answer.predicted_s is None else f"{answer.predicted_s:.3f}",
        "" if answer.error is None else f"{100 * answer.error:+.1f}",
        "nothing fits" if pick is None else pick.name,
        "" if pick is None else f"{pick.step_time_s:.3f}",
        ""
        if low_s is None or high_s is None
        else f"{low_s:.3f} to {high_s:.3f}{' !' if answer.promises_too_much else ''}",
        f"{answer.search_s:.1f}",
        ""
        if answer.planned is None
        else _escaped(f"{answer.planned.row.name}: {answer.planned.row.step_time_s:.3f} s"),
        f"{answer.planned_s:.1f}",
    )
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", r"\|")  # of a cell, not between cells


def _summary(answers: Sequence[Answer]) -> str:
    """Return medians of errors by kind, and how many picks are as good as the plan and promise too much."""
    lines = []
    for kind, asked in ASKED.items():
        errors = [abs(answer.error) for answer in answers if answer.kind == kind and answer.error is not None]
        if errors:
            median = 100 * statistics.median(errors)
            lines.append(
                f"{kind}: {len(errors)} published plans, median error {median:.1f} % (asked {100 * asked:.0f})"
            )
    as_good = sum(answer.as_good for answer in answers)
    too_much = [answer.name for answer in answers if answer.promises_too_much]
    planned = sum(answer.planned_as_good for answer in answers)
    lines.append(
        f"picks predicted as fast as the published plan: {as_good} of {len(answers)}; with unlike stages {planned}"
    )
    lines.append(f"picks that promise more than their interval (!): {len(too_much)}")
    return "\n".join(f"- {line}" for line in lines)


def _neighbours(answer: Answer, run: MeasuredRun, every: Sequence[MeasuredRun]) -> str:
    """Return the measured runs of the same model and number of devices that share most degrees with a pick."""
    assert answer.pick is not None
    degrees = ("tp", "pp", "dp", "cp", "ep", "mbs", "vpp")
    pick = answer.pick.strategy
    like = [
        one
        for one in every
        if one.step_time_s is not None
        and one.context.model == run.context.model
        and one.strategy.devices == run.strategy.devices
        and one.context.cluster.device == run.context.cluster.device
    ]
    like.sort(
        key=lambda one: (-sum(getattr(one.strategy, axis) == getattr(pick, axis) for axis in degrees), one.run_id)
    )
    workload = run.context.workload
    own = workload.global_batch * workload.seq_len / answer.pick.step_time_s / pick.devices
    lines = [f"{answer.name}: {answer.pick.name} promises {own:,.0f} tokens/s/GPU; measured neighbours:"]
    for one in like[:NEIGHBOURS]:
        assert one.step_time_s is not None
        batch = one.context.workload.global_batch * one.context.workload.seq_len
        pace = batch / one.step_time_s / one.strategy.devices
        lines.append(f"- {one.run_id}: {one.strategy} ({one.context.workload.precision}), {pace:,.0f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
