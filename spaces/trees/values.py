"""The strategy tree: a nested configuration of how a model is trained (after Proteus, arXiv 2306.02267, section 4.1).

A node configures the computation, memory and schedule of some layers of a model. Settings that a node omits are its
parent's; a node itself configures layers that its children do not name. A node with devices is a stage of the pipeline.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Recompute, Schedule

KeyPath = tuple[str | int, ...]
Setting = TypeVar("Setting", "Computation", "Memory", "Timing")

LAYOUTS = ("output", "output_gradient", "input")
"""Tensors of operators that may be cut differently from their operator."""
HOST_TENSORS = ("activations", "optimizer", "parameters")
"""Tensors that may be kept in host memory."""
ZERO_TENSORS = ("optimizer", "gradients", "parameters")
"""Tensors that ZeRO (arXiv 1910.02054) shards: stage 1 the first, stage 2 the first two, stage 3 all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Computation:
    """Division of a layer's work over the devices of a stage, degrees as in ``Strategy``; None: the parent's."""

    dp: int | None = None
    tp: int | None = None
    cp: int | None = None
    ep: int | None = None
    etp: int | None = None
    sp: bool | None = None
    cut: Mapping[str, int] | None = None
    """Parts by axis of each operator, for operator graphs ({"batch": 2, "out": 4}, the innermost last)."""
    deal: bool | None = None
    """Whether every layer is undivided on one device of the stage, with the layers distributed over all devices.
    Embedding tables need it."""
    on: tuple[int, ...] | None = None
    """Devices of the stage for the operators, in operator graphs; () for all of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Placement of a layer's tensors in memory; None: the parent's."""

    optimizer: bool | None = None
    """Whether replicas shard the optimizer states instead of copying them."""
    gradients: bool | None = None
    """Whether replicas shard the gradients."""
    parameters: bool | None = None
    """Whether replicas shard the parameters."""
    shard: int | None = None
    """Neighbouring replicas that share one set of slices (0: all)."""
    host: frozenset[str] | None = None
    """Tensors of ``HOST_TENSORS`` in host memory."""
    output: Mapping[str, int] | None = None
    """Parts by axis of an operator's output, for operator graphs, if not the operator's."""
    output_gradient: Mapping[str, int] | None = None
    """Parts by axis of its gradient, if not the output's."""
    input: Mapping[str, int] | None = None
    """Parts by axis of the model's input before the operator reads it."""

    @classmethod
    def zero(cls, stage: int) -> "Memory":
        """Return the sharding of a ZeRO stage."""
        return cls(optimizer=stage >= 1, gradients=stage >= 2, parameters=stage >= 3)

    def stage(self, place: KeyPath) -> int:
        """Return the ZeRO stage that shards these tensors.

        Raises
        ------
        TreeError
            There is none: gradients are sharded with the optimizer states, parameters with both.
        """
        sharded = [bool(getattr(self, name)) for name in ZERO_TENSORS]
        stage = sum(sharded)
        if sharded != [number < stage for number in range(len(sharded))]:
            missing = ZERO_TENSORS[sharded.index(False)]
            last = [name for name, cut in zip(ZERO_TENSORS, sharded, strict=True) if cut][-1]
            raise TreeError(
                (*place, "memory"), f"{last} cannot be sharded where {missing} is replicated; shard {missing} too"
            )
        return stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Schedule of a layer's passes; None: the parent's."""

    order: Schedule | None = None
    """Schedule of the step, only at the root."""
    microbatches: int | None = None
    """Microbatches of the step, only at the root."""
    in_flight: tuple[int, ...] | None = None
    """Limit of in-flight microbatches: one number for a stage or, at the root, one for each pipeline rank."""
    recompute: Recompute | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node."""

    name: str = ""
    layers: tuple[str, ...] | None = None
    """Names, or ranges like "0-15"; None for all layers of the parent."""
    modules: tuple[str, ...] | None = None
    """Modules of its layers that it configures (``forerun.spaces.models.model.MODULES``); None: complete layers."""
    devices: tuple[int, ...] = ()
    """Device numbers in the cluster, with tensor ranks adjacent; () where the node is not a stage."""
    compute: Computation = field(default_factory=Computation)
    memory: Memory = field(default_factory=Memory)
    schedule: Timing = field(default_factory=Timing)
    children: tuple["Node", ...] = ()
    place: KeyPath = ()
    """Keys that lead to it in its document."""


class TreeError(RequestError):
    """A tree is invalid at one node; ``place``: keys that lead to the error; ``law``: the broken law."""

    def __init__(self, place: KeyPath, law: str) -> None:
        self.place, self.law = place, law
        super().__init__(f"{'.'.join(map(str, ('tree', *place)))}: {law}")


def over(own: Setting, parent: Setting) -> Setting:
    """Return a node's settings, completed by its parent's."""
    values = {entry.name: value for entry in fields(own) if (value := getattr(own, entry.name)) is not None}
    return replace(parent, **values) if values else parent
