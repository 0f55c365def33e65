"""Flags that make replicas unequal: jitter, slow devices, every replica on its own."""

import argparse
from typing import TYPE_CHECKING

from forerun.search.cli.parser import positive, whole

if TYPE_CHECKING:
    from forerun.simulator.events import Disturbance


def add_disturbances(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group("unequal replicas (need --fidelity events)")
    group.add_argument(
        "--jitter", type=positive, metavar="X", help="standard deviation of the length of every pass over its mean"
    )
    group.add_argument(
        "--slow",
        action="append",
        default=[],
        type=straggler,
        metavar="DEVICE=X",
        help="straggler: passes of pipeline rank DEVICE (replica * pp + stage) take X times as long (repeatable)",
    )
    group.add_argument("--seed", type=whole, metavar="N", help="random seed of the jitter (default 0)")
    group.add_argument(
        "--every-replica", action="store_true", help="simulate all replicas one by one, even where all are equal"
    )


def disturbance_of(args: argparse.Namespace) -> "Disturbance | None":
    """Return what the flags ask for, None where they ask for nothing.

    Raises:
        RequestError: they ask for something without events, or for a seed without jitter.
    """
    from forerun.simulator.events import Disturbance
    from forerun.spaces.errors import RequestError

    if args.seed is not None and args.jitter is None:
        raise RequestError("--seed is that of the jitter; add --jitter")
    if args.jitter is None and not args.slow and not args.every_replica:
        return None
    if args.fidelity == "analytic" or (args.fidelity is None and args.tree is None):
        raise RequestError("--jitter, --slow and --every-replica need --fidelity events: closed forms know one replica")
    return Disturbance(
        seed=args.seed or 0, jitter=args.jitter or 0.0, slow=dict(args.slow), every_replica=bool(args.every_replica)
    )


def straggler(text: str) -> tuple[int, float]:
    """Read who is slow and how much: ``3=1.2`` (``3:1.2`` too)."""
    number, equals, factor = text.replace(":", "=", 1).partition("=")
    if not equals or not number.isdecimal() or len(number) > 9:
        raise argparse.ArgumentTypeError(f"must be a number and a factor, as in 3=1.2, but got {text!r}")
    return int(number), positive(factor)
