"""``forerun record``: run a training and keep traces of some of its steps."""

import argparse
import sys
from dataclasses import asdict

from forerun.search.files.documents import dump_json
from forerun.search.recording import Recording, parse_steps, record
from forerun.spaces.errors import RequestError


def run(args: argparse.Namespace) -> int:
    """Run the command and print the recording."""
    if not args.command:
        raise RequestError("name the command that trains after --: forerun record --out traces -- torchrun train.py")
    first, last = parse_steps(args.steps)
    print(
        f"forerun: recording steps {first} to {last} into {args.out}; what follows is the command's own output",
        file=sys.stderr,
        flush=True,
    )
    recording = record(args.command, args.out, first=first, last=last, output=sys.stderr if args.json else None)
    if args.json:
        document = asdict(recording) | {"folder": str(recording.folder), "overhead": recording.overhead}
        print(dump_json(document))
    else:
        _print(recording)
    if not any(rank.trace for rank in recording.ranks):
        raise RequestError(_why_nothing(recording))
    return 0


def _print(recording: Recording) -> None:
    """Print the recordings of the ranks and the cost of recording."""
    from forerun.spaces.units import format_seconds

    kept = [rank for rank in recording.ranks if rank.trace]
    if not kept:
        return
    slowest = max(kept, key=lambda rank: rank.step_s or 0.0)
    overhead = recording.overhead
    print(
        f"recorded steps {recording.first} to {recording.last} of {len(kept)} rank{'s' * (len(kept) > 1)} in "
        f"{recording.folder}: {format_seconds(slowest.step_s or 0.0)} per step"
        + (f", {overhead:+.1%} against the steps before" if overhead is not None else "")
    )
    if recording.exit_code:
        print(f"the command ended with exit code {recording.exit_code}; its traces are complete")
    print(f"next: forerun replay {recording.folder}")


def _why_nothing(recording: Recording) -> str:
    """Return the reason for missing traces, and the needed change."""
    ended = f"the command ended with exit code {recording.exit_code}" if recording.exit_code else "the command ended"
    if not recording.ranks:
        return f"{ended} and no process of it stepped an optimizer of PyTorch: nothing was recorded"
    steps = max(rank.steps for rank in recording.ranks)
    return f"{ended} after {steps} optimizer steps, before step {recording.last}: nothing was recorded; lower --steps"
