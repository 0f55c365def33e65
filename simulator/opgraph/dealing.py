"""Distribution of whole layers to devices: largest first, each to the device with the fewest weights so far."""

from collections.abc import Sequence
from functools import lru_cache

from forerun.spaces.opgraph import GraphModel, Operator


def dealt(sizes: Sequence[float], devices: int) -> list[int]:
    """Return the device, of ``devices``, for each layer.

    >>> dealt([3, 9, 5, 4], 2)
    [0, 0, 1, 1]
    """
    load, device_of = [0.0] * devices, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: -sizes[number]):
        device_of[number] = min(range(devices), key=load.__getitem__)
        load[device_of[number]] += sizes[number]
    return device_of


@lru_cache(maxsize=256)
def fullest_tables(model: GraphModel, devices: int) -> tuple[Operator, ...]:
    """Return the embedding tables of the fullest device when they are distributed over ``devices``."""
    tables = model.tables
    if not tables:
        return ()
    places = dealt([float(table.weight_elements) for table in tables], min(devices, len(tables)))
    tables_of: dict[int, list[Operator]] = {}
    for place, table in zip(places, tables, strict=True):
        tables_of.setdefault(place, []).append(table)
    return tuple(max(tables_of.values(), key=lambda group: sum(table.weight_elements for table in group)))
