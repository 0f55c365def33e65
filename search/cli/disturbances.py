"""Flags that make replicas unequal: jitter, slow devices, every replica on its own."""

import argparse
from typing import TYPE_CHECKING

from forerun.search.cli.flags.declaration import TRANSFORMERS, Flag, Group, Many
from forerun.search.cli.flags.kinds import POSITIVE, SEED, STRAGGLER, SWITCH

if TYPE_CHECKING:
    from forerun.simulator.events import Disturbance


DISTURBANCES = Group(
    "unequal replicas (need --fidelity events)",
    (
        Flag(
            "--jitter",
            "standard deviation of the length of every pass over its mean",
            POSITIVE,
            "X",
            serves=TRANSFORMERS,
        ),
        Flag(
            "--slow",
            "straggler: passes of pipeline rank DEVICE (replica * pp + stage) take X times as long (repeatable)",
            STRAGGLER,
            "DEVICE=X",
            many=Many.REPEATED,
            serves=TRANSFORMERS,
        ),
        Flag("--seed", "random seed of the jitter (default 0)", SEED, "N", serves=TRANSFORMERS),
        Flag(
            "--every-replica", "simulate all replicas one by one, even where all are equal", SWITCH, serves=TRANSFORMERS
        ),
    ),
)


def disturbance_of(args: argparse.Namespace) -> "Disturbance | None":
    """Return the disturbance that the flags describe, None without any.

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
