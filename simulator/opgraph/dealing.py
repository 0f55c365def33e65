"""Distribution of whole layers to devices: largest first, each to the device with the fewest weights so far."""

from collections.abc import Sequence
from functools import lru_cache

from forerun.spaces.opgraph import GraphModel, Operator


def dealt(sizes: Sequence[float], devices: int) -> list[int]:
    """Return the device, of ``devices``, for each layer.

    >>> dealt([3, 9, 5, 4], 2)
    [0, 0, 1, 1]
    """
    load, found = [0.0] * devices, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        found[number] = min(range(devices), key=load.__getitem__)
        load[found[number]] += sizes[number]
    return found


@lru_cache(maxsize=256)
def fullest_tables(model: GraphModel, devices: int) -> tuple[Operator, ...]:
    """Return the embedding tables of the fullest device when they are distributed over ``devices``."""
    tables = model.tables
    if not tables:
        return ()
    places = dealt([float(table.weight_elements) for table in tables], min(devices, len(tables)))
    held: dict[int, list[Operator]] = {}
    for place, table in zip(places, tables, strict=True):
        held.setdefault(place, []).append(table)
    return tuple(max(held.values(), key=lambda own: sum(table.weight_elements for table in own)))
