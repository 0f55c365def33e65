"""``forerun replay``: traces of a run, explained."""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from fnmatch import fnmatchcase
from math import isnan
from typing import Any

from forerun.search.cli.progress import ReadingBar, analysing
from forerun.search.files.documents import dump_json
from forerun.simulator.improve.operator_changes import OperatorChange, changed_steps
from forerun.simulator.replay import Analysis, analyse_files, find_traces, summary, write_timeline
from forerun.simulator.replay.analysis import PHASES
from forerun.simulator.replay.graph import ReplayGraph
from forerun.simulator.replay.learned import served_exchanges
from forerun.simulator.replay.statistics import OperatorUse, largest_gaps, operator_differences, operator_uses
from forerun.spaces.clusters import resolve_cluster
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.files import csv_text, write_text
from forerun.spaces.units import parse_rate, with_unit


def run(args: argparse.Namespace) -> int:
    """Read, replay and print."""
    link = None if args.link is None else with_unit(parse_rate, args.link)
    if link is not None and not link > 0:
        raise RequestError(f"the rate of a link must be more than 0, but got {args.link}")
    if args.profile_out is not None and (args.cluster is None or args.profile_out.suffix not in (".yaml", ".yml")):
        raise RequestError("--profile-out writes a .yaml file and needs the --cluster that the run was on")
    if (args.gradient_profile is None) != (args.batch is None):
        raise RequestError("--gradient-profile FILE.yaml and --batch B (samples per rank and step) go together")
    files = find_traces(args.traces)
    others = find_traces(args.against) if args.against else []
    bar = ReadingBar([*files, *others])
    analysis = analyse_files(files, aligned=not args.no_align, reading=bar, phase=analysing)
    other = analyse_files(others, aligned=not args.no_align, reading=bar, phase=analysing) if others else None
    analysing("adding up operators", PHASES, PHASES + 1)
    document = summary(analysis, link_bytes_per_s=link, top=args.top)
    document |= operators_document(analysis, other, args.what_if, args.find, top=args.top)
    if args.gaps:
        document["gaps"] = [asdict(gap) for gap in largest_gaps(analysis.replay.graph, args.top)]
    try:
        if args.statistics is not None:
            write_text(args.statistics, operators_csv(analysis))
            print(f"forerun: wrote {args.statistics}", file=sys.stderr)
        if args.messages is not None:
            write_text(args.messages, messages_csv(analysis.replay.graph))
            print(f"forerun: wrote {args.messages}", file=sys.stderr)
        if args.timeline is not None:
            write_timeline(analysis.replay, args.timeline)
            print(f"forerun: wrote {args.timeline}", file=sys.stderr)
        if args.gradient_profile is not None:
            from forerun.search.scale.profile import write_gradient_profile
            from forerun.simulator.improve.worker_profile import worker_profile

            write_gradient_profile(worker_profile(analysis, batch=args.batch), args.gradient_profile)
            print(f"forerun: wrote {args.gradient_profile}", file=sys.stderr)
        if args.profile_out is not None:
            _write_profile(args, analysis)
    finally:  # the answer is printed even if a file cannot be written
        if args.json:
            print(dump_json(document))
        else:
            from forerun.search.cli.console import open_console
            from forerun.search.cli.replay_view import print_replay

            print_replay(open_console(), document, top=args.top)
    return 0


def _write_profile(args: argparse.Namespace, analysis: Analysis) -> None:
    """Write message times as a profile."""
    from forerun.search.measured.profiling import write_profile
    from forerun.search.measured.profiling.replayed import replayed_profile, strange_pace

    profile = replayed_profile(analysis, resolve_cluster(args.cluster))
    write_profile(args.profile_out, profile)
    left = sum(profile.skipped.values())
    print(
        f"forerun: wrote {args.profile_out}: {len(profile.collectives)} kinds of message"
        + (f", {left} messages left out" if left else ""),
        file=sys.stderr,
    )
    if warning := strange_pace(profile):
        print(f"forerun: {warning}", file=sys.stderr)


def operators_document(
    analysis: Analysis,
    other: Analysis | None,
    changes: Sequence[OperatorChange],
    patterns: Sequence[str],
    *,
    top: int,
) -> dict[str, Any]:
    """Return the keys about operators in the document of ``replay``.

    Parameters
    ----------
    analysis
        The run.
    other
        Another run to compare it with.
    changes
        Changes of operators for a predicted step.
    patterns
        Names of operators to find (shell wildcards).
    top
        Number of listed operators and differences.
    """
    uses = operator_uses(analysis.replay.graph.traces)
    document: dict[str, Any] = {
        "operators": [asdict(use) for use in uses[:top]],
        "what_if": [asdict(one) for one in changed_steps(analysis, changes)] if changes else [],
    }
    if patterns:
        document["found"] = [asdict(use) for use in _matching(uses, patterns)]
    if other is not None:
        differences = operator_differences(uses, operator_uses(other.replay.graph.traces))
        differing = [{**asdict(one), "difference_s": one.difference_s} for one in differences[:top]]
        document["against"] = {"step_time_s": other.replay.step_s, "operators": differing}
    return document


def operators_csv(analysis: Analysis) -> str:
    """Return a line per operator, the costliest first."""
    uses = operator_uses(analysis.replay.graph.traces)
    return csv_text([field.name for field in fields(OperatorUse)], map(asdict, uses))


def _matching(uses: Sequence[OperatorUse], patterns: Sequence[str]) -> tuple[OperatorUse, ...]:
    """Return the operators that patterns name."""
    for pattern in patterns:
        if not any(fnmatchcase(use.name, pattern) for use in uses):
            raise unknown("operator of the traces", pattern, sorted({use.name for use in uses}))
    return tuple(use for use in uses if any(fnmatchcase(use.name, pattern) for pattern in patterns))


def messages_csv(graph: ReplayGraph) -> str:
    """Return a line per matched message: bytes, and times in s."""
    rows = []
    for one, took_s in served_exchanges(graph):
        place, span = one.members[0]
        rows.append(
            {
                "operation": "send and receive" if one.operation == "pair" else one.operation,
                "ranks": " ".join(str(graph.traces[member].rank) for member, _ in one.members),
                "step": int(graph.traces[place].step[span]),
                "label": graph.traces[place].messages[span].label,
                "bytes": "" if isnan(one.size_bytes) else one.size_bytes,
                "all_there_s": max(float(graph.start_s[member][span]) for member, span in one.members),
                "took_s": took_s,
            }
        )
    return csv_text(["operation", "ranks", "step", "label", "bytes", "all_there_s", "took_s"], rows)
