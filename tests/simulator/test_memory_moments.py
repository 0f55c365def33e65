"""Memory at its moments: the loss, the head's backward pass and that of a layer; gradients that nothing reads."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from forerun_examples import request

from forerun.search.measured.validate import load_runs
from forerun.search.measured.validate.predict import predict
from forerun.simulator import score
from forerun.simulator.assignment.memory import memory_by_stage
from forerun.spaces.frameworks import load_framework
from forerun.spaces.strategies import Context, parse_strategy, table_of

MEASURED = Path(__file__).resolve().parents[2] / "benchmarks" / "measured"
H, INNER, VOCAB = 1024, 4096, 32000
"""``forerun_examples.dense_model``: 16 query and 8 key heads of 64."""


def context(**facts: object) -> Context:
    base = request()
    return replace(base, framework=replace(load_framework("megatron-lm"), **facts))  # type: ignore[arg-type]


def parts(made: Context, text: str) -> dict[str, float]:
    found = score(made, table_of([parse_strategy(text)]))
    return {part: float(values[0]) for part, values in found.memory_bytes.items()}


def test_states_that_lie_in_one_buffer_leave_no_gaps() -> None:
    """The share is then lost of what comes and goes alone."""
    together, gaps = (parts(context(fragmentation=0.2, states_fragment=some), "dp8 mbs4") for some in (False, True))
    moving = sum(together[part] for part in ("activations", "working", "logits"))
    states = sum(together[part] for part in ("parameters", "gradients", "optimizer", "buffers"))
    assert gaps["reserve"] - together["reserve"] == pytest.approx(0.2 * states)
    none = parts(context(fragmentation=0.0), "dp8 mbs4")
    assert together["reserve"] - none["reserve"] == pytest.approx(0.2 * moving)


@pytest.mark.parametrize("tp", [1, 2, 8])
def test_one_unused_gradient_per_shape_of_a_weight(tp: int) -> None:
    """qkv, projection, gate with up, and down, in bf16, however many layers there are."""
    shapes = H * (16 + 2 * 8) * 64 + 16 * 64 * H + 2 * INNER * H + INNER * H
    strategy = f"tp{tp} dp{8 // tp} mbs1"
    held, none = (parts(context(dummy_gradients=some), strategy)["buffers"] for some in (True, False))
    assert held - none == pytest.approx(2 * shapes / tp)


def test_products_that_do_not_add_up_leave_no_unused_gradient() -> None:
    strategy = "tp2 dp4 mbs1"
    plain = parts(context(dummy_gradients=False), strategy)["buffers"]
    assert parts(context(fused_accumulation=False), strategy)["buffers"] == plain


def test_loss_and_backward_pass_of_a_layer_are_two_moments() -> None:
    made = context(holds_logits=False, dummy_gradients=False)
    tokens = made.workload.seq_len
    first = parts(made, "tp1 dp8 mbs1")
    assert (first["working"], first["logits"]) == (0.0, pytest.approx(tokens * (4 * H + 6 * VOCAB)))
    both = parts(replace(made, framework=replace(made.framework, holds_logits=True)), "tp1 dp8 mbs1")
    assert both["logits"] == first["logits"]
    assert both["working"] == pytest.approx(2 * tokens * (H + 2 * INNER))


def test_a_large_head_peaks_at_its_weight_gradient() -> None:
    """Few tokens, many rows: 2 bytes per weight outweigh 4 more per logit."""
    made = context()
    short = replace(made, workload=replace(made.workload, seq_len=128))
    rows, tokens = VOCAB, 128
    found = parts(short, "tp1 dp8 mbs1")["logits"]
    assert found == pytest.approx(4 * H * tokens + 2 * (rows * tokens + rows * H + H * tokens))


def test_a_first_stage_has_no_loss() -> None:
    first, *_, last = memory_by_stage(context(), parse_strategy("tp1 pp4 dp2 mbs1"))
    assert first["working"] > 0.0 == first["logits"]
    assert last["logits"] > 0.0 == last["working"]


def test_peaks_of_megatron_on_b200_are_right_within_one_per_cent() -> None:
    runs = load_runs([MEASURED / "simumax_b200.csv"]).runs
    known = np.array([run.peak_memory_bytes for run in runs])
    errors = np.abs(predict(runs).comparable_memory_bytes / known - 1)
    assert len(runs) == 24
    assert errors.mean() < 0.01 and errors.max() < 0.03
