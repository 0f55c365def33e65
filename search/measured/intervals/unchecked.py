"""Predicted gains of a switch with one measured pair of runs, and the measured share."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from forerun.search.measured.intervals.cells import Floats
from forerun.simulator import score
from forerun.spaces.frameworks.switches import available, with_settings
from forerun.spaces.strategies import Context, Software, Strategy, table_of
from forerun.spaces.strategies.software import running

SWITCH = "moe-overlap"
CHECKED = ("off", "domain", "dualpipe")
"""Settings of the switch checked by runs of several models, or by one published training."""
REALISED = 0.6
"""Share of the predicted gain that was measured: 11 of 18 % of a step (Qwen3 235B on 256 H100, with and without expert
traffic overlapped with other microbatches; benchmarks/measured/moezoo_nemolauncher.csv). It is the only pair of
runs."""


def unchecked_gain(context: Context, strategies: Sequence[Strategy]) -> Floats:
    """Return the relative growth of the steps of N strategies without the switch; 0 if it is off."""
    gain = np.zeros(len(strategies))
    rows_of: dict[Software, list[int]] = {}
    for place, strategy in enumerate(strategies if context.moe else ()):
        rows_of.setdefault(strategy.software, []).append(place)
    for software, places in rows_of.items():
        profile = running(context, software).framework
        if available(profile).get(SWITCH, "off") in CHECKED:
            continue
        alone = table_of([replace(strategies[place], software=Software.NONE) for place in places])
        with_it, without = (
            score(replace(context, framework=one), alone).step_time_s
            for one in (profile, with_settings(profile, {SWITCH: "off"}))
        )
        gain[places] = np.maximum(without / with_it - 1.0, 0.0)
    return gain
