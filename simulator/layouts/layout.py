"""Assignment of the parts of a tensor to devices.

A tensor is cut in a grid of equal parts. A part may have *copies*, and it may be a *partial sum*, with one addend per
device. A layout is therefore a grid of devices [*degrees, partial, copies].
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.spaces.errors import RequestError
from forerun.spaces.operators import Cut, CutOperator, Operand

Devices = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Layout:
    """A grid of devices over the parts of a tensor.

    ``degrees``: parts along each dimension. ``devices``: numbers of the devices, the grid of the module's docstring in
    row-major order. ``partial``: addends of every part, 1 for a complete tensor.

    Raises:
        RequestError: the devices do not fill the grid, or one of them is named twice.
    """

    degrees: tuple[int, ...]
    devices: tuple[int, ...]
    partial: int = 1

    def __post_init__(self) -> None:
        cells = self.parts * self.partial
        if not self.devices or len(self.devices) % cells:
            raise RequestError(f"{len(self.devices)} devices do not have equally many copies of {cells} parts")
        if len(set(self.devices)) < len(self.devices):
            raise RequestError(f"a device has one part of a tensor, but one of {list(self.devices)} is named twice")

    @property
    def parts(self) -> int:
        """Parts of the tensor."""
        return math.prod(self.degrees)

    @property
    def copies(self) -> int:
        """Copies of every part (or of every addend)."""
        return len(self.devices) // (self.parts * self.partial)

    @property
    def grid(self) -> Devices:
        """Device numbers, [parts, partial, copies]."""
        return np.array(self.devices, dtype=np.int64).reshape(self.parts, self.partial, self.copies)

    def blocks(self, coarse: Sequence[int]) -> Devices:
        """Group device numbers by the parts of a coarser grid: [coarse parts, finer parts, partial, copies].

        Each of ``coarse`` divides the degree of its dimension.
        """
        inside = [fine // parts for fine, parts in zip(self.degrees, coarse, strict=True)]
        split = [size for pair in zip(coarse, inside, strict=True) for size in pair]
        grid = np.array(self.devices, dtype=np.int64).reshape(*split, self.partial, self.copies)
        count = len(coarse)
        order = [*range(0, 2 * count, 2), *range(1, 2 * count, 2), 2 * count, 2 * count + 1]
        return grid.transpose(order).reshape(math.prod(coarse), math.prod(inside), self.partial, self.copies)

    def sliced(self, count: int) -> "Layout":
        """Return the layout with one more dimension, in which every part is dealt in ``count`` slices to its copies.

        The slices need not divide the part's dimensions (frameworks flatten and pad). ZeRO uses such slices.

        Raises:
            RequestError: ``count`` does not divide the copies.
        """
        if self.copies % count:
            raise RequestError(f"{self.copies} copies cannot share {count} slices; use a divisor of {self.copies}")
        grid = self.grid.reshape(self.parts, self.partial, count, self.copies // count).transpose(0, 2, 1, 3)
        return Layout((*self.degrees, count), tuple(grid.reshape(-1).tolist()), self.partial)

    def part_of(self) -> dict[int, tuple[int, ...]]:
        """Return the part of the grid of each device, by dimension."""
        places = np.unravel_index(np.repeat(np.arange(self.parts), self.partial * self.copies), self.degrees or (1,))
        return dict(zip(self.devices, zip(*(axis.tolist() for axis in places), strict=True), strict=True))


def operand_layout(
    operator: CutOperator,
    operand: Operand,
    cuts: Sequence[Cut],
    devices: Sequence[int],
    *,
    summed: bool = False,
    averaged: bool = False,
) -> Layout:
    """Return the layout of an operand on ``devices`` when its operator is cut by ``cuts``, the outermost first.

    Along cuts that the operand does not follow it is copied or, if it is ``summed`` (the output, and the gradients of
    input and weight, which run over the same points), split into addends; copies whose gradients are averaged are also
    addends where ``averaged`` (gradients of weights).

    Raises:
        RequestError: the number of parts is not the number of devices.
    """
    count = math.prod(cut.degree for cut in cuts)
    if count != len(devices):
        shown = " * ".join(f"{cut.axis or 'copies'}={cut.degree}" for cut in cuts) or "one part"
        raise RequestError(f"{operator.name} is cut in {shown} = {count} parts, but is on {len(devices)} devices")
    by_dimension = [
        [place for place, cut in enumerate(cuts) if cut.axis == dimension.axis] for dimension in operand.dimensions
    ]
    shown_by = {place for places in by_dimension for place in places}
    rest = [place for place in range(len(cuts)) if place not in shown_by]
    added = [
        place for place in rest if summed and (cuts[place].axis is not None or (averaged and cuts[place].averaged))
    ]
    copied = [place for place in rest if place not in added]
    grid = np.array(devices, dtype=np.int64).reshape([cut.degree for cut in cuts])
    order = [*(place for places in by_dimension for place in places), *added, *copied]
    return Layout(
        tuple(math.prod(cuts[place].degree for place in places) for places in by_dimension),
        tuple(grid.transpose(order).reshape(-1).tolist()),
        math.prod(cuts[place].degree for place in added),
    )
