"""Flags that make replicas unequal: jitter, slow devices, every replica simulated."""

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from forerun.simulator.events import Disturbance


def disturbance_of(args: argparse.Namespace) -> "Disturbance | None":
    """Return the disturbance of the flags, None without any.

    Raises:
        RequestError: the flags need ``--fidelity events``, or a seed is given without jitter.
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
