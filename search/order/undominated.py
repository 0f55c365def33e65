"""Order of rows in which no row is both faster and safer than the first."""

from collections.abc import Sequence

SAFER = 0.005
"""Least relevant difference of OOM risks, one unit of the displayed per cents."""


def undominated_first(device_s: Sequence[float], risks: Sequence[float]) -> list[int]:
    """Order rows, which are in rank order, so that none is both faster and safer than the first.

    Parameters
    ----------
    device_s
        GPU-seconds of a step of each row.
    risks
        OOM risk of each row (0 to 1).

    Returns
    -------
    Positions of the rows: the best ranked row that no other beats in both is first, the others keep their order.

    Examples
    --------
    >>> undominated_first([1.02, 1.01, 1.0], [0.2, 0.1, 0.3])
    [1, 0, 2]
    """
    places = range(len(device_s))
    first = next((place for place in places if not any(beats(device_s, risks, other, place) for other in places)), 0)
    return [first, *(place for place in places if place != first)] if device_s else []


def beats(device_s: Sequence[float], risks: Sequence[float], one: int, other: int) -> bool:
    """Return whether a row is both faster and safer than another."""
    return device_s[one] < device_s[other] and risks[one] < risks[other] - SAFER
