"""Ways to use some of the devices for one stage of a pipeline: degrees, micro-batch and sharding."""

from collections.abc import Iterator
from itertools import product

import numpy as np

from forerun.spaces.divisors import divisors
from forerun.spaces.strategies import (
    COLUMNS,
    CUSTOM_SPLIT,
    RULES,
    Recompute,
    Schedule,
    Strategy,
    StrategySpace,
    table_of,
)

SPREAD = 4
"""Largest factor between the devices of a stage and its even share, in both directions."""
RANK_TOKENS = 8192
"""Least tokens of a context rank: with fewer, attention does not hide the exchange of keys and values, and stages have
other uses of their devices."""


def cuts_of(space: StrategySpace, gpus: int, pp: int, microbatches: int) -> list[Strategy]:
    """Return the legal cuts for one of ``pp`` stages on some of ``gpus`` devices, fewest devices first.

    Cuts are flat strategies with the degrees and micro-batch of the stage, without recompute.

    ``microbatches``: microbatches of a step, equal on all stages; replicas of a stage share each one.
    """
    cuts = list(_candidates(space, gpus, pp, space.context.workload.global_batch // microbatches))
    if not cuts:
        return []
    table = table_of(cuts)
    columns = {axis: table.column(axis) for axis in COLUMNS} | {"split": np.full(len(table), CUSTOM_SPLIT)}
    legal = ~np.any([rule.illegal(columns, space.context) for rule in RULES], axis=0)
    return sorted(
        (one for one, keeps in zip(cuts, legal, strict=True) if keeps), key=lambda one: (devices_of(one), str(one))
    )


def devices_of(cut: Strategy) -> int:
    """Return the devices of a stage."""
    return cut.dp * cut.tp * cut.cp


def layout_of(cut: Strategy) -> tuple[int, ...]:
    """Return the key of the transfers to and from a stage."""
    return (cut.dp, cut.cp, cut.tp, int(cut.sp))


def recompute_kinds(space: StrategySpace) -> tuple[int, ...]:
    """Return the kinds of recompute of a stage that the framework has: none, of the attention core, or of all."""
    return tuple(kind for kind in space.choices["recompute"] if kind <= Recompute.FULL) or (int(Recompute.NONE),)


def _candidates(space: StrategySpace, gpus: int, pp: int, sequences: int) -> Iterator[Strategy]:
    """Yield cuts that share ``sequences`` of a microbatch, some of them illegal."""
    choices = space.choices
    widest = max(space.context.cluster.scale_up_size, min(choices["tp"]))
    tokens = space.context.workload.seq_len
    shares = [cp for cp in choices["cp"] if cp == 1 or tokens >= cp * RANK_TOKENS] or choices["cp"][:1]
    even = gpus / pp
    for tp, cp in product((tp for tp in choices["tp"] if tp <= widest), shares):
        for dp in divisors(sequences):
            if (
                not even / SPREAD <= tp * cp * dp <= min(even * SPREAD, gpus - pp + 1)
                or sequences // dp not in choices["mbs"]
            ):
                continue
            for ep in (ep for ep in choices["ep"] if ep <= tp * cp * dp):
                for zero in _zero_stages(choices["zero"], dp * cp):
                    yield Strategy(
                        dp=dp,
                        tp=tp,
                        pp=pp,
                        cp=cp,
                        ep=ep,
                        etp=1,
                        mbs=sequences // dp,
                        zero=zero,
                        sp=tp > 1 and bool(max(choices["sp"])),
                        schedule=Schedule.ONE_F_ONE_B,
                    )


def _zero_stages(choices: tuple[int, ...], replicas: int) -> tuple[int, ...]:
    """Return the useful ZeRO stages: sharding optimizer states costs nothing, sharding parameters frees the most
    memory.
    """
    if replicas == 1:
        return (0,)
    light = [zero for zero in choices if zero <= 1]
    return (*light[-1:], *(zero for zero in choices if zero == 3 or (zero == 2 and not light)))
