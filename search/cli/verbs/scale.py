"""``forerun scale``: throughput of a data-parallel training against its workers."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.search.cli.flags.declaration import JSON, Answer, Declared, Flag, Group, Many
from forerun.search.cli.flags.kinds import NUMBER, OUTPUT, SEED, SIGNED, STRAGGLER, SWITCH, TOKENS, WHOLE
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.search.cli.flags.shared import FORCE, MODEL

if TYPE_CHECKING:
    from forerun.search.scale.request import ScaleRequest, Scaling
    from forerun.spaces.documents import Document

SERVER_SETTINGS = ("bandwidth", "placement", "policy", "window", "barrier", "colocated")
"""Settings of parameter servers that ``--servers`` takes."""
EPILOG = """\
examples:
  forerun scale resnet50 --cluster dgx1-v100 --precision fp32 --batch 64 --workers 1..64
  forerun scale bert-large --cluster dgx-a100-40 --precision fp16 --batch 32 --seq-len 128
  forerun scale vgg16 --cluster dgx1-v100 --mode async-ps --shards 4 --bandwidth 10Gb/s --workers 1,2,4,8,16
  forerun scale profile.yaml --bandwidth 1Gb/s --mode sync-ps --backup-workers 1 --workers 8 --slow 3=2.0 --jitter 0.1

MODEL is a model of the catalogue (`forerun list models`) on the cluster's device, or a file:
  name: my network
  batch: 32                     # samples per worker and step
  update: 2ms                   # applying one gradient; host: all else
  layers:                       # in the order of the forward pass
    - {name: conv, parameters: 7MB, forward: 3ms, backward: 6ms}
    - {name: head, parameters: 400MB, forward: 1ms, backward: 2ms}

or a file of several jobs, which share the nodes so that their speed-ups are most together:
  cluster: dgx1-v100
  nodes: 8
  shared: 25GB/s                # optional: what all that leaves nodes shares
  goal: total                   # or least: maximise the smallest speed-up
  jobs: [{model: resnet50, batch: 32, weight: 2}, {model: vgg16, nodes: 1..4}]"""


FLAGS: Declared = (
    MODEL,
    FORCE,
    JSON,
    Flag("--trace", "timeline of the largest run for Perfetto (.json, .json.gz)", OUTPUT, "FILE"),
    Group(
        "what runs where",
        (
            Flag(
                "--cluster", "catalogue name or YAML file; a worker is one device", metavar="CLUSTER", configurable=True
            ),
            Flag("--workers", "8, 1,2,6 or 1..64 (doubling; default 1..32)", metavar="N"),
            Flag("--batch", "samples per worker and step (default 32)", WHOLE, "B"),
            Flag("--seq-len", "tokens per sequence of a transformer, like 8k", TOKENS, "S"),
            Flag("--precision", "tf32 where the device has it, else fp32 (transformers: bf16)", metavar="P"),
            Flag(
                "--framework",
                "pytorch-ddp (default), horovod, chainermn, ideal; transformers: as in search",
                metavar="F",
            ),
            Flag("--step-time", "measured step of one worker without exchange, like 180ms", metavar="T"),
            Flag("--bandwidth", "NIC of every worker, in place of the cluster's network", metavar="RATE"),
            Flag("--latency", "seconds before a message's first byte arrives (default 0)", metavar="T"),
        ),
    ),
    Group(
        "training mode",
        (
            Flag("--mode", "all-reduce (default), sync-ps or async-ps", metavar="MODE"),
            Flag("--shards", "parameter servers (default 1)", WHOLE, "S", default=1),
            Flag(
                "--servers",
                "how servers work, like policy=fifo,colocated: bandwidth=RATE (default: as a worker's), placement=even "
                "or whole (each layer on one server), policy=multiplexed, fifo, priority or windowed, window=SIZE "
                "(64KiB), barrier=step or layer, colocated (on the nodes of the first workers)",
                metavar="KEY[=VALUE],...",
            ),
            Flag("--no-overlap", "no overlap of transfers with computation", SWITCH),
            Flag("--bucket", "gradients per all-reduce (default: the framework's)", metavar="SIZE"),
            Flag("--backup-workers", "gradients to drop per step, slowest first", SIGNED, "N", default=0),
        ),
    ),
    Group(
        "unequal workers",
        (
            Flag("--slow", "worker W takes X times as long", STRAGGLER, "W=X", many=Many.REPEATED),
            Flag(
                "--jitter",
                "standard deviation of step times over their mean (default on a cluster: 0.02)",
                NUMBER,
                "CV",
            ),
            Flag("--seed", "random seed of the step times (default 0)", SEED, "N", default=0),
            Flag("--fidelity", "analytic, events or both (default where events are quick)", metavar="F"),
        ),
    ),
)


def run(args: argparse.Namespace) -> int:
    """Predict and print.

    Raises:
        RequestError: the request is wrong.
    """
    from forerun.search.files.documents import dump_json
    from forerun.search.scale.request import scale

    if (document := _jobs_document(args.model)) is not None:
        return _run_jobs(args, document)
    scaling = scale(request_of(args))
    try:
        if args.trace is not None:
            _write_trace(scaling, args.trace)
    finally:  # the answer is printed even where a file cannot be written
        if args.json:
            print(dump_json(scaling.to_json()))
        else:
            from forerun.search.cli.console import open_console
            from forerun.search.cli.scale_view import print_scaling

            print_scaling(open_console(), scaling.to_json())
    return 0


def _jobs_document(model: str) -> "Document | None":
    """Read the file of several jobs that MODEL names; None for a model."""
    if not model.lower().endswith((".yaml", ".yml", ".json")):
        return None
    from forerun.search.scale.jobs import jobs_document

    return jobs_document(Path(model))


def _run_jobs(args: argparse.Namespace, document: "Document") -> int:
    """Share nodes among the jobs of a document and print how fast all run.

    Raises:
        RequestError: the document is wrong, or a flag is for one model.
    """
    from forerun.search.files.documents import dump_json
    from forerun.search.scale.jobs import plan_jobs

    refuse_unserved(args, Answer.JOBS, "is for one model; jobs are described in their file")
    jobs = plan_jobs(document)
    if args.json:
        print(dump_json(jobs.to_json()))
        return 0
    from forerun.search.cli.console import open_console
    from forerun.search.cli.scale_view import print_jobs

    print_jobs(open_console(), jobs.to_json())
    return 0


def _write_trace(scaling: "Scaling", path: Path) -> None:
    """Write the timeline of the largest run.

    Raises:
        RequestError: the file cannot be written.
    """
    import sys

    from forerun.simulator.events.step.disturb import Disturbance
    from forerun.simulator.modes.events import mode_trace, write_mode_trace

    noise = Disturbance(seed=scaling.request.seed, jitter=scaling.jitter, slow=scaling.request.slow)
    trace = mode_trace(scaling.profile, scaling.mode, scaling.network, noise)
    write_mode_trace(trace, path)
    print(f"forerun: wrote {path}", file=sys.stderr)


def request_of(args: argparse.Namespace) -> "ScaleRequest":
    """Return the request of the flags.

    Raises:
        RequestError: a quantity or a slow worker cannot be read.
    """
    from forerun.search.scale.request import ScaleRequest
    from forerun.spaces.errors import unknown
    from forerun.spaces.units import parse_bytes, parse_rate, parse_seconds, with_unit

    if args.fidelity == "coarse":  # what the analytic model was called
        args.fidelity = "analytic"
    if args.fidelity not in (None, "analytic", "events", "both"):
        raise unknown("fidelity", args.fidelity, ("analytic", "events", "both"))

    def quantity(parse: Callable[[str | float], float], text: str | None) -> float | None:
        return None if text is None else with_unit(parse, text)

    settings: dict[str, Any] = {
        "shards": args.shards,
        "overlap": not args.no_overlap,
        "backup_workers": args.backup_workers,
    }
    servers = _servers(args.servers or "")
    bandwidth = servers.pop("bandwidth", None)
    if "window" in servers:
        settings["window_bytes"] = with_unit(parse_bytes, servers.pop("window"))
    settings |= servers
    if args.bucket is not None:  # of the user's size from the first one on
        settings |= {"bucket_bytes": with_unit(parse_bytes, args.bucket), "first_bucket_bytes": None}
    return ScaleRequest(
        model=args.model,
        cluster=args.cluster,
        workers=args.workers,
        mode=args.mode,
        batch=args.batch,
        seq_len=args.seq_len,
        precision=args.precision,
        framework=args.framework,
        step_time_s=quantity(parse_seconds, args.step_time),
        bandwidth_bytes_per_s=quantity(parse_rate, args.bandwidth),
        server_bandwidth_bytes_per_s=quantity(parse_rate, bandwidth),
        latency_s=quantity(parse_seconds, args.latency),
        slow=dict(args.slow),
        jitter=args.jitter,
        seed=args.seed,
        fidelity=args.fidelity,
        settings=settings,
    )


def _servers(text: str) -> dict[str, Any]:
    """Read the settings of parameter servers by name.

    Raises:
        RequestError: a setting is unknown, has no value, or is given twice.
    """
    from forerun.spaces.errors import RequestError, unknown

    settings: dict[str, Any] = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = word.partition("=")
        if name not in SERVER_SETTINGS:
            raise unknown("setting of servers", name, SERVER_SETTINGS)
        if name in settings:
            raise RequestError(f"--servers {name} is given twice")
        if (name == "colocated") == bool(value):
            raise RequestError(f"--servers takes colocated alone and other settings as NAME=VALUE, but got {word}")
        settings[name] = value or True
    return settings
