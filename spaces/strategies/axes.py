"""The axes of a flat strategy: their names, their order and their named choices.

The order is the canonical one: the first axis is the slowest digit of a candidate's index, and candidates of equal cost
rank by this index. Axes read by many laws are first, so that illegal prefixes are cut early.
"""

from enum import IntEnum, IntFlag
from itertools import combinations
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.schedules.catalogue import NAMES, SCHEDULES


class Schedule(IntEnum):
    """Order of a pipeline stage's forward and backward passes, by the numbers of ``spaces/schedules``."""

    ONE_F_ONE_B = 0
    """Megatron's non-interleaved 1F1B (PipeDream-Flush, arXiv 2104.04473, section 2.2)."""
    INTERLEAVED = 1
    """1F1B over several virtual stages per device (arXiv 2104.04473, section 2.2)."""
    GPIPE = 2
    """All forward passes, followed by all backward passes (arXiv 1811.06965)."""
    ZB_H1 = 3
    """Zero-bubble H1: weight gradients fill the drain, memory as 1F1B (arXiv 2401.10241)."""
    ZB_V = 4
    """Zero-bubble V: two chunks per device laid out as a V (arXiv 2405.15362)."""
    DUALPIPE = 5
    """Bidirectional pipeline with two copies of the parameters (DeepSeek-V3, arXiv 2412.19437)."""

    @classmethod
    def _missing_(cls, value: object) -> "Schedule | None":
        """Return a member for a registered schedule without a name in this enumeration."""
        if not isinstance(value, int) or value not in SCHEDULES:
            return None
        member = int.__new__(cls, value)
        member._name_, member._value_ = SCHEDULES[value].name, value
        return member


class Recompute(IntFlag):
    """Modules recomputed in the backward pass instead of being kept.

    Choices are nothing, entire layers, or some modules of every layer, with Megatron-LM's names.
    """

    NONE = 0
    SELECTIVE = 1
    """The attention core (arXiv 2205.05198); spelled core_attn together with other modules."""
    FULL = 2
    """Every layer from its input."""
    LAYERNORM = 4
    """Norms before the blocks, whose outputs are discarded."""
    MOE_ACT = 8
    """The activation of routed experts, whose output is discarded."""
    MLA_UP_PROJ = 16
    """Up-projections of latent attention and the rotary embedding: queries, keys and values are discarded."""
    MLP = 32
    """The dense feed-forward."""
    MOE = 64
    """Router, dispatch, experts and combine."""
    SHARED_EXPERTS = 128
    """The shared experts."""


MODULES: dict[str, Recompute] = {
    "core_attn": Recompute.SELECTIVE,
    "layernorm": Recompute.LAYERNORM,
    "moe_act": Recompute.MOE_ACT,
    "mla_up_proj": Recompute.MLA_UP_PROJ,
    "mlp": Recompute.MLP,
    "moe": Recompute.MOE,
    "shared_experts": Recompute.SHARED_EXPERTS,
}
"""Modules that can be recomputed separately, in the order of output."""


class Split(IntEnum):
    """Rules that assign layers to pipeline stages."""

    EVEN = 0
    """Equal numbers on every (virtual) stage."""
    BALANCED = 1
    """Numbers that differ by at most one; the last stage, which also has the head, gets the fewest."""
    LIGHT_LAST = 2
    """The head counts as one layer of the last stage."""
    LIGHT_ENDS = 3
    """Embedding and head count as one layer of the first and of the last stage."""
    BY_COST = 4
    """A stage ends with the layer that exceeds its share of the matrix work, including the head (nanotron)."""
    LIGHT_MTP = 5
    """Head, multi-token-prediction block and its head count as a layer each, on the last stage."""


class Software(IntFlag):
    """Switches of the software that a strategy turns on (``forerun.spaces.strategies.software``)."""

    NONE = 0
    TP_COMM_OVERLAP = 1
    """Tensor-parallel collectives overlap the matrix products."""
    MOE_OVERLAP = 2
    """Expert traffic of one microbatch overlaps the computation of another."""
    DEEPEP = 4
    """A token is sent once to every node with experts for it."""


CHOSEN = Software.MOE_OVERLAP
"""Switches that cost memory: candidates have each on or off (axis ``switches``). The others cost no memory and slow no
step, so a search turns them on wherever they have an effect."""

SOFTWARE: dict[str, Software] = {
    "tp-comm-overlap": Software.TP_COMM_OVERLAP,
    "moe-overlap": Software.MOE_OVERLAP,
    "dispatcher=deepep": Software.DEEPEP,
}
"""Spellings of the switches of a strategy, as for ``--with``, in the order of output."""


class Placement(IntEnum):
    """Order of the degrees in device numbering, innermost first."""

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
    "switches",
    "zero",
    "shard",
    "sp",
    "recompute",
    "recompute_layers",
    "placement",
)
"""All axes in canonical order. ``dp`` is not one of them: it follows from ``gpus = dp * tp * pp * cp``."""


def _recomputes() -> dict[int, str]:
    """Return the spelling of every choice of ``recompute``."""
    spellings = {0: "none", 1: "selective", 2: "full"}
    for count in range(1, len(MODULES) + 1):
        for names in combinations(MODULES, count):
            spellings.setdefault(sum(MODULES[name] for name in names), "+".join(names))
    return spellings


def _switches() -> dict[int, str]:
    """Return the spelling of every choice of ``switches``."""
    names = [name for name, flag in SOFTWARE.items() if flag & CHOSEN]
    sets = [some for count in range(1, len(names) + 1) for some in combinations(names, count)]
    return {0: "none"} | {int(sum(SOFTWARE[name] for name in some)): "+".join(some) for some in sets}


NAMED: dict[str, type[IntEnum] | type[IntFlag]] = {
    "schedule": Schedule,
    "recompute": Recompute,
    "split": Split,
    "placement": Placement,
    "switches": Software,
}
"""Axes with named choices."""

SPELLING: dict[str, dict[int, str]] = {
    "schedule": NAMES,
    "recompute": _recomputes(),
    "split": {0: "even", 1: "balanced", 2: "light-last", 3: "light-ends", 4: "by-cost", 5: "light-mtp"},
    "placement": {0: "tp-cp-ep-dp-pp", 1: "tp-cp-ep-pp-dp"},
    "switches": _switches(),
}
"""Spellings of named choices, for input and output."""


def schedules_in(files: str) -> dict[Schedule, str]:
    """Return the spellings of schedules in one kind of file, by ``PipelineSchedule.spelling``."""
    return {Schedule(number): one.spelling[files] for number, one in SCHEDULES.items() if files in one.spelling}


ALL_LAYERS = 0
"""Choice of ``recompute_layers``: full recompute covers all layers, each from its input. A positive choice is a number
of first layers of every (virtual) stage; negative ones are ``in_groups``."""
ALL_REPLICAS = 0
"""Choice of ``shard``: states are sharded over all replicas (written ``shard=all``, or omitted)."""


Choices = TypeVar("Choices", int, NDArray[np.int64])
"""Choices of ``recompute_layers``: one, or a column of them."""


def in_groups(layers: int) -> int:
    """Return the choice of ``recompute_layers`` that recomputes all layers in groups of ``layers``.

    Each group is recomputed from the input of its first layer (Megatron's uniform method).
    """
    return ALL_LAYERS if layers == 1 else -layers


def first_layers(choice: Choices) -> Choices:
    """Return the number of first layers of every (virtual) stage that are recomputed; 0 for all layers."""
    return choice * (choice > 0)


def group_size(choice: Choices) -> Choices:
    """Return the number of layers recomputed at once; 1 where each layer is recomputed from its input."""
    return 1 - (choice + 1) * (choice < 0)
