"""``forerun scale``: throughput of a data-parallel training against the number of workers."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from forerun.search.cli.flags.declaration import Answer
from forerun.search.cli.flags.parsing import refuse_unserved
from forerun.search.files.documents import dump_json
from forerun.search.scale.jobs import plan_jobs
from forerun.search.scale.request import ScaleRequest, Scaling, scale
from forerun.spaces.errors import unknown
from forerun.spaces.units import parse_bytes, parse_rate, parse_seconds, with_unit

if TYPE_CHECKING:
    from forerun.spaces.documents import Document

SERVER_SETTINGS = ("bandwidth", "placement", "policy", "window", "barrier", "colocated")
"""Settings of parameter servers in ``--servers``."""


def run(args: argparse.Namespace) -> int:
    """Predict and print.

    Raises:
        RequestError: the request is wrong.
    """
    if (document := _jobs_document(args.model)) is not None:
        return _run_jobs(args, document)
    scaling = scale(request_of(args))
    try:
        if args.trace is not None:
            _write_trace(scaling, args.trace)
    finally:  # the answer is printed even if a file cannot be written
        if args.json:
            print(dump_json(scaling.to_json()))
        else:
            from forerun.search.cli.console import open_console
            from forerun.search.cli.scale_view import print_scaling

            print_scaling(open_console(), scaling.to_json())
    return 0


def _jobs_document(model: str) -> "Document | None":
    """Read the jobs file named by MODEL; None for a model."""
    if not model.lower().endswith((".yaml", ".yml", ".json")):
        return None
    from forerun.search.scale.jobs import jobs_document

    return jobs_document(Path(model))


def _run_jobs(args: argparse.Namespace, document: "Document") -> int:
    """Divide nodes among the jobs of a document and print all throughputs.

    Raises:
        RequestError: the document is wrong, or a flag is for one model.
    """
    refuse_unserved(args, Answer.JOBS, "is for one model; jobs are described in their file")
    jobs = plan_jobs(document)
    if args.json:
        print(dump_json(jobs.to_json()))
        return 0
    from forerun.search.cli.console import open_console
    from forerun.search.cli.scale_view import print_jobs

    print_jobs(open_console(), jobs.to_json())
    return 0


def _write_trace(scaling: Scaling, path: Path) -> None:
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


def request_of(args: argparse.Namespace) -> ScaleRequest:
    """Return the request of the flags.

    Raises:
        RequestError: a quantity or a slow worker cannot be read.
    """
    if args.fidelity == "coarse":  # former name of the analytic model
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
    if args.bucket is not None:  # buckets of the user's size, including the first
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
