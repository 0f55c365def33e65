"""The core for operator graphs: closed forms by hand, and laws that every split keeps."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.costs import collective_time_s, passes_time_s, point_to_point_time_s
from forerun.simulator.opgraph import PHASES, GraphContext, score, score_splits
from forerun.simulator.opgraph.compute import Local
from forerun.simulator.opgraph.layers import layers_of
from forerun.simulator.opgraph.stage_cuts import balanced_cuts
from forerun.spaces.clusters import load_cluster
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.opgraph import WEIGHTED, GraphModel, load_graph_model
from forerun.spaces.opgraph.builder import Builder
from forerun.spaces.opgraph.profile import GraphProfile, load_graph_profile
from forerun.spaces.opgraph.split import parse_split

ABCI = load_cluster("abci-v100")
SPLITS = (
    "data1", "data16", "spatial4", "data4 spatial2x2", "filter4", "data4 filter4", "channel8", "data2 channel4",
    "pipeline4 segments8", "data4 pipeline4 segments4", "data16 mixed",
)  # fmt: skip


def context(
    model: GraphModel | str = "resnet50",
    profile: str = "ideal",
    cluster: Cluster = ABCI,
    seconds_per_sample: float | None = None,
    **changes: object,
) -> GraphContext:
    behaviour: GraphProfile = dataclasses.replace(load_graph_profile(profile), **changes)  # type: ignore[arg-type]
    return GraphContext(
        model=load_graph_model(model) if isinstance(model, str) else model,
        cluster=cluster,
        profile=behaviour,
        precision="fp32",
        seconds_per_sample=seconds_per_sample,
    )


def one(setting: GraphContext, text: str, batch: int = 256) -> dict[str, float]:
    scores = score_splits(setting, [parse_split(text)], [batch])
    found = {name: float(values[0]) for name, values in scores.time_s.items()}
    return {**found, "step": float(scores.step_time_s[0]), "memory": float(scores.peak_memory_bytes[0])}


def test_phases_add_up_and_none_is_negative() -> None:
    scores = score_splits(context(), [parse_split(text) for text in SPLITS], [256] * len(SPLITS))
    assert tuple(scores.time_s) == PHASES
    assert np.all(np.isfinite(scores.step_time_s))
    assert all(np.all(values >= 0) for values in scores.time_s.values())
    assert np.allclose(sum(scores.time_s.values()), scores.step_time_s)


@pytest.mark.parametrize("model", ["resnet50", "amoebanet-d-18-416"])
def test_a_row_is_the_same_bit_for_bit_beside_others_and_alone(model: str) -> None:
    setting = context(model, cluster=load_cluster("mi300x-platform"))
    splits = [parse_split(text) for text in SPLITS]
    together = score_splits(setting, splits, [64] * len(splits))
    for row, split in enumerate(splits):
        alone = score_splits(setting, [split], [64])
        for name in ("hidden_s", "device_s", "host_s", "repeated_s"):
            assert getattr(together, name)[row] == getattr(alone, name)[0], f"{name} of {split}"
        for name, seconds in together.time_s.items():
            assert seconds[row] == alone.time_s[name][0], f"{name} of {split}"
        assert together.peak_memory_bytes[row] == alone.peak_memory_bytes[0]


def test_rows_do_not_depend_on_the_number_costed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    setting, splits = context(), [parse_split(text) for text in (*SPLITS, *SPLITS[::-1])]
    batches = [64 * split.devices for split in splits]
    together = score_splits(setting, splits, batches)
    monkeypatch.setattr(score, "AT_ONCE", 1)
    parts = score_splits(setting, splits, batches)
    assert np.array_equal(parts.step_time_s, together.step_time_s)
    assert np.array_equal(parts.peak_memory_bytes, together.peak_memory_bytes)
    assert np.array_equal(together.step_time_s[: len(SPLITS)], together.step_time_s[: len(SPLITS) - 1 : -1])


@pytest.mark.parametrize("text", SPLITS)
def test_a_split_costs_the_same_alone_and_among_others(text: str) -> None:
    together = score_splits(context(), [parse_split(other) for other in SPLITS], [256] * len(SPLITS))
    assert together.step_time_s[SPLITS.index(text)] == one(context(), text)["step"]


def test_one_device_communicates_nothing() -> None:
    phases = one(context(), "data1", 64)
    assert sum(phases[name] for name in ("halo", "collective", "tail", "p2p", "bubble", "gradient")) == 0.0
    same = [one(context(), text, 64)["step"] for text in ("filter1", "channel1", "spatial1")]
    assert same == pytest.approx([phases["step"]] * 3)


def test_data_parallel_exchanges_all_parameters_once() -> None:
    model = load_graph_model("resnet50")
    setting = context(overlap=0.0, bucket_bytes=1e12)
    expected = float(collective_time_s(ABCI, "all_reduce", 4.0 * model.parameters, 16, 1))
    assert one(setting, "data16", 1024)["gradient"] == pytest.approx(expected)


def test_gradients_hide_under_the_backward_pass_but_for_the_last_bucket() -> None:
    whole = one(context(overlap=0.0), "data16", 1024)["gradient"]
    hidden = one(context(overlap=1.0), "data16", 1024)["gradient"]
    assert 0 < hidden < whole / 2


def _pair() -> GraphModel:
    b = Builder(4, 16, 16)
    b.conv(b.conv(b.start, 8, 3, padding=1), 6, 3, padding=1)
    return b.build("pair", "test")


def test_halo_of_two_convolutions_by_hand() -> None:
    # Strips of 4 rows: forward one row of 16 pixels of 4 and of 8 channels, backward the gradient of the second's 8
    # inputs (nobody asks for that of the picture), to both neighbours.
    rows = [8 * 16 * channels * 4.0 for channels in (4, 8, 8)]
    expected = sum(float(point_to_point_time_s(ABCI, 2 * size, 1)) for size in rows)
    assert one(context(_pair()), "spatial4", 8)["halo"] == pytest.approx(expected)
    staged = one(context(_pair(), staged_bytes_per_s=1e9), "spatial4", 8)["halo"]
    assert staged == pytest.approx(2 * 2 * sum(rows) / 1e9)


def test_parts_of_a_picture_add_their_gradients_up_through_the_host() -> None:
    model = load_graph_model("resnet50")
    direct, staged = (
        one(context(overlap=0.0, bucket_bytes=1e12, staged_bytes_per_s=rate), "data4 spatial4", 256)["gradient"]
        for rate in (None, 1e9)
    )
    assert staged - direct == pytest.approx(2 * 4.0 * model.parameters / 1e9)


def test_two_parts_have_one_neighbour_and_grids_exchange_along_both_axes() -> None:
    two, four = (one(context(_pair(), staged_bytes_per_s=1e9), text, 8)["halo"] for text in ("spatial2", "spatial4"))
    assert four == pytest.approx(2 * two)
    square = one(context(_pair(), staged_bytes_per_s=1e9), "spatial2x2", 8)["halo"]
    assert square == pytest.approx(two)  # half as long a side, along two axes


def test_filter_and_channel_by_hand() -> None:
    model, batch = _pair(), 8
    first, second = model.operators
    gather = float(collective_time_s(ABCI, "all_gather", 4.0 * batch * first.output_elements, 2, 1))
    reduce = float(collective_time_s(ABCI, "all_reduce", 4.0 * batch * second.input_elements, 2, 1))
    assert one(context(model), "filter2", batch)["collective"] == pytest.approx(gather + reduce)
    forward = float(collective_time_s(ABCI, "all_reduce", 4.0 * batch * second.output_elements, 2, 1))
    backward = float(collective_time_s(ABCI, "all_gather", 4.0 * batch * second.input_elements, 2, 1))
    assert one(context(model), "channel2", batch)["collective"] == pytest.approx(forward + backward)


def test_computation_does_not_shrink_with_the_number_of_filter_parts() -> None:
    serial, split = (one(context(), text, 64) for text in ("data1", "filter64"))
    assert split["forward"] + split["backward"] > (serial["forward"] + serial["backward"]) / 4


def test_a_measured_time_scales_all_computation() -> None:
    setting = context(seconds_per_sample=3.119502e-3)
    phases = one(setting, "data1", 64)
    assert phases["forward"] + phases["backward"] == pytest.approx(64 * 3.119502e-3)


def test_host_bound_steps_take_the_time_of_the_host() -> None:
    slow = one(context(operator_host_s=0.01), "data1", 1)
    issued = 2 * sum(operator.kind.value != "view" for operator in load_graph_model("resnet50").operators)
    # It issues the first operator at once, and the last runs behind the last issue.
    assert (issued - 1) * 0.01 < slow["forward"] + slow["backward"] < issued * 0.01


def test_pipeline_fills_and_drains() -> None:
    b = Builder(512, 16, 16)
    x = b.start
    for _ in range(4):
        x = b.conv(x, 512, 3, padding=1)
    even = context(b.build("even", "test"))
    phases = one(even, "pipeline4 segments8", 256)
    forward, backward = even.passes(32)
    # Eleven passes forward and as many backward on the slowest stage; the first is faster, for nobody asks for the
    # gradient of the data, and ends last.
    step = 11 * forward[0] + 10 * backward[1] + backward[0]
    busy = phases["forward"] + phases["backward"]
    assert busy == pytest.approx(8 * (forward[0] + backward[0]))
    assert phases["bubble"] == pytest.approx(step - busy)
    # Transfers are shorter than passes: each fills and drains once.
    sent = float(point_to_point_time_s(ABCI, 32 * 512 * 16 * 16 * 4.0, 1))
    assert phases["p2p"] == pytest.approx(6 * sent)


@given(st.lists(st.floats(0.01, 10), min_size=1, max_size=12), st.integers(1, 6))
def test_cuts_are_as_even_as_any(seconds: list[float], parts: int) -> None:
    starts = np.flatnonzero(balanced_cuts(np.array([seconds]), np.array([float(parts)]))[0])
    assert starts[0] == 0
    assert len(starts) <= parts
    longest = max(np.add.reduceat(np.array(seconds), starts))
    assert longest <= _best(tuple(seconds), parts) * (1 + 1e-6)


def _best(seconds: tuple[float, ...], parts: int) -> float:
    if parts == 1 or len(seconds) < 2:
        return sum(seconds)
    return min(max(sum(seconds[:cut]), _best(seconds[cut:], parts - 1)) for cut in range(1, len(seconds) + 1))


@settings(max_examples=tries(20))
@given(st.sampled_from(SPLITS), st.sampled_from(("bytes_per_s", "port_bytes_per_s")), st.floats(1.1, 10))
def test_more_bandwidth_is_never_slower(text: str, field: str, factor: float) -> None:
    levels = tuple(dataclasses.replace(level, **{field: getattr(level, field) * factor}) for level in ABCI.levels)
    wide = dataclasses.replace(ABCI, levels=levels)
    assert one(context(cluster=wide), text)["step"] <= one(context(), text)["step"] * (1 + 1e-9)


@pytest.mark.parametrize("overlap", [0.0, 1.0])
def test_gradients_meet_the_exchange_between_parts_only_under_the_backward_pass(overlap: float) -> None:
    quick, slow = (one(context(overlap=overlap, all_reduce_share=share), "data4 filter8") for share in (1.0, 0.5))
    assert slow["collective"] > quick["collective"]
    assert (slow["gradient"] != quick["gradient"]) == bool(overlap)


def test_memory_of_data_parallel_by_hand() -> None:
    b = Builder(3, 8, 8)
    b.relu(b.conv(b.start, 4, 1))
    model = b.build("tiny", "test")
    scores = score_splits(context(model), [parse_split("data1")], [2])
    memory = scores.memory_bytes
    assert memory["parameters"][0] == 4 * 12
    assert memory["gradients"][0] + memory["optimizer"][0] == 2 * 4 * 12
    assert memory["activations"][0] == 2 * 4 * (3 * 64 + 4 * 64)  # the picture and what the convolution made of it


def test_memory_by_mode() -> None:
    data, spatial, filtered, staged = (
        one(context(), text, 64)["memory"] for text in ("data1", "spatial4", "filter4", "pipeline4 segments4")
    )
    assert spatial < filtered < data
    assert staged < data


def test_tables_are_dealt_out_or_copied() -> None:
    setting = context("dlrm-516m")
    copied, dealt = (one(setting, text, 2048) for text in ("data8", "data8 tables"))
    assert dealt["memory"] < copied["memory"] / 2
    assert dealt["collective"] > 0
    assert dealt["update"] == copied["update"]  # the tables' rows are changed by the backward pass
    assert dealt["gradient"] < copied["gradient"] / 3


def test_no_phase_of_a_recommendation_model_is_negative() -> None:
    splits = [
        parse_split(text) for text in ("data16 pipeline3", "pipeline8 segments4", "data8 filter4", "data32 mixed")
    ]
    for profile in ("ideal", "chainermn"):
        scores = score_splits(context("dlrm-516m", profile), splits, [4096] * len(splits))
        assert all(np.all(values >= 0) for values in scores.time_s.values())
        assert np.all(scores.step_time_s > 1e-4)


def test_mixed_moves_features_instead_of_weights() -> None:
    setting = context("vgg16", overlap=0.0)
    plain, mixed = (one(setting, text, 512) for text in ("data16", "data16 mixed"))
    assert mixed["gradient"] < plain["gradient"] / 3
    assert mixed["collective"] > 0
    assert mixed["step"] < plain["step"]


def test_loading_counts_where_it_is_slower_than_the_step() -> None:
    free, slow = (one(context(storage_bytes_per_s=rate), "data4", 256) for rate in (None, 1e6))
    assert free["input"] == 0.0
    assert slow["step"] == pytest.approx(256 * 110e3 / 1e6)


def test_arrays_say_the_same_as_the_operators() -> None:
    model = load_graph_model("inception-v3")
    layers = layers_of(model.name, model)
    assert len(layers.distinct) < len(model.operators)
    for operator, kind in zip(model.operators, layers.kind_of_L, strict=True):
        same = layers.distinct[kind]
        assert (same.kind, same.input, same.output, same.kernel) == (
            operator.kind, operator.input, operator.output, operator.kernel,
        )  # fmt: skip
    assert layers.weighted.sum() == sum(operator.kind in WEIGHTED for operator in model.operators)


def test_biases_of_convolutions_are_passes_over_their_outputs() -> None:
    """Read and written forward, read for their gradient; none where operators behind are computed with what they
    follow."""
    both = []
    for bias in (False, True):
        b = Builder(16, 56, 56)
        b.loss(b.linear(b.flatten(b.conv(b.start, 64, 3, padding=1, bias=bias)), 10))
        both.append(b.build("one convolution", "by hand"))
    batch = np.array([32.0])
    times = {
        fused: [context(model, fuses_elementwise=fused).times(Local.whole(batch)) for model in both]
        for fused in (False, True)
    }
    size = 32 * 64 * 56**2 * 4.0
    plain, own = times[False]
    assert own.forward_KU[0, 0] - plain.forward_KU[0, 0] == pytest.approx(float(passes_time_s(ABCI.device, 2 * size)))
    assert own.weight_KU[0, 0] - plain.weight_KU[0, 0] == pytest.approx(float(passes_time_s(ABCI.device, size)))
    assert times[True][0].forward_KU[0, 0] == times[True][1].forward_KU[0, 0]
