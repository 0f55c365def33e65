"""The interval that every prediction has without a calibration."""

from dataclasses import asdict, replace

import numpy as np
import pytest

from forerun.search.measured.intervals import Peaks, busy_share, error_interval, unchecked_gain
from forerun.search.measured.intervals.cells import (
    UNMODELLED_BYTES,
    Residuals,
    RunClass,
    from_cells,
    kind_of,
    peak_ratio,
    residuals,
    to_cells,
)
from forerun.search.measured.intervals.kriging import (
    DEVIATIONS,
    ErrorInterval,
    asked_points,
    intervals,
    known_errors_of,
)
from forerun.search.measured.intervals.unchecked import REALISED
from forerun.search.measured.intervals.variance import Variances, covariance, relations, scatter, variance, variances
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.simulator import score
from forerun.spaces.strategies import Context, parse_strategy, table_of

KIND = RunClass(device="a100-sxm4-80", vendor="NVIDIA", generation="Ampere", constants="own", framework="megatron-lm")
SIZES = Variances(
    own_device=0.03, lent_device=0.1, vendor=0.3, framework=0.05, framework_on_device=0.04, mechanism=0.06, kind=0.04,
    table=0.03, local=0.05, scatter=0.05, guessed=0.1, waiting=0.1, rough_waiting=1.0, rough_experts=0.5, prior=6.0,
)  # fmt: skip


def known(*cells: tuple[RunClass, float, int], tables: list[int] | None = None, missed: float = 1.0) -> Residuals:
    """Cells of 8 devices that compute four fifths of the time, each of a table of its own."""
    kinds = [kind for kind, _, _ in cells]
    points = asked_points(kinds, np.full(len(cells), 8.0), np.full(len(cells), 0.8))
    return Residuals(
        points=replace(points, tables=np.array(tables or range(len(cells)))),
        log_ratio=np.log([ratio for _, ratio, _ in cells]),
        rows=np.array([float(rows) for _, _, rows in cells]),
        missed=np.full(len(cells), missed),
    )


def at(cells: Residuals, kind: RunClass = KIND, gpus: float = 8.0, busy: float = 0.8) -> tuple[float, float, float]:
    """Ends and middle of the interval of one prediction."""
    sure = intervals(known_errors_of(cells, SIZES), asked_points([kind], np.array([gpus]), np.array([busy])))
    return float(sure.low[0]), float(sure.middle[0]), float(sure.high[0])


def width(cells: Residuals, kind: RunClass = KIND, **scale: float) -> float:
    low, _, high = at(cells, kind, **scale)
    return high / low


RIGHT = known(*[(KIND, 1.0, 20)] * 5)


def test_a_prediction_unlike_every_run_keeps_its_whole_variance_and_is_centred_on_itself() -> None:
    other = RunClass(device="x", vendor="Y", generation="Z", constants="foreign", framework="own", experts=True, bits=8)
    cells = known(*[(KIND, 1.3, 20)] * 5)
    low, middle, high = at(cells, other)
    asked = asked_points([other], np.array([8.0]), np.array([0.8]))
    assert middle == pytest.approx(1.0)
    assert np.log(high) == pytest.approx(DEVIATIONS * np.sqrt(variance(asked, SIZES)[0]), abs=1e-4)
    assert low == pytest.approx(1 / high, rel=1e-4)


def test_every_level_that_no_run_shares_widens_the_interval() -> None:
    framework = replace(KIND, framework="nemo")
    device = replace(KIND, device="v100-sxm2-16", generation="Volta", constants="lent")
    neither = replace(device, framework="nemo")
    foreign = replace(neither, vendor="AMD", constants="foreign")
    experts = replace(KIND, experts=True)
    seen, *unseen = (width(RIGHT, kind) for kind in (KIND, framework, device, neither, foreign, experts))
    assert all(seen < other for other in unseen)
    assert unseen[0] < unseen[2] < unseen[3] and unseen[1] < unseen[2]


def test_a_recompute_that_was_filled_in_widens_it() -> None:
    assert width(RIGHT, replace(KIND, guessed=True)) > width(RIGHT)


def test_runs_that_compute_little_scatter_more() -> None:
    assert width(RIGHT, busy=0.2) > width(RIGHT, busy=0.8)


def test_what_several_tables_say_moves_the_interval_more_than_what_one_says() -> None:
    several, one = known(*[(KIND, 1.3, 20)] * 4), known(*[(KIND, 1.3, 20)] * 4, tables=[0] * 4)
    assert 1.0 < at(one)[1] < at(several)[1] < 1.3


def test_a_bias_of_other_devices_and_frameworks_hardly_moves_the_interval() -> None:
    cells = known(*[(KIND, 1.3, 20)] * 4)
    other = replace(KIND, device="mi300x", vendor="AMD", generation="CDNA3", constants="foreign", framework="fsdp")
    assert at(cells, other)[1] == pytest.approx(1.0, abs=0.03)


@pytest.mark.parametrize("ratio", [0.5, 0.9, 1.3, 3.0])
def test_a_prediction_is_within_its_interval_however_wrong_those_alike_were(ratio: float) -> None:
    low, middle, high = at(known(*[(KIND, ratio, 20)] * 5))
    assert low < 1.0 < high
    assert min(1.0, ratio) < middle < max(1.0, ratio)


def test_errors_larger_than_expected_widen_the_interval_of_alike_predictions() -> None:
    """And smaller ones narrow it; predictions that share little with those runs are as sure as before."""
    cells = [(KIND, 1.0, 20)] * 5
    wide, usual, narrow = (width(known(*cells, missed=missed)) for missed in (2.0, 1.0, 0.5))
    assert narrow < usual < wide
    other = replace(KIND, device="mi300x", vendor="AMD", generation="CDNA3", constants="foreign", framework="fsdp")
    assert width(known(*cells, missed=2.0), other) < 1.1 * width(known(*cells), other)


def test_covariances_are_those_of_a_sum_of_effects() -> None:
    """No eigenvalue is negative, and a run shares all its effects but its scatter with another of its table."""
    kinds = [
        KIND,
        replace(KIND, experts=True),
        replace(KIND, guessed=True),
        replace(KIND, framework="fsdp", by_layer=True),
    ]
    points = replace(
        asked_points(kinds, np.array([8.0, 64, 8, 512]), np.array([0.9, 0.2, 0.5, 0.7])), tables=np.zeros(4, int)
    )
    shared = covariance(points, points, relations(points, points), SIZES)
    assert np.linalg.eigvalsh(shared).min() > -1e-12
    assert np.diag(shared) + scatter(points, SIZES) == pytest.approx(variance(points, SIZES))


def test_cells_are_read_as_they_were_written() -> None:
    for quantity in ("step", "memory"):
        first = residuals(quantity)
        again = from_cells(*to_cells(first))
        assert again.points.kinds == first.points.kinds
        assert again.log_ratio == pytest.approx(first.log_ratio)
        assert again.points.size == pytest.approx(first.points.size, abs=0.01)


def test_constants_and_cells_are_within_reason() -> None:
    for quantity in ("step", "memory"):
        sizes = asdict(variances(quantity))
        assert all(0 < value < 100 for value in sizes.values())
        assert np.isfinite(residuals(quantity).log_ratio).all()
        assert (residuals(quantity).rows >= 1).all()


def peaks_known(readings: list[str], peak_bytes: list[float], ratios: list[float]) -> Residuals:
    """Cells of peaks that were read in some ways."""
    runs = known(*[(KIND, ratio, 5) for ratio in ratios])
    points = replace(runs.points, reading=np.array(readings), size=np.log2(peak_bytes))
    return replace(runs, points=points)


def peak_middle(cells: Residuals, peaks: Peaks) -> list[float]:
    count = len(peaks.peak_bytes)
    asked = asked_points([KIND] * count, np.full(count, 8.0), np.full(count, 0.8), peaks)
    return [float(middle) for middle in intervals(known_errors_of(cells, SIZES), asked, peaks).middle]


def test_what_no_model_counts_matters_for_small_peaks_alone() -> None:
    small, large = (np.log(peak_ratio(peak + 1e9, peak)) for peak in (1e9, 64e9))
    assert small == pytest.approx(np.log((2e9 + UNMODELLED_BYTES) / (1e9 + UNMODELLED_BYTES)))
    assert large < small / 10
    cells = peaks_known(["reserved"] * 4, [1e9] * 4, [1.3] * 4)
    tiny, huge = peak_middle(cells, Peaks(peak_bytes=np.array([1e9, 1e12])))
    assert tiny > huge > 1.0


def request(**changes: object) -> Context:
    made = Request(model="llama3-8b", cluster="mi300x-platform", gpus="8", global_batch=64, seq_len=2048)
    return resolve(replace(made, **changes)).context  # type: ignore[arg-type]  # fields of a request


def test_every_context_has_an_interval_for_step_and_memory() -> None:
    for peaks in (None, Peaks(peak_bytes=np.array([60e9])), Peaks(peak_bytes=np.array([1e9]), reading="device")):
        sure = error_interval(request(), [parse_strategy("dp8")], np.array([0.7]), peaks)
        assert 0 < sure.low[0] < sure.middle[0] < sure.high[0] < 5


def test_a_device_without_runs_has_a_wider_interval_than_one_with_hundreds() -> None:
    strategy, busy = [parse_strategy("dp8")], np.array([0.8])
    bounds = [error_interval(request(cluster=name), strategy, busy) for name in ("dgx-a100-80", "gaudi3-box")]
    seen, unseen = (float(sure.high[0] / sure.low[0]) for sure in bounds)
    assert seen < 1.4 and unseen > seen**1.5


def test_strategies_are_looked_up_one_by_one_as_together() -> None:
    strategies = [parse_strategy(text) for text in ("dp8", "dp8 zero3", "tp8 dp8", "dp8")]
    busy = np.array([0.8, 0.8, 0.3, 0.8])
    together = error_interval(request(), strategies, busy)
    assert together.high[1] != together.high[0] == together.high[3]
    for place, one in enumerate(strategies):
        alone = error_interval(request(), [one], busy[[place]])
        assert (alone.low[0], alone.high[0]) == (together.low[place], together.high[place])


def test_the_share_that_computes() -> None:
    parts = {"compute": np.array([6.0, 1.0]), "recompute": np.array([2.0, 0.0]), "data": np.array([2.0, 3.0])}
    assert busy_share(parts) == pytest.approx([0.8, 0.25])


def test_a_framework_of_ones_own_is_alike_the_one_it_is_like() -> None:
    context = request(cluster="dgx-h100", framework="nemo")
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


SURE = ErrorInterval(low=np.array([0.9]), middle=np.array([1.0]), high=np.array([1.1]))


def test_an_unchecked_gain_moves_the_interval_up_and_widens_it() -> None:
    same, moved = (SURE.with_unchecked(np.array([gain])) for gain in (0.0, 0.25))
    assert np.array([same.low, same.middle, same.high]) == pytest.approx(np.array([SURE.low, SURE.middle, SURE.high]))
    missing = (1 - REALISED) * 0.25
    assert moved.middle == pytest.approx(SURE.middle + missing)
    assert moved.high - moved.middle == pytest.approx(np.hypot(SURE.high - SURE.middle, missing))
    assert SURE.low < moved.low < moved.middle


def test_a_speed_above_anything_published_widens_the_interval_upwards() -> None:
    same, wider = (SURE.with_implausible(np.array([times])) for times in (0.9, 1.2))
    assert same.high == pytest.approx(SURE.high)
    assert wider.low == SURE.low
    assert wider.high[0] > 1.2**2
