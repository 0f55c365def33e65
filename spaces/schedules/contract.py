"""The contract of a pipeline schedule: the program of every pipeline rank, and its consequences.

The compiler calls ``programs`` once per graph, before any time is known, and gets one program per pipeline rank: its
``Action`` objects in the order of its compute stream. A program is generated again for every reader, so a step of many
microbatches is never stored. A device starts an action only after all earlier ones have started. Rules for programs:

- every microbatch passes every virtual stage once forward and once backward, the latter either as one ``BACKWARD`` or
  as ``INPUT_GRADIENT`` followed by ``WEIGHT_GRADIENT``; all passes of one microbatch through one virtual stage are in
  the program of one device;
- in every program the forward pass of a (microbatch, virtual stage) precedes its backward pass;
- an interwoven action is a forward pass followed by a backward pass;
- programs and data dependencies together (virtual stage v needs v - 1 forward and v + 1 backward) have no cycle.

``tests/simulator/test_schedules_contract.py`` checks every schedule.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.errors import RequestError
from forerun.spaces.schedules.stage_times import Floats, StageTimes

IntArray = NDArray[np.int64]
Count = TypeVar("Count", int, IntArray)


class Pass(IntEnum):
    """Kinds of computation of an action."""

    FORWARD = 0
    BACKWARD = 1
    """Gradients of inputs and weights together."""
    INPUT_GRADIENT = 2
    WEIGHT_GRADIENT = 3


class Action(NamedTuple):
    """One pass of one microbatch through one virtual stage (numbered in model order).

    ``interwoven``: it runs kernel by kernel with the next action of its program: both need their inputs at the start of
    the first, and have their results at the end of the second.
    """

    kind: Pass
    microbatch: int
    chunk: int
    interwoven: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineShape:
    """A pipeline of ``pp`` ranks with ``vpp`` virtual stages each, and the microbatches of one step.

    ``ahead``: additional warm-up forward passes of every rank of 1F1B, interleaved or not.

    Raises:
        RequestError: a number is below one.
    """

    pp: int
    vpp: int
    microbatches: int
    ahead: int = 0

    def __post_init__(self) -> None:
        for name in ("pp", "vpp", "microbatches"):
            if getattr(self, name) < 1:
                raise RequestError(f"{name} must be at least 1, but got {name}={getattr(self, name)}")

    @property
    def chunks(self) -> int:
        """Number of virtual stages of the model."""
        return self.pp * self.vpp

    def require(self, schedule: str, holds: bool, law: str) -> None:
        """Refuse a shape for which ``schedule`` has no order.

        Raises:
            RequestError: ``holds`` is false.
        """
        if not holds:
            got = f"pp={self.pp}, vpp={self.vpp}, microbatches={self.microbatches}"
            raise RequestError(f"schedule {schedule} needs {law}, but got {got}")


@dataclass(frozen=True, slots=True)
class Program:
    """The program of one pipeline rank: ``write`` is called with the ``arguments`` for every reader."""

    write: Callable[..., Iterator[Action]]
    arguments: tuple[object, ...]

    def __iter__(self) -> Iterator[Action]:
        return self.write(*self.arguments)


Programs = Sequence[Iterable[Action]]
"""One program per pipeline rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """Further causes of in-flight microbatches under 1F1B.

    Causes are additional warm-up forward passes (``PipelineShape.ahead``), and the placement of the ``vocabulary`` in
    the framework.
    """

    ahead: float = 0.0
    vocabulary: str = "ends"


class PipelineSchedule(ABC):
    """A pipeline schedule: its order, the legal shapes, and the costs that depend only on the order.

    Each subclass is one file, with one instance in ``catalogue.SCHEDULES``. Defaults are those of a schedule of
    undivided stages (1F1B, GPipe). Arrays have one entry per candidate or pipeline, unless a shape is given.
    """

    number: int
    """Number on the axis ``schedule``; a smaller one ranks first among equal candidates."""
    name: str
    """Name in requests and reports."""
    spelling: Mapping[str, str] = MappingProxyType({})
    """Names in the files of each framework."""

    fewest_virtual: int = 1
    """Smallest number of virtual stages per pipeline rank."""
    most_virtual: float = 1
    """Largest number of virtual stages per pipeline rank."""
    ranks_multiple: int = 1
    """Divisor of the legal numbers of pipeline ranks."""
    shape_law: str = ""
    """Its law of ranks and virtual stages, after "needs"; empty: one virtual stage on every rank."""
    microbatch_law: str = ""
    """Its law of microbatches, after "needs"; empty: any number is legal."""

    whole_stages: bool = False
    """Whether ranks have one stage each, so that stages may differ, and the closed form covers the differences."""
    recomputes_some: bool = True
    """Whether (virtual) stages may recompute some of their layers."""
    splits_backward: bool = False
    """Whether gradients of inputs and of weights are separate passes."""
    in_rounds: bool = False
    """Whether virtual stages of a rank alternate, each for a group of as many microbatches as ranks."""
    weights_last: bool = False
    """Whether every rank ends with weight gradients, without waiting for other ranks between them."""
    forwards_first: bool = False
    """Whether all forward passes run before all backward passes."""
    turns_back: bool = False
    """Whether the second virtual stages of the ranks are in reverse order, as in a V."""
    streams: int = 1
    """Number of directions in which microbatches enter; each rank has one stage of every direction."""
    rarity: int = 0
    """Rarity in trainings: 0 common, 1 published runs only, 2 only by its authors."""

    @abstractmethod
    def programs(self, shape: PipelineShape) -> Programs:
        """Return the program of every rank.

        Raises:
            RequestError: it has no order for this shape.
        """

    @abstractmethod
    def bubble_s(self, stages: StageTimes, pp: Floats, vpp: Floats, microbatches: Floats) -> Floats:
        """Return the seconds [R, S] that each run's slowest stage waits if the step ends with it (free transfers)."""

    @abstractmethod
    def in_flight(
        self, stage: Floats, pp: Floats, vpp: Floats, microbatches: Floats, *, uneven: Floats | float, memory: Keeping
    ) -> Floats:
        """Return a rank's peak in-flight microbatches, in units of all its layers.

        ``uneven``: factor of unequal virtual stages.
        """

    def exposed_p2p(self, pp: Floats, vpp: Floats, microbatches: Floats, *, overlap: bool) -> Floats:
        """Return the exposed transfers of a step with equal stages, if transfers are much shorter than passes;
        ``overlap``: transfers overlap with passes.

        Filling and draining cross every border once in each direction. Blocking transfers separate passes: two
        exchanges per microbatch and virtual stage (with two stages, both directions transfer at once). Derived with the
        event engine; a test compares the two.
        """
        crossings = 2 * (pp - 1)
        if overlap:
            return crossings
        return np.maximum(crossings, np.where(pp == 2, microbatches + 1, 2 * microbatches + 2 * pp - 5))

    def steady_s(self, stages: StageTimes, pp: Floats) -> tuple[Floats, Floats] | None:
        """Return the pace of a microbatch by its way through all stages and back, and the stages that set the pace.

        In the steady state ranks wait for transfers that do not block: with pp microbatches in flight, one arrives per
        mean of the passes over all stages, each with two transfers, or at the pace of the slowest stages with the
        transfers between them. None where ranks do not wait for replies.
        """
        return None

    def spare_s(self, stages: StageTimes, pp: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Return the excess of an end stage's passes over all other stages, forward and backward, and where it counts.

        During this excess no stage waits for a blocking transfer of the end stage.
        """
        none = np.zeros_like(pp)
        return none, none, np.zeros(pp.shape, dtype=bool)

    def unpaired_share(self, pp: Floats, microbatches: Floats) -> Floats:
        """Return the share of a rank's passes without a simultaneous pass in the other direction.

        Only forward passes run while the pipeline fills, and only backward passes while it drains: the time of ``pp``
        microbatches, interleaved or not.
        """
        return np.minimum(pp / microbatches, 1.0)

    def illegal_microbatches(self, pp: IntArray, microbatches: IntArray) -> NDArray[np.bool_] | None:
        """Mark the rows that break the schedule's law of microbatches; None if any number is legal."""
        return None

    def virtual_stages(self, pp: Count, vpp: Count) -> Count:
        """Return the number of parts of the layers."""
        return pp * vpp

    def chunks_of_rank(self, pp: int, vpp: int, rank: int) -> tuple[int, ...]:
        """Return the virtual stages of one rank, in model order."""
        return tuple(range(rank, pp * vpp, pp))
