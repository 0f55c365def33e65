"""The axes of a flat strategy: their names, their order and their named choices.

The order is the canonical one: the first axis is the slowest digit of a candidate's index, and candidates that cost
the same rank by that index. Axes that many legality rules read stand first, so that illegal prefixes are cut early.
"""

from enum import IntEnum


class Schedule(IntEnum):
    """Order in which a pipeline stage runs forward and backward passes of microbatches."""

    ONE_F_ONE_B = 0
    """Megatron's non-interleaved 1F1B (PipeDream-Flush, arXiv 2104.04473, section 2.2)."""
    INTERLEAVED = 1
    """1F1B over several virtual stages per device (arXiv 2104.04473, section 2.2)."""
    GPIPE = 2
    """All forwards, then all backwards (arXiv 1811.06965)."""
    ZB_H1 = 3
    """Zero-bubble H1: weight gradients fill the drain, memory as 1F1B (arXiv 2401.10241)."""
    ZB_V = 4
    """Zero-bubble V: two chunks per device laid out as a V (arXiv 2405.15362)."""
    DUALPIPE = 5
    """Bidirectional pipeline with two copies of the parameters (DeepSeek-V3, arXiv 2412.19437)."""


class Recompute(IntEnum):
    """What is computed again in the backward pass instead of being kept."""

    NONE = 0
    SELECTIVE = 1
    """The attention core only (arXiv 2205.05198)."""
    FULL = 2
    """Every layer from its input."""


class Split(IntEnum):
    """How layers are dealt to pipeline stages."""

    EVEN = 0
    """The same number on every (virtual) stage."""
    BALANCED = 1
    """Numbers differ by one where the layers do not divide; the last stage, which also has the head, gets fewest."""
    LIGHT_LAST = 2
    """The head counts as one layer of the last stage."""
    LIGHT_ENDS = 3
    """Embedding and head count as one layer of the first and of the last stage."""
    BY_COST = 4
    """A stage is closed by the layer that takes it past its share of the matrix work, head included (nanotron)."""


class Placement(IntEnum):
    """Which degrees are neighbours in device numbering, innermost first."""

    TP_CP_EP_DP_PP = 0
    """Replicas close together, stages far apart (Megatron's default)."""
    TP_CP_EP_PP_DP = 1
    """Stages close together, replicas far apart (``--use-tp-pp-dp-mapping``)."""


AXES = (
    "gpus",
    "pp",
    "tp",
    "cp",
    "ep",
    "etp",
    "vpp",
    "schedule",
    "split",
    "mbs",
    "zero",
    "shard",
    "sp",
    "recompute",
    "placement",
)
"""All axes in canonical order. ``dp`` is not one: it follows from ``gpus = dp * tp * pp * cp``."""

NAMED: dict[str, type[IntEnum]] = {
    "schedule": Schedule,
    "recompute": Recompute,
    "split": Split,
    "placement": Placement,
}
"""Axes whose choices have names."""

SPELLING: dict[str, dict[int, str]] = {
    "schedule": {0: "1f1b", 1: "interleaved", 2: "gpipe", 3: "zb-h1", 4: "zb-v", 5: "dualpipe"},
    "recompute": {0: "none", 1: "selective", 2: "full"},
    "split": {0: "even", 1: "balanced", 2: "light-last", 3: "light-ends", 4: "by-cost"},
    "placement": {0: "tp-cp-ep-dp-pp", 1: "tp-cp-ep-pp-dp"},
}
"""How named choices are written by users and in every output."""

ALL_REPLICAS = 0
"""Choice of ``shard``: sharded states are shared out over all replicas (users write ``shard=all``, or nothing)."""
