"""``forerun sweep``: many searches as one job."""

import argparse
import sys

from forerun.search.cli.flags.declaration import JSON, Declared, Flag
from forerun.search.cli.flags.kinds import PATH, SWITCH, WHOLE
from forerun.search.cli.flags.shared import CALIBRATION, PROFILE, WORKER_FLAGS, workers_of

EPILOG = """\
examples:
  forerun sweep plan.yaml --out runs/plan
  forerun sweep plan.yaml --out runs/plan --resume --workers ray

plan.yaml contains lists; every combination is searched:
  models: [llama3-8b, llama3-70b]
  clusters: [dgx-h100, dgx-a100-80]
  workloads: [{global_batch: 512, seq_len: 8192}]
  budgets: [{gpus: 64}, {gpus: 128..512}]
  frameworks: [megatron-lm]      # optional, as are objective, top and axes
  per_stage: [layers]            # optional, as are sampler, seeds, evaluations
Workloads may also have tokens, budgets train_within and train_usd. objective: throughput,gpus gives the Pareto front.

Finished searches are on disk at once, searches of over 20 s in parts; after a crash --resume continues.
DIR gets leaderboard.json, leaderboard.csv (all rows), pieces.csv (one line per search), pieces.jsonl and
parts.jsonl (records) and sweep.json (inputs).
Exit code 1 if a search failed, 3 if none found anything that fits."""


FLAGS: Declared = (
    Flag("plan", "YAML with models, clusters, workloads, budgets", PATH, "FILE", required=True),
    Flag("--out", "run directory", PATH, "DIR", required=True),
    Flag("--resume", "continue the sweep in DIR, or start it if DIR is empty", SWITCH),
    Flag("--show", "rows to print (default 20)", WHOLE, "K", default=20),
    PROFILE,
    CALIBRATION,
    WORKER_FLAGS,
    JSON,
)


def run(args: argparse.Namespace) -> int:
    """Search what is missing and print the leaderboard across everything."""
    from forerun.search.cli.sweep_view import SweepView, print_sweep
    from forerun.search.files.documents import dump_json
    from forerun.search.request.interrupts import EndedEarly
    from forerun.search.sweep import read_plan, run_sweep

    workers, plan = workers_of(args), read_plan(args.plan, calibration=args.calibration, profile=args.profile)
    stop: EndedEarly | None = None
    with SweepView(sys.stderr) as view:
        try:
            result = run_sweep(plan, args.out, resume=args.resume, workers=workers, watch=view)
        except EndedEarly as interrupted:
            stop, result = interrupted, interrupted.found
    if stop is not None and not result.document["searches"]:
        print(f"forerun: {result.remarks[-1]}", file=sys.stderr)
        raise stop
    if args.json:
        print(dump_json(result.document))
    else:
        print_sweep(result, show=args.show)
    for search in result.document["searches"]:
        if search["status"] == "failed":
            print(f"forerun: search {search['search']} failed: {search['message']}", file=sys.stderr)
    if stop is not None:
        raise stop
    print(f"forerun: wrote {args.out}", file=sys.stderr)
    return exit_code(result.counts)


def exit_code(counts: dict[str, int]) -> int:
    """Return 1 where a search failed, else 0 where one found something, else 3 or (none made sense) 2."""
    if counts["failed"]:
        return 1
    if counts["done"]:
        return 0
    return 3 if counts["infeasible"] else 2
