"""Improvements of a step on the terminal."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from forerun.search.cli.console import say
from forerun.search.improve import ImproveSource
from forerun.simulator.improve import Improvement, WhatIf
from forerun.simulator.improve.run_questions import Question
from forerun.spaces.units import format_bytes, format_seconds

_SHOWN = 12


def print_improvement(
    console: Console,
    source: ImproveSource,
    found: Improvement,
    asked: tuple[WhatIf, ...],
    run: tuple[Question, ...],
) -> None:
    """Print head, changes, buckets, questions and other strategies."""
    say(console, *_headline(source, found), _changes(found), _buckets(found))
    if run:
        say(console, _run(run))
    say(console, _questions(asked))
    if source.alternatives:
        say(console, _strategies(source))
    say(console, *(Text(note, style="dim") for note in source.notes))


def _headline(source: ImproveSource, found: Improvement) -> list[Text]:
    step, change = found.step, f"{abs(found.gain):.1%} {'less' if found.gain >= 0 else 'more'}"
    lines = [
        Text(
            f"{step.name}: {format_seconds(found.default.step_s)} a step, {format_seconds(found.best.step_s)} with the "
            f"changes ({change}); {format_seconds(found.bound_s)} if messages took no time",
            style="bold",
        ),
        Text(
            f"{len(step.ops)} operators, {len(step.senders)} with gradients, {format_bytes(step.gradient_bytes)} "
            "exchanged a step"
        ),
    ]
    if source.analysis is not None:
        measured_s = source.analysis.replay.step_s
        lines.append(
            Text(
                f"the run took {format_seconds(measured_s)} a step; this model of it differs by "
                f"{found.default.step_s / measured_s - 1:+.1%}"
            )
        )
    return lines


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number < 2 else "right", no_wrap=number > 1)
    return table


def _changes(found: Improvement) -> Table | Text:
    if not found.changes:
        return Text("\nNo change of buckets, fusions or pieces makes it faster by more than 0.01 %")
    table = _table("\nChanges, each on top of those above", "change", "to", "saves", "step")
    for one in found.changes:
        table.add_row(one.name, one.what, format_seconds(one.gain_s), format_seconds(one.step_s))
    return table


def _buckets(found: Improvement) -> Table:
    step, plan = found.step, found.plan
    table = _table(
        "\nBuckets, in the order of sending", "from", "to", "gradients", "bytes", "pieces", "full at", "sent at"
    )
    for number, bucket in enumerate(plan.buckets[:_SHOWN]):
        table.add_row(
            step.ops[bucket[0]].name[:40],
            step.ops[bucket[-1]].name[:40],
            str(len(bucket)),
            format_bytes(sum(step.ops[op].gradient_bytes for op in bucket)),
            str(plan.cut(number)),
            format_seconds(found.best.ready_s[number]),
            format_seconds(found.best.sent_s[number]),
        )
    if len(plan.buckets) > _SHOWN:
        table.add_row(f"… {len(plan.buckets) - _SHOWN} more (--out)")
    return table


def _run(run: tuple[Question, ...]) -> Table:
    table = _table("\nWhat if, on the replayed run", "change", "to", "step", "saves")
    for one in run:
        table.add_row(one.name, one.what, format_seconds(one.step_s), format_seconds(one.gain_s))
    return table


def _questions(asked: tuple[WhatIf, ...]) -> Table:
    table = _table("\nWhat if, per pass over the batch", "change", "to", "plan as it is", "best plan for it")
    for one in asked:
        table.add_row(one.name, one.what, format_seconds(one.default_s), format_seconds(one.best_s))
    return table


def _strategies(source: ImproveSource) -> Table:
    table = _table("\nOther strategies", "change", "to", "saves")
    for one in source.alternatives:
        table.add_row(one.name, one.what, format_seconds(one.saves_s))
    return table
