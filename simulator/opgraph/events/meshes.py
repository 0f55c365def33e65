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
    found: dict[str, tuple[int, ...]] = {}
    further = len(groups)
    for rank, group in enumerate(groups):
        own = {name: frozenset(devices) for name, (at, devices) in meshes.items() if at == rank}
        distinct = list(dict.fromkeys(own.values()))
        alike: dict[tuple[bool, ...], list[int]] = {}
        for device in group:
            alike.setdefault(tuple(device in mesh for mesh in distinct), []).append(device)
        numbers = [rank, *range(further, further + len(alike) - 1)]
        further += len(alike) - 1
        for name, mesh in own.items():
            members = zip(numbers, alike.values(), strict=True)
            found[name] = tuple(number for number, devices in members if devices[0] in mesh)
    return {name: found[name] for name in meshes}
