"""Bytes that one layer, one stage and one collective move: each rule is one equation."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import dense_model, moe_model, request, small_cluster

from forerun.simulator.costs import collective_time_s, point_to_point_time_s
from forerun.simulator.costs.collectives.algorithms import exchange_s, ring_s, tree_s
from forerun.simulator.costs.collectives.constants import constants_of
from forerun.simulator.costs.collectives.rule import paths_on_levels
from forerun.simulator.layer.blocks import layer_work
from forerun.simulator.layer.communication import LayerTraffic, layer_exchange, tensor_sync
from forerun.simulator.layer.shard import Shard, shard_of
from forerun.simulator.layer.times import block_times
from forerun.simulator.pipeline.p2p import p2p_time_s
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context, parse_strategy, table_of

HALF = 2.0
"""Bytes of a value in bf16."""


def exposed(model: Model, *, moe_imbalance: float = 1.0) -> Context:
    """Return a request in which computation hides no communication."""
    made = request(model, framework="generic")
    none = {name: 0.0 for name in ("overlap_tensor", "overlap_tensor_backward", "overlap_context", "overlap_expert")}
    profile = replace(made.framework, scatters_p2p=False, dispatches_once=False, stops_recompute=False, **none)
    return replace(made, framework=profile, workload=replace(made.workload, moe_imbalance=moe_imbalance))


def shard(made: Context, text: str) -> Shard:
    return shard_of(made, table_of([parse_strategy(text)]), np.zeros(1, dtype=np.intp))


def traffic(made: Context, text: str) -> LayerTraffic:
    """Return the exposed communication of the last layer under a strategy."""
    layer, own = made.model.layers[-1], shard(made, text)
    return layer_exchange(made, layer, own, layer_work(made, layer, own))


@pytest.mark.parametrize("moe_imbalance", [1.0, 1.5])
def test_tokens_travel_to_their_top_k_experts_and_back_times_the_imbalance(moe_imbalance: float) -> None:
    made = exposed(moe_model(), moe_imbalance=moe_imbalance)
    found, tokens = traffic(made, "tp2 dp2 ep4 mbs1 sp"), made.workload.seq_len / 2
    once_s = collective_time_s(made.cluster, "all_to_all", tokens * 2 * moe_imbalance * 1024 * HALF, 4, 1)

    assert found.expert_forward_s == pytest.approx(2 * once_s)
    assert found.expert_backward_s == pytest.approx(2 * once_s)


def test_context_ranks_pass_keys_and_values_of_kv_heads_once_forward_and_twice_backward() -> None:
    made = exposed(dense_model(heads=16, kv_heads=4))
    made = replace(made, framework=replace(made.framework, context_exchange="ring"))
    found, heads = traffic(made, "tp2 cp4 dp1 mbs1"), 4 / 2
    once_s = collective_time_s(made.cluster, "all_gather", made.workload.seq_len * heads * (64 + 64) * HALF, 4, 2)

    assert found.context_forward_s == pytest.approx(float(once_s))
    assert found.context_backward_s == pytest.approx(2 * float(once_s))


def test_sequence_parallelism_gathers_and_scatters_what_is_all_reduced_without() -> None:
    made = exposed(dense_model())
    size = made.workload.seq_len * made.model.hidden * HALF
    gather_s, scatter_s, reduce_s = (
        collective_time_s(made.cluster, name, size, 4, 1) + made.framework.collective_launch_s
        for name in ("all_gather", "reduce_scatter", "all_reduce")  # type: ignore[arg-type]  # names of collectives
    )

    assert tensor_sync(made, shard(made, "tp4 dp2 sp"), 1024).once_s == pytest.approx(gather_s + scatter_s)
    assert tensor_sync(made, shard(made, "tp4 dp2"), 1024).once_s == pytest.approx(reduce_s)


@pytest.mark.parametrize("degrees", ["dp8", "tp4 dp2 sp", "tp2 cp2 dp2", "tp2 dp2 ep4 sp"])
def test_full_recompute_adds_one_forward_pass_with_its_communication(degrees: str) -> None:
    made = exposed(moe_model() if "ep" in degrees else dense_model())
    plain, again = (block_times(made, shard(made, f"{degrees} mbs1{more}")) for more in ("", " recompute=full"))
    layers = slice(-2)  # without embedding and head

    kept_s = plain.forward_s[layers] - (again.backward_s - plain.backward_s)[layers]
    assert again.forward_s[layers] == pytest.approx(plain.forward_s[layers])
    assert kept_s == pytest.approx(0, abs=1e-9)


def test_with_sequence_parallelism_each_tensor_rank_sends_its_part_to_the_next_stage() -> None:
    made, table = exposed(dense_model()), table_of([parse_strategy(f"tp4 pp2 dp4 mbs2{sp}") for sp in (" sp", "")])
    size = 2 * made.workload.seq_len * made.model.hidden * HALF
    part_s, whole_s = (point_to_point_time_s(made.cluster, size / parts, 16) for parts in (4, 1))

    assert p2p_time_s(made, table) == pytest.approx([float(part_s), float(whole_s)])
    assert part_s < 0.5 * whole_s


def moved(ranks: float) -> dict[str, float]:
    """Return the times of a very large tensor over ranks of one flat network, relative to sending it once."""
    levels = small_cluster().levels[1:]
    row = replace(constants_of(levels[0], "hopper"), own_share=0.0, alone_share=0.0, crowding=0.0)
    row = replace(row, efficiency=dict.fromkeys(row.efficiency, 1.0))
    paths = paths_on_levels(levels, (row,), np.array([ranks]), np.ones(1), lone=False)
    size, count = np.array([1e18]), np.array([ranks])
    once_s = 1e18 / (levels[0].bytes_per_s * max(row.fraction))
    times = {
        "ring": ring_s(paths, "all_reduce", size, count, 2),
        "gather": ring_s(paths, "all_gather", size, count, 1),
        "tree": tree_s(paths, size, count),
        "exchange": exchange_s(paths, size, count),
    }
    return {name: float(seconds[0]) / once_s for name, seconds in times.items()}


@pytest.mark.parametrize("n", [2, 3, 8, 64])
def test_collectives_move_their_share_of_the_tensor(n: int) -> None:
    """Rings pass on all parts but one's own, twice in an all-reduce; trees send all up and down; nobody sends to
    itself."""
    rest = (n - 1) / n

    assert moved(n) == pytest.approx({"ring": 2 * rest, "gather": rest, "tree": 2.0, "exchange": rest}, rel=1e-6)
