"""Iteration space of an operator, and the part of every tensor that one of its points reads or writes.

Every operator of every model has one form: a list of axes, and operands indexed by some of them. The cuts of the axes
determine the layout of every operand over devices, the partial sums, and therefore the communication. (The tags of axes
follow Proteus, arXiv 2306.02267, section 4.)
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from forerun.spaces.divisors import use_one_of
from forerun.spaces.errors import RequestError, unknown


class AxisKind(StrEnum):
    """Meaning of a cut along an axis."""

    BATCH = "batch"
    """Samples or tokens: every part is independent, and has partial sums of the gradients of all weights."""
    PARALLEL = "parallel"
    """An axis of the output: every part has its piece of it."""
    REDUCE = "reduce"
    """A sum: every part has a partial sum of the entire output."""
    OPAQUE = "opaque"
    """An axis that cannot be cut."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis of an iteration space."""

    name: str
    size: int
    """Number of points."""
    kind: AxisKind
    even: bool = True
    """Whether its parts must be equal. Otherwise the last may be smaller (7 rows over 4 devices are 2, 2, 2 and 1), and
    a device is costed with the largest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One dimension of an operand, with the axis that it follows."""

    axis: str
    """Name of the axis."""
    step: int = 1
    """Elements per point of the axis (a stride)."""
    halo: int = 0
    """Elements that a part of the axis needs from both its neighbours together. A kernel wider than its stride needs a
    halo."""
    extent: int | None = None
    """Number of elements if not axis times step (a convolution without padding)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A tensor that an operator reads or writes."""

    name: str
    dimensions: tuple[Dimension, ...]
    """Dimensions, one for each of its axes, outermost first."""
    element_bytes: float | None = None
    """Bytes per element; None: by the training precision."""
    count: int | None = None
    """Number of elements if not the product of the dimensions (a weight with a window and a bias). Elements are cut
    like the dimensions."""

    @property
    def axes(self) -> tuple[str, ...]:
        """Names of the axes of its dimensions."""
        return tuple(dimension.axis for dimension in self.dimensions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """An axis divided into parts of one device each."""

    axis: str | None
    """Name of the axis; None: equal copies of the work."""
    degree: int
    """Number of parts or copies."""
    averaged: bool = False
    """Whether the copies sum their gradients like parts of a batch. A data-parallel wrapper around all devices does
    so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutOperator:
    """One operator over its iteration space.

    Raises:
        RequestError: two axes have one name, an operand follows an unknown axis, the output follows a summed axis or
            lacks another one, or a size is below one.
    """

    name: str
    kind: str
    """Name in requests."""
    form: str
    """Rule of its cost. "contraction" (two operations per point of the iteration space, on matrix units), "attention"
    (the same, by an attention kernel), or the name of a memory-bound operator
    (``forerun.simulator.costs.stream_operators``)."""
    axes: tuple[Axis, ...]
    """Axes of the iteration space."""
    inputs: tuple[Operand, ...]
    weights: tuple[Operand, ...] = ()
    output: Operand
    differentiable: bool = True
    """Whether its inputs have gradients (ids of a lookup have none)."""
    multiply_adds: int | None = None
    """Multiply-adds, if not one per point of the iteration space."""

    def __post_init__(self) -> None:
        known = {axis.name: axis for axis in self.axes}
        if len(known) < len(self.axes):
            raise RequestError(f"operator {self.name}: every axis has its own name, but got {list(known)}")
        for axis in self.axes:
            if axis.size < 1:
                raise RequestError(f"operator {self.name}: axis {axis.name} must be at least 1, but got {axis.size}")
        for operand in (*self.inputs, *self.weights, self.output):
            for name in operand.axes:
                if name not in known:
                    raise unknown(f"axis of operand {operand.name} of operator {self.name}", name, known)
        for axis in self.axes:
            inside = axis.name in self.output.axes
            if inside and axis.kind is AxisKind.REDUCE:
                raise RequestError(
                    f"operator {self.name}: its output cannot have the axis {axis.name}, which is summed"
                )
            if not inside and axis.kind in (AxisKind.BATCH, AxisKind.PARALLEL):
                raise RequestError(f"operator {self.name}: its output must have the {axis.kind} axis {axis.name}")

    def axis(self, name: str) -> Axis:
        """Return an axis.

        Raises:
            RequestError: the axis does not exist.
        """
        for axis in self.axes:
            if axis.name == name:
                return axis
        raise unknown(f"axis of operator {self.name}", name, [axis.name for axis in self.axes])

    def shape(self, operand: Operand) -> tuple[int, ...]:
        """Elements of an operand along each of its dimensions."""
        return tuple(self.axis(d.axis).size * d.step if d.extent is None else d.extent for d in operand.dimensions)

    def elements(self, operand: Operand) -> int:
        """Elements of an operand."""
        return math.prod(self.shape(operand)) if operand.count is None else operand.count

    @property
    def weight_elements(self) -> int:
        """Elements of all weights."""
        return sum(self.elements(weight) for weight in self.weights)

    @property
    def points(self) -> int:
        """Points of the iteration space."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def flops(self) -> float:
        """Operations of the forward pass on matrix units (a multiply-add is two); 0 for memory-bound operators."""
        if self.form not in ("contraction", "attention"):
            return 0.0
        return 2.0 * (self.points if self.multiply_adds is None else self.multiply_adds)


def check_cuts(operator: CutOperator, cuts: Sequence[Cut]) -> None:
    """Refuse illegal cuts of an operator.

    Raises:
        RequestError: an axis is unknown or opaque, does not divide, or its parts are narrower than their halo.
    """
    degrees: dict[str, int] = {}
    for cut in cuts:
        if cut.degree < 1:
            raise RequestError(f"a cut has at least 1 part, but got {cut.axis}={cut.degree}")
        if cut.axis is not None:
            degrees[cut.axis] = degrees.get(cut.axis, 1) * cut.degree
    for name, degree in degrees.items():
        axis = operator.axis(name)
        if degree > 1 and axis.kind is AxisKind.OPAQUE:
            free = [other.name for other in operator.axes if other.kind is not AxisKind.OPAQUE]
            raise RequestError(f"axis {name} of {operator.name} cannot be cut; {' or '.join(free) or 'none'} can")
        if axis.even and axis.size % degree:
            raise RequestError(
                f"axis {name} of {operator.name} has {axis.size} points, which {degree} does not divide; "
                f"{use_one_of(axis.size, most=12)}"
            )
        if degree > axis.size:
            raise RequestError(
                f"axis {name} of {operator.name} has {axis.size} points, which cannot be cut in {degree} parts; "
                f"use at most {axis.size}"
            )
        for operand in operator.inputs:
            for dimension in operand.dimensions:
                whole_extent = axis.size * dimension.step if dimension.extent is None else dimension.extent
                part, lent = whole_extent // degree, -(-dimension.halo // 2)
                if dimension.axis == name and degree > 1 and lent > part:
                    raise RequestError(
                        f"a part of axis {name} of {operator.name} must be as wide as the halo it lends a neighbour, "
                        f"but {part} elements lend {lent}; cut it less often"
                    )


SPATIAL = ("width", "height", "depth")
"""Names of spatial axes, innermost first: 1-D operators have a width, 2-D ones also a height, 3-D ones a depth."""


def spatial_axes(count: int) -> tuple[str, ...]:
    """Return the names of ``count`` spatial axes, outermost first.

    >>> spatial_axes(2)
    ('height', 'width')

    Raises:
        RequestError: the count is not one to three.
    """
    if not 1 <= count <= len(SPATIAL):
        raise RequestError(f"an operator has 1 to {len(SPATIAL)} spatial axes, but got {count}")
    return SPATIAL[:count][::-1]


def follow(axes: Iterable[str]) -> tuple[Dimension, ...]:
    """Return plain dimensions along some axes."""
    return tuple(Dimension(axis=axis) for axis in axes)
