"""``forerun profile``: seconds of operators and collectives, measured on this machine."""

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from forerun.search.cli.arguments import request_of
from forerun.search.measured.profiling.document import Line, Profile, write_profile
from forerun.search.measured.profiling.extending import joined, left_to_measure, profile_to_extend
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.measured.profiling.messages import MeasuredCollective
    from forerun.search.measured.profiling.operators import ProfiledOperator
    from forerun.search.measured.profiling.plan import ProfilingSettings
    from forerun.search.request.model_kind import AnyContext
    from forerun.search.request.setting import Setting


def run(args: argparse.Namespace) -> int:
    """Plan, measure, write."""
    setting: Setting[AnyContext] = resolve(request_of(args, graphs=True, overrides=_overrides(args)))
    _check(args)
    device = setting.context.cluster.device.name
    known = profile_to_extend(args.out, device) if args.extend else None
    operators = [] if args.only == "collectives" else left_to_measure(_operators(args, setting), known)
    imported = _imported(args, setting)
    if args.plan or operators or not imported:
        settings, rank, messages, between = _machine(args, setting)
        if _plan(args, operators, messages, settings, rank):
            return 0
        try:
            lines, skipped, made = _measure(args, setting, operators, messages, between, settings, rank)
        except KeyboardInterrupt:
            kept = args.out.with_name(args.out.name + ".partial")
            if not rank and kept.exists():
                print(
                    f"forerun: {kept} has the measurements so far; the same command continues from there",
                    file=sys.stderr,
                )
            raise
        if between is not None:
            between.close()
        if rank:
            return 0
    else:
        lines, skipped, made = ([], []), {}, {}
    profile = Profile(
        source=args.out.name,
        device=device,
        made={**_provenance(setting), **made, "nccl_tests": [path.name for path in args.nccl_tests]},
        operators=tuple(lines[0]),
        collectives=(*lines[1], *imported),
        skipped=skipped,
    )
    profile = joined(known, profile)
    write_profile(args.out, profile)
    args.out.with_name(args.out.name + ".partial").unlink(missing_ok=True)
    return _report(args, profile)


def _overrides(args: argparse.Namespace) -> dict[str, list[object]]:
    from forerun.search.request.choices import choices_of
    from forerun.search.request.kinds import kind_named

    return choices_of(None, args.set, kind_named(args.model).check)


def _check(args: argparse.Namespace) -> None:
    if args.out is None and not args.plan:
        raise RequestError("name the file to write with --out h100.yaml, or ask for the --plan")
    if args.out is not None and args.out.suffix.lower() not in (".yaml", ".yml"):
        raise RequestError(f"{args.out}: a profile is written to a .yaml file")
    if args.extend and (args.out is None or args.force):
        raise RequestError("--extend adds to the profile of --out FILE.yaml, which --force would overwrite")
    if args.out is not None and args.out.exists() and not (args.force or args.extend or args.plan):
        raise RequestError(f"{args.out} exists; name another file, or add --extend or --force")


def _operators(args: argparse.Namespace, setting: "Setting[AnyContext]") -> "list[ProfiledOperator]":
    from forerun.search.measured.profiling.operators import operators_of
    from forerun.search.request.setting import legal_strategy

    if args.strategy:
        return operators_of(setting.context, [legal_strategy(setting, text) for text in args.strategy])
    if setting.gpus is None:
        raise RequestError(
            "name the strategies to profile with --gpus 64 or --strategy TEXT, or add --only collectives"
        )
    return operators_of(setting.context, setting.space())


def _imported(args: argparse.Namespace, setting: "Setting[AnyContext]") -> list[Line]:
    """Return the measurements of nccl-tests."""
    from forerun.search.measured.profiling.nccl_tests import read_nccl_tests

    readings = [one for path in args.nccl_tests for one in read_nccl_tests(path)]
    return _messages(setting, [(one.kind, (one.full_bytes, one.ranks, 1), one.seconds, 0.0) for one in readings])


def _messages(
    setting: "Setting[AnyContext]", measured: "Sequence[tuple[str, tuple[float, int, int], float, float]]"
) -> list[Line]:
    """Return measured collectives with the catalogue's times.

    Parameters
    ----------
    setting
        Request with all defaults.
    measured
        Kind, shape (bytes, ranks, stride), seconds and their spread of each.
    """
    from typing import cast

    import numpy as np

    from forerun.simulator.costs import Collective, collective_time_s

    cluster, lines = setting.context.cluster, []
    for kind in dict.fromkeys(kind for kind, *_ in measured):
        of_kind = [one for one in measured if one[0] == kind]
        size, ranks, stride = np.array([shape for _, shape, *_ in of_kind], dtype=np.float64).T
        fitted_s = collective_time_s(cluster, cast(Collective, kind), size, ranks, stride)
        reach = stride if kind == "send_recv" else (ranks - 1) * stride
        for (_, shape, seconds, spread), far, fitted in zip(of_kind, reach, fitted_s, strict=True):
            place = "network" if far >= cluster.devices_per_node else "node"
            line = Line(name=f"{kind} {place}", shape=shape, seconds=seconds, spread=spread, fitted_s=float(fitted))
            lines.append(line)
    return lines


def _machine(
    args: argparse.Namespace, setting: "Setting[AnyContext]"
) -> "tuple[ProfilingSettings, int, list[MeasuredCollective], Any]":
    """Return settings, rank, messages between ranks, and their process group (None for one rank)."""
    import os

    from forerun.search.measured.profiling.messages import messages as planned
    from forerun.search.measured.profiling.plan import ProfilingSettings, device_of
    from forerun.search.request.kinds import kind_of
    from forerun.spaces.units import parse_bytes

    low, separator, high = args.collective_bytes.partition("..")
    smallest, largest = int(parse_bytes(low)), int(parse_bytes(high if separator else low))
    if not 4 <= smallest <= largest:
        raise RequestError(f"--collective-bytes is LO..HI with 4 <= LO <= HI, but got {args.collective_bytes}")
    settings = ProfilingSettings(
        device=device_of(args.device, planned=args.plan),
        precision=kind_of(setting.context).work(setting.context, 1).precision,
        repeat=args.repeat,
        largest_bytes=args.largest_operator * 2**30,
        seconds=args.time_limit,
    )
    if args.plan:
        return settings, 0, [], None
    from forerun.search.measured.profiling import collectives

    if not collectives.launched():
        return settings, 0, [], None
    rank, world = collectives.begin(settings.device)
    per_node = int(os.environ.get("LOCAL_WORLD_SIZE", world))
    messages = [] if args.only == "operators" else planned(world, per_node, smallest, largest)
    return settings, rank, messages, collectives.Between(settings.device)


def _plan(
    args: argparse.Namespace,
    operators: "list[ProfiledOperator]",
    messages: "list[MeasuredCollective]",
    settings: "ProfilingSettings",
    rank: int,
) -> bool:
    """Print the plan of a measurement and its time; return whether only a plan was requested."""
    from collections import Counter
    from importlib.util import find_spec

    from forerun.search.measured.profiling.plan import expected_s
    from forerun.spaces.units import format_seconds

    if rank:
        return False
    if find_spec("torch") is None:
        seconds, source = expected_s(operators, settings), "by the catalogue (with torch here, some are tried)"
    else:
        from forerun.search.measured.profiling.run import slower_here

        seconds, source = expected_s(operators, settings, slower_here), f"on {settings.device}"
    seconds = min(seconds, args.time_limit) if args.time_limit else seconds
    kinds = Counter(one.name.split()[0] for one in operators)
    stream = sys.stdout if args.plan and not args.json else sys.stderr
    shown = ", ".join(f"{count} {kind}" for kind, count in kinds.items()) or "none"
    print(f"{len(operators)} distinct operators ({shown}), {len(messages)} messages between ranks", file=stream)
    print(f"about {format_seconds(seconds)} for the operators, {source}", file=stream)
    if args.plan and args.json:
        from forerun.search.files.documents import SCHEMA, dump_json

        plan = {"operators": dict(kinds), "messages": len(messages), "expected_s": seconds, "device": settings.device}
        print(dump_json({"schema": SCHEMA, **plan}))
    return bool(args.plan)


def _measure(
    args: argparse.Namespace,
    setting: "Setting[AnyContext]",
    operators: "list[ProfiledOperator]",
    messages: "list[MeasuredCollective]",
    between: Any,
    settings: "ProfilingSettings",
    rank: int,
) -> tuple[tuple[list[Line], list[Line]], dict[str, int], dict[str, Any]]:
    """Measure everything; other ranks than 0 only participate in messages."""
    import torch

    from forerun.search.cli.progress import MeasuringBar
    from forerun.search.measured.profiling.journal import ProfilingJournal, measured_lines
    from forerun.search.measured.profiling.run import measure_messages, measure_operators
    from forerun.spaces.locks import held

    if rank:
        done = _shared(between, None)
        measure_messages(messages, done, between, settings.repeat, lambda *_: None)
        return ([], []), {}, {}
    name = torch.cuda.get_device_name() if settings.device == "cuda" else "cpu"
    header = {
        "device": setting.context.cluster.device.name,
        "measured_on": name,
        "torch": str(torch.__version__),
        "precision": settings.precision,
        "repeat": settings.repeat,
    }
    partial = args.out.with_name(args.out.name + ".partial")
    with held(partial.with_name(f".{partial.name}.lock"), str(partial)), ProfilingJournal(partial, header) as journal:
        if journal.records:
            print(f"forerun: going on after {len(journal.records)} measurements", file=sys.stderr)
        with MeasuringBar(len(operators) + len(messages)) as bar:
            complete = measure_operators(operators, journal, settings, bar.advance)
            if between is not None:
                done = _shared(between, {key for key in journal.records})

                def keep(message: "MeasuredCollective", timing: tuple[float, float] | None) -> None:
                    if timing is not None:
                        journal.add({"key": message.key, "message": True, "seconds": timing[0], "spread": timing[1]})
                        bar.advance(len(operators) + messages.index(message) + 1, message.key)

                measure_messages(messages, done, between, settings.repeat, keep)
        lines, skipped = measured_lines(operators, journal)
        if not complete:
            left = sum(one.key not in journal.records for one in operators)
            skipped["time was up"] = left
        records = ((one, journal.records.get(one.key)) for one in messages)
        between_lines = _messages(
            setting,
            [
                (one.kind, (one.full_bytes, one.ranks, one.stride), record["seconds"], record["spread"])
                for one, record in records
                if record is not None
            ],
        )
    return (lines, between_lines), skipped, header


def _shared(between: Any, done: set[str] | None) -> set[str]:
    """Return on every rank the keys that rank 0 has measured."""
    import torch.distributed as dist

    box = [sorted(done) if done is not None else None]
    dist.broadcast_object_list(box, 0)
    return set(box[0] or ())


def _provenance(setting: "Setting[AnyContext]") -> dict[str, Any]:
    from datetime import date

    from forerun.search.files.release import VERSION

    context = setting.context
    return {
        "forerun": VERSION,
        "day": date.today().isoformat(),
        "model": context.model.name,
        "cluster": context.cluster.name,
    }


def _report(args: argparse.Namespace, profile: Any) -> int:
    if args.json:
        from forerun.search.files.documents import SCHEMA, dump_json, versions

        facts = {
            "file": str(args.out),
            "device": profile.device,
            "operators": len(profile.operators),
            "collectives": len(profile.collectives),
            "skipped": dict(profile.skipped),
        }
        print(dump_json({"schema": SCHEMA, **facts, "versions": versions()}))
        return 0
    print(f"{len(profile.operators)} operators and {len(profile.collectives)} messages of {profile.device} measured")
    for reason, count in sorted(profile.skipped.items(), key=lambda item: -item[1])[:8]:
        print(f"skipped {count}: {reason}")
    print(f"wrote {args.out}")
    return 0
