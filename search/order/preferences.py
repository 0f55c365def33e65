"""Preferences of practice, which decide between strategies within the prediction error.

Predicted gaps of two per cent are reversed in a third of measured pairs (``answer/explain/why.py``).
Within such gaps practice decides: each preference adds a share of the step.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from forerun.simulator.score_table import Floats
from forerun.spaces.schedules.catalogue import schedule_of
from forerun.spaces.strategies import (
    Context,
    Placement,
    Recompute,
    Software,
    Split,
    Strategy,
    StrategyTable,
    table_of,
)
from forerun.spaces.strategies.racks import SPANS, domains
from forerun.spaces.strategies.table import IntArray

TOKENS_PER_RANK = 8192
"""Tokens of a sequence that practice keeps on one rank: Llama 3 trained with cp 1 at 8,192 tokens and with cp 16 at
131,072 (arXiv 2407.21783, table 4)."""
LEAST_PER_RANK = 4096
"""Least tokens of a sequence on one rank in measured runs (except test suites) and in NeMo's recipes for Llama 3 70B
and 405B (cp 2 at 8,192 tokens). Every halving below it counts as ``UNSEEN`` further halvings."""
UNSEEN = 5
UNCOMMON = (7, 11, 13)
"""Prime factors of numbers of virtual stages that are absent in 138 measured interleaved pipelines."""
RARE = 0.05
"""Share of a step for schedules absent in 1,064 measured pipelines and, except DeepSeek's, in published trainings.
Their predicted gain is unchecked, so it must exceed the median prediction error (5 %); twice that for a schedule used
only by its authors."""

Amount = Callable[[Context, StrategyTable], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """A preference of practice.

    ``amount`` returns the violation of each of N candidates (0: none), from its choices on some ``axes``; every unit
    adds ``share`` of the step. ``words`` describe the violation.
    """

    words: str
    share: float
    axes: tuple[str, ...]
    amount: Amount


def _domain(context: Context, table: StrategyTable) -> IntArray:
    """Return the number of ranks of N candidates that certainly share the fast fabric, or a node."""
    cluster = context.cluster
    if all(axis in table.codes for axis in SPANS):
        ranks = domains(cluster, {axis: table.column(axis) for axis in SPANS})
    else:
        ranks = np.full(len(table), cluster.scale_up_size, dtype=np.int64)
    return np.maximum(ranks, cluster.devices_per_node)


def _no_sp(context: Context, table: StrategyTable) -> Floats:
    if context.framework.legality.sequence_parallel != "optional":
        return np.zeros(len(table))
    return np.asarray((table.column("tp") > 1) & (table.column("sp") == 0), dtype=np.float64)


def _short(context: Context, table: StrategyTable) -> Floats:
    cp = table.column("cp")
    below, far_below = (np.log2(tokens * cp / context.workload.seq_len) for tokens in (TOKENS_PER_RANK, LEAST_PER_RANK))
    return np.where(cp > 1, np.maximum(below, 0.0) + UNSEEN * np.maximum(far_below, 0.0), 0.0)


def _cut_batches(context: Context, table: StrategyTable) -> Floats:
    return np.asarray((table.column("cp") > 1) & (table.column("mbs") > 1), dtype=np.float64)


def _wide_tp(context: Context, table: StrategyTable) -> Floats:
    return np.maximum(np.log2(table.column("tp") / _domain(context, table)), 0.0)


def _uncommon_tp(context: Context, table: StrategyTable) -> Floats:
    tp = table.column("tp")
    return np.asarray((tp & (tp - 1)) != 0, dtype=np.float64)


def _odd_stages(context: Context, table: StrategyTable) -> Floats:
    pp = table.column("pp")
    return np.asarray((pp > 1) & (pp % 2 == 1), dtype=np.float64)


def _wide_ep(context: Context, table: StrategyTable) -> Floats:
    return np.asarray(table.column("ep") * table.column("etp") > _domain(context, table), dtype=np.float64)


def _wide_domains(context: Context, table: StrategyTable) -> Floats:
    across = table.column("ep") * table.column("etp") / _domain(context, table)
    rack = context.cluster.scale_up_size > context.cluster.devices_per_node
    return np.maximum(np.log2(across), 0.0) + (across > 1) if rack else np.zeros(len(table))


def _uncommon_vpp(context: Context, table: StrategyTable) -> Floats:
    return np.array([any(vpp % prime == 0 for prime in UNCOMMON) for vpp in table.choices["vpp"]], dtype=np.float64)[
        table.codes["vpp"]
    ]


def _research(context: Context, table: StrategyTable) -> Floats:
    rarity = [schedule_of(int(number)).rarity for number in table.choices["schedule"]]
    return np.array(rarity, dtype=np.float64)[table.codes["schedule"]]


def _whole_states(context: Context, table: StrategyTable) -> Floats:
    """Mark strategies with unsharded states that the framework could shard: equal step, up to twice the memory."""
    if not any(context.framework.legality.zero_stages):
        return np.zeros(len(table))
    replicas = table.column("gpus") / (table.column("tp") * table.column("pp"))
    return np.asarray((table.column("zero") == 0) & (replicas > 1), dtype=np.float64)


def _beside(context: Context, table: StrategyTable) -> Floats:
    on = (table.choices["switches"] & Software.MOE_OVERLAP) != 0
    return np.asarray(on, dtype=np.float64)[table.codes["switches"]]


def _doublings(axis: str) -> Amount:
    return lambda context, table: np.log2(table.choices[axis])[table.codes[axis]]


def _other_than(axis: str, choice: int) -> Amount:
    return lambda context, table: np.asarray(table.choices[axis] != choice, dtype=np.float64)[table.codes[axis]]


PREFERENCES = (
    Preference(words="tp without sequence parallelism", share=0.08, axes=("tp", "sp"), amount=_no_sp),
    Preference(words=f"cp below {TOKENS_PER_RANK:,} tokens per rank", share=0.03, axes=("cp",), amount=_short),
    Preference(words="cp with several sequences per micro-batch", share=0.08, axes=("cp", "mbs"), amount=_cut_batches),
    Preference(words="tp across nodes", share=0.1, axes=("tp",), amount=_wide_tp),
    Preference(words="tp that is no power of two", share=0.08, axes=("tp",), amount=_uncommon_tp),
    Preference(words="ep across nodes", share=0.02, axes=("ep", "etp"), amount=_wide_ep),
    Preference(words="ep across racks", share=0.05, axes=("ep", "etp"), amount=_wide_domains),
    Preference(words="experts cut by etp", share=0.01, axes=("etp",), amount=_doublings("etp")),
    Preference(
        words="optimizer states on every replica",
        share=0.0045,
        axes=("zero", "gpus", "tp", "pp"),
        amount=_whole_states,
    ),
    Preference(words="more pipeline stages", share=0.003, axes=("pp",), amount=_doublings("pp")),
    Preference(words="odd number of stages", share=0.01, axes=("pp",), amount=_odd_stages),
    Preference(words="more virtual stages", share=0.01, axes=("vpp",), amount=_doublings("vpp")),
    Preference(words="an uncommon number of virtual stages", share=0.01, axes=("vpp",), amount=_uncommon_vpp),
    Preference(words="a schedule that few have trained with", share=RARE, axes=("schedule",), amount=_research),
    Preference(
        words="tokens under computation, which one pair of runs checked", share=0.04, axes=("switches",), amount=_beside
    ),
    Preference(
        words="scattered placement",
        share=0.005,
        axes=("placement",),
        amount=_other_than("placement", Placement.TP_CP_EP_DP_PP),
    ),
    Preference(words="recompute", share=0.002, axes=("recompute",), amount=_other_than("recompute", Recompute.NONE)),
    Preference(words="uneven stages", share=0.002, axes=("split",), amount=_other_than("split", Split.EVEN)),
)
"""All preferences: at most a few per cent together, gaps that a quarter of measured pairs reverses."""


def dislikes(context: Context, table: StrategyTable) -> Iterator[Floats]:
    """Yield the penalty of N candidates for every preference, as a share of the step.

    Preferences on axes that the table lacks are omitted.
    """
    for preference in PREFERENCES:
        if all(axis in table.codes for axis in preference.axes):
            yield preference.share * preference.amount(context, table)


def against(context: Context, strategy: Strategy, other: Strategy) -> Mapping[str, float]:
    """Describe the preferences that a strategy violates more than another, with their penalties as shares of a step."""
    table = table_of([strategy, other])
    amounts = {one.words: one.share * np.diff(one.amount(context, table)[::-1])[0] for one in PREFERENCES}
    return {preference: float(more) for preference, more in amounts.items() if more > 0}
