"""Order of rows with a launch file before slightly faster rows without one."""

from collections.abc import Sequence

BEHIND = 0.03
"""Gain with which a strategy without a launch file ranks before one with a launch file. Measured order agrees with gaps
of 3 % in three of four cases, and such a strategy needs a changed launcher."""


def launchable_first(device_s: Sequence[float], launchable: Sequence[bool]) -> list[int]:
    """Return the positions of ranked rows with rows without a launch file after rows that have one and take at most
    ``BEHIND`` longer. ``device_s``: GPU-seconds of a step of each row.
    """
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
