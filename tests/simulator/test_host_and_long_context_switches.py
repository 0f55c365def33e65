"""Optimizer states and activations on the host, losses in chunks, and heads exchanged between context ranks."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator import score
from forerun.simulator.costs.host import host_link_rate
from forerun.spaces.clusters import load_cluster
from forerun.spaces.frameworks import load_framework, parse_switches, switched
from forerun.spaces.models import load_model
from forerun.spaces.strategies import RULES, Context, parse_strategy, table_of
from forerun.spaces.workload import Workload

HEADS = next(rule for rule in RULES if rule.code == "heads / cp")


def context(switches: str = "", *, seq_len: int = 8192, host_bytes: float | None = 2e12) -> Context:
    profile = load_framework("generic")
    cluster = load_cluster("dgx-h100")
    host = {name: value for name, value in cluster.host.items() if name != "memory_bytes"}
    return Context(
        model=load_model("llama3-8b"),
        cluster=replace(cluster, host=host if host_bytes is None else {**host, "memory_bytes": host_bytes}),
        workload=Workload(global_batch=8, seq_len=seq_len),
        framework=switched(profile, parse_switches([switches])) if switches else profile,
    )


def parts(made: Context, text: str) -> dict[str, float]:
    scores = score(made, table_of([parse_strategy(text)]))
    found = {name: float(values[0]) for name, values in (*scores.memory_bytes.items(), *scores.time_s.items())}
    return found | {"step": float(scores.step_time_s[0])}


def test_states_leave_the_device() -> None:
    strategy = table_of([parse_strategy("tp1 dp8 mbs1 zero1")])
    off = float(score(context(), strategy).memory_bytes["optimizer"][0])
    on = score(context("optimizer-offload"), strategy)
    assert (off > 1e10, float(on.memory_bytes["optimizer"][0])) == (True, 0.0)
    link = context().cluster.device.host_bytes_per_s or context().cluster.host["bytes_per_s_per_device"]
    assert float(on.time_s["optimizer"][0]) >= off / link


def test_a_share_of_states_and_activations_leaves_the_device() -> None:
    strategy = "tp1 dp8 mbs1 zero1"
    off, some, on = (
        parts(context(f"optimizer-offload={share},activation-offload={share}"), strategy) for share in (0, 0.25, 1)
    )
    assert off["activations"] > some["activations"] > on["activations"]
    assert some["activations"] == pytest.approx(off["activations"] * (0.75 + 0.25 * 3 / 32))
    made = (context(f"optimizer-offload={share}") for share in (0, 0.25))
    whole, left = (float(score(one, table_of([parse_strategy(strategy)])).memory_bytes["optimizer"][0]) for one in made)
    assert left == pytest.approx(0.75 * whole)
    # The host updates a quarter in a quarter of the time of all.
    assert some["optimizer"] == pytest.approx(on["optimizer"] / 4)
    assert off["step"] <= some["step"] <= on["step"]


def test_devices_that_copy_at_once_share_what_a_socket_or_a_switch_passes_on() -> None:
    staged, alone = load_cluster("l40s-pcie"), load_cluster("dgx-h100")
    assert staged.spec is not None and staged.spec.host.staged_bytes_per_s is not None
    assert host_link_rate(staged) == staged.spec.host.staged_bytes_per_s / 4
    assert host_link_rate(alone) == alone.host["bytes_per_s_per_device"]
    assert alone.spec is not None
    switched = replace(alone.spec.host, switch_devices=4, switch_bytes_per_s=64e9)
    behind = replace(alone, spec=replace(alone.spec, host=switched))
    assert host_link_rate(behind) == 16e9


def test_an_update_without_overlap_waits_for_copies() -> None:
    beside, apart = (
        parts(context(f"optimizer-offload,offload-overlap={word}"), "tp1 dp8 mbs1 zero1")["step"]
        for word in ("on", "off")
    )
    link = context().cluster.device.host_bytes_per_s or context().cluster.host["bytes_per_s_per_device"]
    states = float(score(context(), table_of([parse_strategy("tp1 dp8 mbs1 zero1")])).memory_bytes["optimizer"][0])
    assert apart - beside == pytest.approx(states / link)


def test_states_that_the_host_has_no_room_for_stay() -> None:
    strategy = table_of([parse_strategy("tp1 dp8 mbs1 zero1")])
    full = score(context("optimizer-offload", host_bytes=1e9), strategy)
    assert float(full.memory_bytes["optimizer"][0]) > 1e10
    unknown = score(context("optimizer-offload", host_bytes=None), strategy)
    assert float(unknown.memory_bytes["optimizer"][0]) == 0.0


def test_activations_on_the_host_leave_three_layers_on_the_device() -> None:
    off, on = (parts(context(switches), "tp1 dp8 mbs1") for switches in ("", "activation-offload"))
    assert on["activations"] == pytest.approx(off["activations"] * 3 / 32)
    assert on["step"] >= off["step"]
    full = parts(context("activation-offload", host_bytes=1e9), "tp1 dp8 mbs1")
    assert full["activations"] == off["activations"]


def test_copies_that_take_longer_than_a_layer_are_waited_for() -> None:
    """Short sequences have little attention to hide them behind; recomputed layers have little to copy."""
    waits = [
        parts(context("activation-offload"), f"tp1 dp8 mbs1{more}")["step"]
        / parts(context(), f"tp1 dp8 mbs1{more}")["step"]
        for more in ("", " recompute=full")
    ]
    assert waits[0] > waits[1] == 1.0


def test_a_chunked_loss_has_as_many_logits_as_hidden_activations() -> None:
    off, on = (parts(context(switches, seq_len=65536), "tp1 dp8 mbs1") for switches in ("", "chunked-loss"))
    assert off["logits"] > 5 * on["logits"]
    tokens, hidden, vocab = 65536, 4096, 128256
    chunks = np.ceil(vocab / hidden)
    # The switch brings the fused loss, which keeps no copy in fp32.
    assert on["logits"] == pytest.approx(4 * tokens * hidden + 2 * vocab * hidden + 2 * tokens * vocab / chunks)


def test_heads_take_less_traffic_than_keys_of_many_ranks() -> None:
    """Eight ranks: a ring brings 7/8 of all keys to each, all-to-all an eighth of all heads of the rank's tokens."""
    ring, heads = (
        parts(context(switches, seq_len=131072), "tp1 cp8 mbs1 zero1") for switches in ("", "cp-exchange=a2a")
    )
    assert heads["context"] > 0.0
    assert heads["compute"] < ring["compute"]  # no partial softmax to merge after every step


@pytest.mark.parametrize(("tp", "cp", "illegal"), [(1, 32, False), (2, 32, True), (8, 1, False), (1, 64, True)])
def test_heads_must_be_shared_by_tensor_and_context_ranks(tp: int, cp: int, illegal: bool) -> None:
    columns = {"tp": np.array([tp]), "cp": np.array([cp])}
    assert bool(HEADS.illegal(columns, context("cp-exchange=a2a"))[0]) == illegal
    assert not HEADS.illegal(columns, context())[0]
    if illegal:
        assert "32 heads are not divisible by tp*cp" in HEADS.message({"tp": tp, "cp": cp}, context("cp-exchange=a2a"))
