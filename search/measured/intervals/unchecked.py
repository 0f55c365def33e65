"""Predicted gains of a switch that one pair of measured runs checked, and the share of them that was measured."""

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
"""Its settings whose predictions rest on runs of more than one model, or on one published training."""
REALISED = 0.6
"""Share of the predicted gain that was measured: 11 of 18 % of a step (Qwen3 235B on 256 H100, with and without tokens
under the computation of other microbatches; benchmarks/measured/moezoo_nemolauncher.csv). The only pair of runs."""


def unchecked_gain(context: Context, strategies: Sequence[Strategy]) -> Floats:
    """Return the share by which steps of N strategies would be longer without the switch; 0 where it is off."""
    gain = np.zeros(len(strategies))
    alike: dict[Software, list[int]] = {}
    for place, strategy in enumerate(strategies if context.moe else ()):
        alike.setdefault(strategy.software, []).append(place)
    for software, places in alike.items():
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
