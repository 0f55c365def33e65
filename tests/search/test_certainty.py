"""The interval that every prediction has without a calibration."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.search.measured.certainty import Peaks, busy_share, certainty_of, unchecked_gain
from forerun.search.measured.certainty.intervals import ONE_TABLE, UNLIKE_PEAK_WIDTH, UNLIKE_WIDTH, intervals
from forerun.search.measured.certainty.residuals import (
    UNMODELLED_BYTES,
    Residuals,
    RunClass,
    kind_of,
    peak_ratio,
    residuals,
)
from forerun.search.measured.certainty.unchecked import REALISED
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.strategies import parse_strategy, table_of

KIND = RunClass(
    device="a100-sxm4-80",
    generation="Ampere",
    framework="megatron-lm",
    by_layer=False,
    experts=False,
    narrow=False,
)


def known(*parts: tuple[RunClass, list[float]]) -> Residuals:
    """Residuals of runs of 8 devices that compute four fifths of the time, each of a table of its own."""
    values = [value for _, ratios in parts for value in ratios]
    return Residuals(
        log_ratio=np.log(values),
        weight=np.ones(len(values)),
        kinds=tuple(kind for kind, ratios in parts for _ in ratios),
        gpus=np.full(len(values), 8.0),
        busy=np.full(len(values), 0.8),
        tables=np.arange(len(values)),
    )


def at(residuals: Residuals, kind: RunClass = KIND, gpus: float = 8.0, busy: float = 0.8) -> tuple[float, float, float]:
    sure = intervals(residuals, kind, np.array([gpus]), np.array([busy]))
    return float(sure.low[0]), float(sure.middle[0]), float(sure.high[0])


def test_the_interval_holds_four_of_five_runs_that_are_alike() -> None:
    ratios = list(np.linspace(1.0, 1.2, 101))
    assert at(known((KIND, ratios))) == pytest.approx((1.02, 1.1, 1.18), abs=0.003)


def test_kinds_known_to_be_too_fast_have_their_interval_above_the_prediction() -> None:
    low, middle, high = at(known((KIND, [1.3, 1.32, 1.35, 1.38, 1.4] * 20)))
    assert middle == pytest.approx(1.35, abs=0.01)
    assert 1.25 < low < middle < high < 1.45


def test_what_one_table_alone_says_moves_the_interval_by_half() -> None:
    several = known((KIND, [1.3] * 50))
    low, middle, _ = at(replace(several, tables=np.zeros(50, dtype=int)))
    assert np.log(middle) == pytest.approx(np.log(1.3) * (1 - ONE_TABLE))
    assert 1.13 < low < middle


def test_the_middle_of_the_very_kind_lies_within_whatever_others_say() -> None:
    """Here a large table of an alike kind says that predictions hold, and five runs of this one that they do not."""
    other = replace(KIND, framework="megatron-deepspeed")
    few = [2.0, 2.1, 2.2, 2.3, 2.4]
    assert at(known((other, [1.0] * 400), (KIND, few)))[::2] == pytest.approx((1.0, 2.2), abs=0.01)
    assert at(known((other, [1.0] * 400), (KIND, few[:4])))[2] < 1.1


def test_what_is_alike_decides_over_what_is_not() -> None:
    other = replace(KIND, device="v100-sxm2-16", generation="Volta", experts=True)
    assert at(known((KIND, [1.0] * 20), (other, [2.0] * 20))) == pytest.approx((1.0, 1.0, 1.0), abs=0.01)


def test_where_nothing_is_alike_the_interval_is_wider() -> None:
    other = replace(KIND, device="h100-sxm", generation="Hopper", framework="nemo", experts=True, narrow=True)
    runs = known((KIND, [1.0] * 20))
    low, middle, high = at(runs, other, gpus=8192.0)
    assert (low, middle, high) == pytest.approx((np.exp(-UNLIKE_WIDTH), 1.0, np.exp(UNLIKE_WIDTH)), rel=0.02)
    assert at(runs)[2] == pytest.approx(1.0, abs=0.005)
    assert at(runs)[2] < at(runs, replace(KIND, experts=True))[2] < high


def test_runs_of_as_many_devices_count_more() -> None:
    few = known((KIND, [1.0] * 10))
    both = replace(
        few,
        log_ratio=np.append(few.log_ratio, np.log([1.3] * 10)),
        weight=np.ones(20),
        kinds=few.kinds * 2,
        gpus=np.append(few.gpus, np.full(10, 2048.0)),
        busy=np.full(20, 0.8),
        tables=np.arange(20),
    )
    assert at(both, gpus=8.0)[1] == pytest.approx(1.0, abs=0.01)
    assert at(both, gpus=2048.0)[1] == pytest.approx(1.3, abs=0.02)


def peaks_known(readings: list[str], peak_bytes: list[float], ratios: list[float]) -> Residuals:
    """Residuals of peaks that were read in some ways."""
    runs = known((KIND, ratios))
    return replace(runs, readings=np.array(readings), peak_bytes=np.array(peak_bytes))


def test_peaks_that_were_read_alike_count_more() -> None:
    runs = peaks_known(["device"] * 9 + ["allocated"] * 9, [60e9] * 18, [1.2] * 9 + [1.0] * 9)
    for reading, expected in (("device", 1.2), ("allocated", 1.0)):
        asked = Peaks(peak_bytes=np.array([60e9]), reading=reading)
        middle = intervals(runs, KIND, np.array([8.0]), np.array([0.8]), asked).middle[0]
        assert middle == pytest.approx(expected, abs=0.01)


def test_peaks_of_alike_size_count_more() -> None:
    runs = peaks_known(["reserved"] * 20, [1e9] * 10 + [64e9] * 10, [1.5] * 10 + [1.0] * 10)
    asked = Peaks(peak_bytes=np.array([64e9, 2e9]))
    middle = intervals(runs, KIND, np.full(2, 8.0), np.full(2, 0.8), asked).middle
    assert middle[0] == pytest.approx(1.0, abs=0.01)
    assert middle[1] == pytest.approx(1 + 0.5 * (2e9 + UNMODELLED_BYTES) / 2e9, rel=0.03)


def test_what_no_model_counts_matters_for_small_peaks_alone() -> None:
    small, large = (np.log(peak_ratio(peak + 1e9, peak)) for peak in (1e9, 64e9))
    assert small == pytest.approx(np.log((2e9 + UNMODELLED_BYTES) / (1e9 + UNMODELLED_BYTES)))
    assert large < small / 10
    runs = peaks_known(["reserved"] * 10, [1e9] * 10, [1.0] * 10)
    far = replace(KIND, device="v100-sxm2-16", generation="Volta", framework="fsdp", experts=True, narrow=True)
    asked = Peaks(peak_bytes=np.array([1e9, 1e12]))
    sure = intervals(runs, far, np.full(2, 4096.0), np.full(2, 0.1), asked)
    assert sure.high[1] == pytest.approx(np.exp(UNLIKE_PEAK_WIDTH), rel=0.02)
    assert sure.high[0] - 1 == pytest.approx((sure.high[1] - 1) * (1e9 + UNMODELLED_BYTES) / 1e9, rel=0.05)


def test_strategies_are_looked_up_one_by_one_as_together() -> None:
    gpus, busy = np.array([8.0, 512.0, 8.0]), np.array([0.8, 0.3, 0.8])
    together = intervals(residuals("step"), KIND, gpus, busy)
    for place in range(3):
        alone = intervals(residuals("step"), KIND, gpus[[place]], busy[[place]])
        assert (alone.low[0], alone.high[0]) == (together.low[place], together.high[place])


def test_every_context_has_an_interval_for_step_and_memory() -> None:
    request = Request(model="llama3-8b", cluster="mi300x-platform", gpus="8", global_batch=64, seq_len=2048)
    context = resolve(request).context
    for peaks in (None, Peaks(peak_bytes=np.array([60e9])), Peaks(peak_bytes=np.array([1e9]), reading="device")):
        sure = certainty_of(context, [parse_strategy("dp8")], np.array([0.7]), peaks)
        assert 0 < sure.low[0] < sure.middle[0] < sure.high[0] < 5
        assert sure.alike[0] == 0.0
    assert kind_of(context).generation


def test_strategies_that_gather_parameters_have_the_interval_of_those_that_did() -> None:
    """On V100 DeepSpeed's ZeRO-3 took twice as long as predicted, and other stages did not."""
    request = Request(model="llama2-13b", cluster="aws-p3dn", gpus="32", global_batch=256, seq_len=2048)
    context = resolve(replace(request, precision="fp16", framework="deepspeed")).context
    strategies = [parse_strategy(text) for text in ("dp32 mbs8 zero3", "dp32 mbs8 zero1", "dp32 mbs8 zero3")]
    sure = certainty_of(context, strategies, np.full(3, 0.8))
    assert sure.high[0] > 1.5 * sure.high[1]
    assert sure.high[2] == sure.high[0]


def test_the_share_that_computes() -> None:
    parts = {"compute": np.array([6.0, 1.0]), "recompute": np.array([2.0, 0.0]), "data": np.array([2.0, 3.0])}
    assert busy_share(parts) == pytest.approx([0.8, 0.25])


def test_a_framework_of_ones_own_is_alike_the_one_it_is_like() -> None:
    request = Request(model="llama3-8b", cluster="dgx-h100", gpus="8", global_batch=64, seq_len=2048, framework="nemo")
    context = resolve(request).context
    own = replace(context, framework=replace(context.framework, name="ours", lineage=("ours", "nemo")))
    assert kind_of(own) == kind_of(context)


PLAIN = "tp2 pp8 dp16 ep32 mbs1 vpp4 zero1 sp schedule=interleaved split=light-ends"


def experts(**changes: object) -> Request:
    made = Request(model="qwen3-235b-a22b", cluster="dgx-h100", gpus="256", global_batch=2048, seq_len=4096)
    return replace(made, framework="megatron-lm", **changes)  # type: ignore[arg-type]  # fields of a request


def test_a_gain_that_hardly_any_run_had_is_what_the_step_would_lose() -> None:
    context = resolve(experts()).context
    off, on = (parse_strategy(text) for text in (PLAIN, f"{PLAIN} with=moe-overlap"))
    off_s, on_s = (float(score(context, table_of([one])).step_time_s[0]) for one in (off, on))
    assert unchecked_gain(context, [off, on]) == pytest.approx([0.0, off_s / on_s - 1])
    stated = resolve(experts(switches={"moe-overlap": "on"})).context
    assert unchecked_gain(stated, [off]) == pytest.approx([off_s / on_s - 1])
    dense = resolve(experts(model="llama3-70b")).context
    assert unchecked_gain(dense, [parse_strategy("tp8 pp4 dp8 mbs1")]) == [0.0]


def test_an_unchecked_gain_moves_the_interval_up_and_widens_it() -> None:
    sure = intervals(known((KIND, [0.9, 1.0, 1.1])), KIND, np.array([8.0]), np.array([0.8]))
    same, moved = (sure.with_unchecked(np.array([gain])) for gain in (0.0, 0.25))
    assert np.array([same.low, same.middle, same.high]) == pytest.approx(np.array([sure.low, sure.middle, sure.high]))
    missing = (1 - REALISED) * 0.25
    assert moved.middle == pytest.approx(sure.middle + missing)
    assert moved.high - moved.middle == pytest.approx(np.hypot(sure.high - sure.middle, missing))
    assert sure.low < moved.low < moved.middle
    assert moved.alike == sure.alike
