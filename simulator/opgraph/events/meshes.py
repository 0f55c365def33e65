"""Places: sets of equivalent devices within a stage whose operators use only some of its devices.

One device of each place is simulated. Places are numbered like pipeline ranks: first one per rank, followed by the
further places of each rank.
"""

from collections.abc import Mapping, Sequence

Places = Mapping[str, tuple[int, ...]]
"""The places of each operator."""


def places_of(groups: Sequence[tuple[int, ...]], meshes: Mapping[str, tuple[int, tuple[int, ...]]]) -> Places:
    """Return the places of operators.

    ``groups``: devices by pipeline rank; ``meshes``: rank and devices by operator.

    >>> places_of([(0, 1, 2, 3)], {"a": (0, (0, 1, 2)), "b": (0, (2, 3)), "c": (0, (0, 1, 2, 3))})
    {'a': (0, 1), 'b': (1, 2), 'c': (0, 1, 2)}
    """
    places: dict[str, tuple[int, ...]] = {}
    further = len(groups)
    for rank, group in enumerate(groups):
        sets = {name: frozenset(devices) for name, (at, devices) in meshes.items() if at == rank}
        distinct = list(dict.fromkeys(sets.values()))
        classes: dict[tuple[bool, ...], list[int]] = {}
        for device in group:
            classes.setdefault(tuple(device in mesh for mesh in distinct), []).append(device)
        numbers = [rank, *range(further, further + len(classes) - 1)]
        further += len(classes) - 1
        for name, mesh in sets.items():
            members = zip(numbers, classes.values(), strict=True)
            places[name] = tuple(number for number, devices in members if devices[0] in mesh)
    return {name: places[name] for name in meshes}
