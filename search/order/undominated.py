"""Row one is never slower and riskier than another row."""

from collections.abc import Sequence

SAFER = 0.005
"""Difference of risks of running out of memory that is one: what is shown in whole per cents."""


def undominated_first(device_s: Sequence[float], risks: Sequence[float]) -> list[int]:
    """Order rows, which are in rank order, so that none is both faster and safer than the first.

    Parameters
    ----------
    device_s
        GPU-seconds of a step of each row.
    risks
        Its risk of running out of memory (0 to 1).

    Returns
    -------
    Places of the rows: the best ranked one that no other beats in both goes first, the others stay in order.

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
