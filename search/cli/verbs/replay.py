"""``forerun replay``: traces of a run, explained."""

import argparse
import sys
from dataclasses import asdict

from forerun.search.cli.operators import messages_csv, operators_csv, operators_document
from forerun.search.cli.reading import ReadingBar, analysing
from forerun.search.files.documents import dump_json
from forerun.simulator.replay import Analysis, analyse_files, find_traces, summary, write_timeline
from forerun.simulator.replay.analysis import PHASES
from forerun.simulator.replay.gaps import largest_gaps
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.units import parse_rate, with_unit


def run(args: argparse.Namespace) -> int:
    """Read, replay and print.

    Raises:
        RequestError: a trace is truncated, empty, no trace or of another run, or a file cannot be written.
    """
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
    """Write message times as a profile.

    Raises:
        RequestError: the cluster is unknown, no message is usable, or the file cannot be written.
    """
    from forerun.search.measured.profiling import write_profile
    from forerun.search.measured.profiling.replayed import replayed_profile, strange_pace
    from forerun.spaces.clusters import resolve_cluster

    profile = replayed_profile(analysis, resolve_cluster(args.cluster))
    write_profile(args.profile_out, profile)
    left = sum(profile.skipped.values())
    print(
        f"forerun: wrote {args.profile_out}: {len(profile.collectives)} kinds of message"
        + (f", {left} messages left out" if left else ""),
        file=sys.stderr,
    )
    if told := strange_pace(profile):
        print(f"forerun: {told}", file=sys.stderr)
