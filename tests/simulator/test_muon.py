"""Muon: one momentum for matrices, five Newton-Schulz steps shared by replicas, Adam for all else."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.simulator import score
from forerun.simulator.costs import gemm_time_s
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import load_framework, parse_switches, switched
from forerun.spaces.models import load_model
from forerun.spaces.models.tuning import tuned
from forerun.spaces.strategies import Context, parse_strategy, table_of
from forerun.spaces.workload import Workload

H, QKV, INNER, LAYERS = 4096, (4096, 1024, 1024), 14336, 32
MATRICES = LAYERS * (H * sum(QKV) + H * H + 3 * H * INNER)
"""Llama 3 8B without tables and norms."""


def context(switches: str = "optimizer=muon", model: str = "llama3-8b") -> Context:
    profile = load_framework("megatron-lm")
    return Context(
        model=load_model(model),
        cluster=load_cluster("dgx-h100"),
        workload=Workload(global_batch=64, seq_len=4096),
        framework=switched(profile, parse_switches([switches])) if switches else profile,
    )


def scored(made: Context, text: str) -> tuple[float, float]:
    """Return bytes of optimizer states and seconds of the update."""
    scores = score(made, table_of([parse_strategy(text)]))
    return float(scores.memory_bytes["optimizer"][0]), float(scores.time_s["optimizer"][0])


def test_matrices_have_one_momentum() -> None:
    (adam, _), (muon, _) = scored(context(""), "tp1 dp8 mbs1"), scored(context(), "tp1 dp8 mbs1")
    assert adam - muon == pytest.approx(4 * MATRICES)


def test_every_matrix_is_made_orthogonal_by_itself() -> None:
    device = context().cluster.device

    def steps_s(rows: int, columns: int) -> float:
        short, long = min(rows, columns), max(rows, columns)
        sizes = ((short, short, long), (short, short, short), (short, long, short))
        return 5 * sum(float(gemm_time_s(device, "bf16", *(np.array(float(n)) for n in size))) for size in sizes)

    layer_s = sum(steps_s(H, width) for width in QKV) + steps_s(H, H) + 3 * steps_s(H, INNER)
    (_, adam_s), (_, muon_s) = scored(context(""), "tp1 dp8 mbs1"), scored(context(), "tp1 dp8 mbs1")
    assert muon_s - adam_s == pytest.approx(LAYERS * layer_s, rel=1e-6)


def test_replicas_that_share_states_share_the_matrices() -> None:
    (_, alone_s), (_, shared_s) = scored(context(), "tp1 dp8 mbs1"), scored(context(), "tp1 dp8 mbs1 zero1")
    assert shared_s < alone_s / 2
    assert shared_s > scored(context(""), "tp1 dp8 mbs1 zero1")[1]


def test_experts_are_made_orthogonal_where_they_are() -> None:
    whole, cut = (scored(context(model="mixtral-8x7b"), f"tp1 dp8 ep{ep} mbs1") for ep in (1, 8))
    assert cut[0] < whole[0] and cut[1] < whole[1] / 4


def test_frozen_matrices_have_nothing_to_update() -> None:
    made = context()
    frozen = replace(made, model=tuned(made.model, "8", ()))
    adam = replace(context(""), model=frozen.model)
    assert scored(frozen, "tp1 dp8 mbs1") == scored(adam, "tp1 dp8 mbs1")


def test_the_host_updates_by_adam_only() -> None:
    with pytest.raises(RequestError, match="requires optimizer=adam"):
        context("optimizer=muon,optimizer-offload")
