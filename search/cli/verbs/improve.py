"""``forerun improve``: changes that make a run, or a model on a cluster, faster."""

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

from rich.console import Console, RenderableType
from rich.text import Text

from forerun.search.cli.console import open_console, say
from forerun.search.cli.flags.declaration import Answer
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.search.cli.tables import listing
from forerun.search.files.documents import dump_json
from forerun.search.improve import ImproveSource, model_source, trace_source, with_fused_costs, write_plan
from forerun.search.improve.summary import summary
from forerun.simulator.improve import RULES, group_plan, improve, what_ifs
from forerun.simulator.improve.run_questions import free_messages_s, run_questions
from forerun.simulator.replay import find_traces
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.units import format_bytes, format_seconds, parse_bytes, parse_rate, with_unit


def run(args: argparse.Namespace) -> int:
    """Find the step, search improvements and what-if cases, and print."""
    if args.bucket is not None and args.bucket not in RULES:
        raise unknown("rule of buckets", args.bucket, RULES)
    if args.bucket is not None and args.groups is not None:
        raise RequestError("--bucket and --groups both say what the default is; give one of the two")
    limit = None if args.memory is None else with_unit(parse_bytes, args.memory)
    source = _source(args)
    if args.fused is not None:
        source = replace(source, step=with_fused_costs(source.step, args.fused))
    rule = source.rule if args.bucket is None else RULES[args.bucket]
    base = source.plan if args.groups is None else group_plan(source.step, args.groups)
    begin_s = time.perf_counter()
    plan = improve(source.step, rule, base=base, fuse=not args.no_fuse, limit_bytes=limit)
    asked = what_ifs(source.step, plan, fuse=not args.no_fuse)
    ordered = source.analysis is not None and all(source.analysis.replay.graph.graph.ordered)
    answers = run_questions(source.analysis) if ordered and source.analysis is not None else ()
    free_s = free_messages_s(answers)
    if free_s is not None:  # only the graph of all ranks has the waits caused by messages
        plan = replace(plan, bound_s=free_s)
    elapsed_s = time.perf_counter() - begin_s
    try:
        if args.out is not None:
            write_plan(plan, args.out)
            print(f"forerun: wrote {args.out}", file=sys.stderr)
    finally:  # the answer is printed even if a file cannot be written
        document = summary(source, plan, asked, answers, elapsed_s)
        if args.json:
            print(dump_json(document))
        else:
            print_improvement(open_console(), document)
    return 0


def _source(args: argparse.Namespace) -> ImproveSource:
    """Return the step to improve, of a model or of traces."""
    from forerun.search.cli.progress import ReadingBar

    if (args.model is None) == (args.traces is None):
        raise RequestError("improve takes a MODEL with its training, or --traces of a run; give one of the two")
    if args.traces is not None:
        refuse_unserved(args, Answer.TRACES, "belongs to a MODEL; the --traces say what was trained")
        link = None if args.link is None else with_unit(parse_rate, args.link)
        if link is not None and link < 1:
            raise RequestError(f"the rate of a link must be at least 1 B/s, but got {args.link}")
        files = find_traces(args.traces)
        return trace_source(files, ReadingBar(files), link_bytes_per_s=link)
    if args.link is not None:
        raise RequestError("--link belongs to --traces; a model's --cluster says what its links reach")
    missing = [flag for flag in ("cluster", "gpus", "batch") if getattr(args, flag) is None]
    if missing:
        raise RequestError(f"a model needs its training: add {', '.join(f'--{flag}' for flag in missing)}")
    rate = None if args.servers is None else with_unit(parse_rate, args.servers)
    if rate is not None and rate < 1:
        raise RequestError(f"the rate of servers must be at least 1 B/s, but got {args.servers}")
    return model_source(
        args.model,
        cluster=args.cluster,
        gpus=args.gpus,
        batch=args.batch,
        seq_len=args.seq_len,
        precision=args.precision,
        framework=args.framework,
        strategy=args.strategy,
        profile=args.profile,
        calibration=args.calibration,
        server_bytes_per_s=rate,
    )


_SHOWN = 12
_BUCKETS = {
    "from": "first", "to": "last", "gradients": "gradients", "bytes": "bytes", "pieces": "pieces",
    "full at": "ready_s", "sent at": "sent_s",
}  # fmt: skip
_TABLES = {
    "changes": (
        "Changes, each on top of those above", {"change": "name", "to": "what", "saves": "gain_s", "step": "step_s"},
    ),
    "buckets": ("Buckets, in the order of sending", _BUCKETS),
    "run_what_if": (
        "What if, on the replayed run", {"change": "name", "to": "what", "step": "step_s", "saves": "gain_s"},
    ),
    "what_if": (
        "What if, per pass over the batch",
        {"change": "name", "to": "what", "plan as it is": "default_s", "best plan for it": "best_s"},
    ),
    "strategies": ("Other strategies", {"change": "name", "to": "what", "saves": "saves_s"}),
}  # fmt: skip


def print_improvement(console: Console, document: dict[str, Any]) -> None:
    """Print head, changes, buckets, questions and other strategies."""
    say(console, *_headline(document))
    if not document["changes"]:
        say(console, Text("No change of buckets, fusions or pieces makes it faster by more than 0.01 %"))
    tables: list[RenderableType] = [
        listing(title, document[key], columns, most=_SHOWN if key == "buckets" else None)
        for key, (title, columns) in _TABLES.items()
        if document[key]
    ]
    say(console, *tables, *(Text(note, style="dim") for note in document["notes"]))


def _headline(document: dict[str, Any]) -> list[Text]:
    default_s, gain = document["default_step_time_s"], document["gain"]
    lines = [
        Text(
            f"{document['step']}: {format_seconds(default_s)} a step, {format_seconds(document['best_step_time_s'])} "
            f"with the changes ({abs(gain):.1%} {'less' if gain >= 0 else 'more'}); "
            f"{format_seconds(document['free_messages_step_time_s'])} if messages took no time",
            style="bold",
        ),
        Text(
            f"{document['operators']} operators, {document['operators_with_gradients']} with gradients, "
            f"{format_bytes(document['gradient_bytes'])} exchanged a step"
        ),
    ]
    if (measured_s := document["measured_step_time_s"]) is not None:
        off = default_s / measured_s - 1
        lines.append(Text(f"the run took {format_seconds(measured_s)} a step; this model of it differs by {off:+.1%}"))
    return lines
