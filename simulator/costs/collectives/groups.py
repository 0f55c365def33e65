"""Placement of a group's members: members per group of each level, and crossings of each level by a ring."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from forerun.spaces.clusters.cluster import Level

Floats = NDArray[np.float64]


def members_per_level(levels: tuple[Level, ...], ranks: ArrayLike, stride: ArrayLike = 1) -> tuple[Floats, ...]:
    """Return the members of one group of ``ranks`` devices per group of each level, innermost level first.

    ``stride`` is the distance in device numbering between consecutive members (tp innermost has stride 1, dp outside
    tp=8 has stride 8); ``ranks`` and ``stride`` broadcast. The outermost level always has all ``ranks``: a group is
    never larger than the cluster, and the size of a cluster may still be open.
    """
    count, step = np.broadcast_arrays(np.asarray(ranks, dtype=np.float64), np.asarray(stride, dtype=np.float64))
    inner = tuple(np.clip(np.floor(level.size / step), 1.0, count) for level in levels[:-1])
    return (*inner, count)


def block_stride(span: Floats) -> Floats:
    """Return the spacing of two members at the ends of a block of ``span`` devices, for its levels.

    With this spacing the members share exactly the levels that contain the block. The members' distance (at most span -
    1) does not give this: devices 0 and 6 share a node of eight, but a second pair at this distance would not fit into
    the node.
    """
    return np.asarray(np.maximum(span / 2.0, 1.0), dtype=np.float64)


def stride_of(levels: tuple[Level, ...], members: Sequence[int]) -> float:
    """Return the spacing of one group of device numbers; see ``strides_of``."""
    return float(strides_of(levels, [members])[0])


def strides_of(levels: tuple[Level, ...], members_GR: ArrayLike) -> Floats:
    """Return the spacings with as many members per group of each level as the given groups have, shape G.

    ``members_GR``: device numbers of G groups of R each. A spacing is the mean distance, corrected where this gives
    other numbers (the outermost level counts most). Where groups of a level have different numbers of members, the
    smallest counts: rings have as many channels as the node with the fewest members.
    """
    members = np.asarray(members_GR, dtype=np.int64)
    count = members.shape[1]
    span = members.max(axis=1) - members.min(axis=1)
    stride: Floats = np.maximum(span // max(count - 1, 1), 1).astype(np.float64)
    place, many = np.arange(len(members))[:, None], int(members.max(initial=0)) + 1
    for level in levels[:-1]:
        inner, inside = np.unique(place * many + members // level.size, return_counts=True)
        fewest = np.minimum.reduceat(inside, np.searchsorted(inner, place[:, 0] * many))
        assumed = np.minimum(np.maximum(level.size // stride, 1), count)
        stride = np.where(assumed == fewest, stride, level.size / fewest)
    return stride


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One step of a group from a level's sub-groups to the level's group; all fields broadcast together.

    ``inside``: members in one sub-group; ``joined``: sub-groups that this level connects (1 where the group does not
    use the level); ``ring_steps``: steps of one ring over all members on this level (they sum to ranks - 1).
    """

    inside: Floats
    joined: Floats
    ring_steps: Floats

    @property
    def used(self) -> NDArray[np.bool_]:
        """Mask of groups with members in more than one sub-group of this level."""
        return self.joined > 1.0


def spans(levels: tuple[Level, ...], ranks: Any, stride: Any) -> tuple[Span, ...]:
    """Return the spans of a group over all levels, innermost first."""
    members = members_per_level(levels, ranks, stride)
    inside = np.ones_like(members[0])
    spans_of_levels = []
    for here in members:
        ring_steps = members[-1] / inside - members[-1] / here
        spans_of_levels.append(Span(inside=inside, joined=here / inside, ring_steps=ring_steps))
        inside = here
    return tuple(spans_of_levels)
