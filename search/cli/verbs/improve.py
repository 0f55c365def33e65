"""``forerun improve``: changes that make a run, or a model on a cluster, faster."""

import argparse
import sys
import time
from dataclasses import replace

from forerun.search.cli.flags.declaration import Answer
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.search.files.documents import dump_json
from forerun.search.improve import ImproveSource, with_fused_costs, write_plan
from forerun.search.improve.summary import summary
from forerun.simulator.improve import RULES, group_plan, improve, what_ifs
from forerun.simulator.improve.run_questions import free_messages_s, run_questions
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.units import parse_bytes, with_unit


def run(args: argparse.Namespace) -> int:
    """Find the step, search improvements and what-if cases, and print.

    Raises:
        RequestError: the request is wrong, or a file cannot be written.
        InfeasibleError: nothing fits into the memory.
    """
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
    found = improve(source.step, rule, base=base, fuse=not args.no_fuse, limit_bytes=limit)
    asked = what_ifs(source.step, found, fuse=not args.no_fuse)
    ordered = source.analysis is not None and all(source.analysis.replay.graph.graph.ordered)
    answers = run_questions(source.analysis) if ordered and source.analysis is not None else ()
    free_s = free_messages_s(answers)
    if free_s is not None:  # only the graph of all ranks has the waits caused by messages
        found = replace(found, bound_s=free_s)
    elapsed_s = time.perf_counter() - begin_s
    try:
        if args.out is not None:
            write_plan(found, args.out)
            print(f"forerun: wrote {args.out}", file=sys.stderr)
    finally:  # the answer is printed even if a file cannot be written
        document = summary(source, found, asked, answers, elapsed_s)
        if args.json:
            print(dump_json(document))
        else:
            from forerun.search.cli.console import open_console
            from forerun.search.cli.improve_view import print_improvement

            print_improvement(open_console(), document)
    return 0


def _source(args: argparse.Namespace) -> ImproveSource:
    """Return the step to improve, of a model or of traces.

    Raises:
        RequestError: neither or both of a model and traces are given, or a fact of the training is missing.
    """
    from forerun.search.cli.reading import ReadingBar
    from forerun.search.improve import model_source, trace_source
    from forerun.simulator.replay import find_traces
    from forerun.spaces.errors import RequestError
    from forerun.spaces.units import parse_rate, with_unit

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
