"""Rows that a framework can launch as they are go before rows that gain little over them."""

from collections.abc import Sequence

BEHIND = 0.03
"""What a strategy that no launch file can express must gain to stand before one that can be started as it is. Measured
order agrees with gaps of 3 % three times out of four, and a launcher would have to be changed for it."""


def launchable_first(device_s: Sequence[float], launchable: Sequence[bool]) -> list[int]:
    """Return the places of rows, which are in rank order, with those that lack a launch file after those that have one
    and take at most ``BEHIND`` longer. ``device_s``: GPU-seconds of a step of each."""
    places = list(range(len(device_s)))
    for start in reversed(places):
        lacking, at = places[start], start
        if launchable[lacking]:
            continue
        longest_s = (1 + BEHIND) * device_s[lacking]
        while at + 1 < len(places) and launchable[places[at + 1]] and device_s[places[at + 1]] <= longest_s:
            places[at], places[at + 1] = places[at + 1], lacking
            at += 1
    return places
