"""Communication between layouts: the transfers that turn one layout of a tensor into another.

A *write* is between the layout in which a producer leaves a tensor and the layout in which it is kept; a *read* is
between the kept layout and the layout of a consumer. Writes and reads are the same problem, and the rules are tried in
order (after Proteus, arXiv 2306.02267, section 4.2):

1. partial sums, same parts, copies wanted on the same devices: all-reduce;
2. partial sums, wanted in finer parts on the same devices: reduce-scatter (followed by an all-reduce where finer parts
   are wanted in several copies);
3. every device has all parts that it needs: nothing;
4. finer parts than wanted, on the same devices: all-gather;
5. the wanted number of parts but cut along other dimensions, on the same devices: all-to-all;
6. all on one device, wanted in parts: scatter; parts, wanted on one device: gather;
7. otherwise point-to-point transfers of all intersecting parts.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from forerun.simulator.layouts.layout import Devices, Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """Groups of devices that communicate at the same time.

    ``kind``: "all_reduce", "reduce_scatter", "all_gather", "all_to_all", "scatter", "gather", "point_to_point" or
    "halo". ``groups``: the members of each (scatter and gather: the root first; point-to-point and halo: sender and
    receiver). ``elements`` of each group: of the whole tensor for reductions, gathers and scatters; of each member
    before it for all-to-all; of the message for point-to-point.
    """

    kind: str
    groups: tuple[tuple[int, ...], ...]
    elements: tuple[float, ...]

    @property
    def total(self) -> float:
        """Elements of all groups."""
        return math.fsum(self.elements)


def infer(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    """Return the transfers, in order, that bring a tensor of ``shape`` elements from one layout to the other.

    The two layouts have one dimension for each of the shape's; ``wanted`` has no partial sums.
    """
    if made.partial > 1:
        steps = _all_reduce(made, wanted, shape) or _reduce_scatter(made, wanted, shape)
        return steps or _point_to_point(made, wanted, shape)
    if _at_hand(made, wanted):
        return ()
    for rule in (_all_gather, _all_to_all, _scatter, _gather):
        steps = rule(made, wanted, shape)
        if steps:
            return steps
    return _point_to_point(made, wanted, shape)


def halo(layout: Layout, shape: Sequence[float], widths: Sequence[int]) -> tuple[Transfer, ...]:
    """Return the halo exchange of a tensor of ``shape`` between neighbouring parts.

    Each part needs ``widths`` elements beyond its borders (of both neighbours together) along each dimension.
    """
    part = math.prod(shape) / layout.parts
    numbers = layout.grid[:, 0, :].reshape(*layout.degrees, layout.copies)
    pairs: list[tuple[int, int]] = []
    elements: list[float] = []
    for axis, (degree, width) in enumerate(zip(layout.degrees, widths, strict=True)):
        if degree == 1 or not width:
            continue
        low = numbers.take(range(degree - 1), axis=axis).reshape(-1).tolist()
        high = numbers.take(range(1, degree), axis=axis).reshape(-1).tolist()
        slab = part * degree / shape[axis]
        for one, other in zip(low, high, strict=True):
            pairs += [(one, other), (other, one)]
            elements += [slab * math.ceil(width / 2), slab * (width // 2)]
    kept = [place for place, size in enumerate(elements) if size]
    if not kept:
        return ()
    return (
        Transfer(
            kind="halo",
            groups=tuple(pairs[place] for place in kept),
            elements=tuple(elements[place] for place in kept),
        ),
    )


def fuse(transfers: Iterable[Transfer]) -> tuple[Transfer, ...]:
    """Merge scatters from several members of one group into one all-to-all (the same for gathers).

    Tables on one device each, read by samples on all devices, are an example.
    """
    rest: list[Transfer] = []
    rooted: dict[tuple[str, frozenset[int]], dict[int, float]] = {}
    for transfer in transfers:
        if transfer.kind not in ("scatter", "gather"):
            rest.append(transfer)
            continue
        for group, size in zip(transfer.groups, transfer.elements, strict=True):
            roots = rooted.setdefault((transfer.kind, frozenset(group)), {})
            roots[group[0]] = roots.get(group[0], 0.0) + size
    for (kind, members), roots in rooted.items():
        if len(roots) > 1:
            group = tuple(sorted(members))
            # Every member waits for the one that sends most.
            rest.append(Transfer(kind="all_to_all", groups=(group,), elements=(max(roots.values()),)))
        else:
            groups = tuple((root, *sorted(members - {root})) for root in roots)
            rest.append(Transfer(kind=kind, groups=groups, elements=tuple(roots.values())))
    return tuple(rest)


def _same(first: Devices, second: Devices) -> bool:
    """Check that rows of device numbers contain the same devices, row by row."""
    if first.shape[0] != second.shape[0]:
        return False
    one, other = first.reshape(first.shape[0], -1), second.reshape(second.shape[0], -1)
    return one.shape == other.shape and bool(np.array_equal(np.sort(one, axis=1), np.sort(other, axis=1)))


def _finer(fine: Sequence[int], coarse: Sequence[int]) -> bool:
    return len(fine) == len(coarse) and all(a % b == 0 for a, b in zip(fine, coarse, strict=True))


def _collective(kind: str, groups: Devices, elements: float) -> Transfer:
    """Return a transfer of equal groups, one per row."""
    rows = tuple(tuple(row) for row in groups.tolist())
    return Transfer(kind=kind, groups=rows, elements=(elements,) * len(rows))


def _all_reduce(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    if made.degrees != wanted.degrees or not _same(made.grid, wanted.grid):
        return ()
    groups = made.grid.transpose(0, 2, 1).reshape(-1, made.partial)
    return (_collective("all_reduce", groups, math.prod(shape) / made.parts),)


def _reduce_scatter(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    if not _finer(wanted.degrees, made.degrees) or wanted.degrees == made.degrees:
        return ()
    finer = wanted.blocks(made.degrees)[:, :, 0, :]
    count = finer.shape[1]
    if not _same(made.grid, finer) or made.partial % count:
        return ()
    several = made.partial // count
    part = math.prod(shape) / made.parts
    scattered, reduced = [], []
    for addends, targets in zip(made.grid, finer, strict=True):
        place = {int(device): number for number, row in enumerate(targets) for device in row}
        for members in addends.T.tolist():
            by_target: list[list[int]] = [[] for _ in range(count)]
            for device in members:
                by_target[place[device]].append(device)
            if any(len(same) != several for same in by_target):
                return ()
            scattered += [list(group) for group in zip(*by_target, strict=True)]
            reduced += by_target
    steps = [_collective("reduce_scatter", np.array(scattered), part)]
    if several > 1:
        steps.append(_collective("all_reduce", np.array(reduced), part / count))
    return tuple(steps)


def _at_hand(made: Layout, wanted: Layout) -> bool:
    """Check that every device that needs a part has all of it."""
    parts, needed = made.part_of(), wanted.part_of()
    for device, part in needed.items():
        block = parts.get(device)
        if block is None:
            return False
        for i, a, j, b in zip(block, made.degrees, part, wanted.degrees, strict=True):
            if not (i * b <= j * a and (j + 1) * a <= (i + 1) * b):
                return False
    return True


def _all_gather(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    if not _finer(made.degrees, wanted.degrees) or made.degrees == wanted.degrees:
        return ()
    finer = made.blocks(wanted.degrees)[:, :, 0, :]
    if not _same(finer, wanted.grid):
        return ()
    groups = finer.transpose(0, 2, 1).reshape(-1, finer.shape[1])
    return (_collective("all_gather", groups, math.prod(shape) / wanted.parts),)


def _all_to_all(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    common = [math.gcd(a, b) for a, b in zip(made.degrees, wanted.degrees, strict=True)]
    before = [a // c for a, c in zip(made.degrees, common, strict=True)]
    after = [b // c for b, c in zip(wanted.degrees, common, strict=True)]
    crossing = any(a > 1 and b > 1 for a, b in zip(before, after, strict=True))
    if crossing or math.prod(before) != math.prod(after) or made.copies != wanted.copies:
        return ()
    one, other = made.blocks(common)[:, :, 0, :], wanted.blocks(common)[:, :, 0, :]
    for old, new in zip(one, other, strict=True):
        if {frozenset(row) for row in old.T.tolist()} != {frozenset(row) for row in new.T.tolist()}:
            return ()
    groups = one.transpose(0, 2, 1).reshape(-1, one.shape[1])
    return (_collective("all_to_all", groups, math.prod(shape) / made.parts),)


def _scatter(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    if len(made.devices) > 1 or wanted.parts == 1 or wanted.copies > 1:
        return ()
    root = made.devices[0]
    group = (root, *(device for device in wanted.devices if device != root))
    return (Transfer(kind="scatter", groups=(group,), elements=(float(math.prod(shape)),)),)


def _gather(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    if len(wanted.devices) > 1 or made.parts == 1 or made.copies > 1:
        return ()
    steps = _scatter(wanted, made, shape)
    return tuple(replace(transfer, kind="gather") for transfer in steps)


def _point_to_point(made: Layout, wanted: Layout, shape: Sequence[float]) -> tuple[Transfer, ...]:
    """Send every device the missing parts of its slice: from the nearest copy, or every addend of a partial sum."""
    units = [math.lcm(a, b) for a, b in zip(made.degrees, wanted.degrees, strict=True)]
    low_made, high_made = _borders(made, units)
    low_wanted, high_wanted = _borders(wanted, units)
    parts = made.part_of()
    number = {part: place for place, part in enumerate(np.ndindex(*made.degrees))}
    unit_elements = np.array(shape, dtype=np.float64) / units
    pairs: list[tuple[int, int]] = []
    elements: list[float] = []
    for place, row in enumerate(wanted.grid[:, 0, :].tolist()):
        overlap = np.minimum(high_made, high_wanted[place]) - np.maximum(low_made, low_wanted[place])
        volume = np.prod(np.clip(overlap, 0, None) * unit_elements, axis=1)
        overlapping = np.flatnonzero(volume).tolist()
        for target in row:
            local = number[parts[target]] if target in parts and made.partial == 1 else -1
            for part in overlapping:
                if part == local:
                    continue
                for addend in made.grid[part].tolist():
                    source = min(addend, key=lambda device: (abs(device - target), device))
                    if source != target:
                        pairs.append((source, target))
                        elements.append(float(volume[part]))
    if not pairs:
        return ()
    return (Transfer(kind="point_to_point", groups=tuple(pairs), elements=tuple(elements)),)


def _borders(layout: Layout, units: Sequence[int]) -> tuple[Devices, Devices]:
    """Return the start and end of every part along each dimension, [parts, dimensions], in 1/``units`` of it."""
    places = np.array(list(np.ndindex(*layout.degrees)), dtype=np.int64).reshape(layout.parts, -1)
    width = np.array(units, dtype=np.int64) // np.array(layout.degrees, dtype=np.int64)
    return places * width, (places + 1) * width
