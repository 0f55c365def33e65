"""Memory against published formulas: activations of a GPT layer (Korthikanti et al., arXiv 2205.05198, section 4) and
states under ZeRO (Rajbhandari et al., arXiv 1910.02054, section 3)."""

from dataclasses import replace

import numpy as np
import pytest
from forerun_examples import moe_model, request

from forerun.simulator import ScoreTable, score
from forerun.simulator.layer.widths import padded_vocab
from forerun.spaces.clusters.device import load_device
from forerun.spaces.models import parameter_count
from forerun.spaces.models.model import Attention, FeedForward, Layer, Model
from forerun.spaces.schedules.catalogue import SCHEDULES
from forerun.spaces.schedules.contract import Keeping
from forerun.spaces.strategies import Context, Recompute, Schedule, Strategy, table_of

S, B, H, A, LAYERS = 1024, 2, 512, 8, 8
"""Sequence, microbatch, hidden size, heads and layers; names as in the paper."""
SBH = float(S * B * H)
SCORES = float(A * S * S * B)


def gpt(layers: int = LAYERS) -> Model:
    attention = Attention(heads=A, kv_heads=A, head_dim=H // A, value_head_dim=H // A)
    layer = Layer(name="gpt", count=layers, mixer=attention, mlp=FeedForward(hidden=4 * H, gated=False), norm_bias=True)
    return Model(name="gpt", source="test", hidden=H, vocab=1024, layers=(layer,), learned_positions=S)


def context(*, attention: str = "fused_softmax", dropout: bool = True, eager: tuple[str, ...] = ()) -> Context:
    plain = request(gpt(), framework="generic", seq_len=S)
    profile = replace(plain.framework, attention=attention, dropout=dropout, eager=eager, gradient_bytes=4.0)
    return replace(plain, framework=profile)


def scored(setting: Context, **strategy: object) -> ScoreTable:
    return score(setting, table_of([Strategy(**{"mbs": B, **strategy})]))  # type: ignore[arg-type]


def activations(setting: Context, **strategy: object) -> float:
    return float(scored(setting, **strategy).memory_bytes["activations"][0])


def test_a_layer_keeps_34_sbh_and_5_as2b() -> None:
    """Attention 11 sbh, MLP 19 sbh, norms 4 sbh; softmax, its dropout mask and the dropped-out softmax 5 as2b; the
    embedding's dropout mask sbh."""
    assert activations(context()) == pytest.approx(LAYERS * (34 * SBH + 5 * SCORES) + SBH, rel=1e-12)


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_ranks_cut_24_sbh_and_the_scores(tp: int) -> None:
    each = 10 * SBH + 24 * SBH / tp + 5 * SCORES / tp

    assert activations(context(), tp=tp) == pytest.approx(LAYERS * each + SBH, rel=1e-12)


@pytest.mark.parametrize("tp", [2, 8])
def test_sequence_parallel_cuts_everything(tp: int) -> None:
    each = (34 * SBH + 5 * SCORES) / tp

    assert activations(context(), tp=tp, sp=True) == pytest.approx(LAYERS * each + SBH / tp, rel=1e-12)


def test_selective_recompute_leaves_the_scores_out() -> None:
    found = scored(context(), tp=2, sp=True, recompute=Recompute.SELECTIVE)

    assert found.memory_bytes["activations"][0] == pytest.approx(LAYERS * 34 * SBH / 2 + SBH / 2, rel=1e-12)
    assert found.memory_bytes["working"][0] == pytest.approx(5 * SCORES / 2 + (8 + 2) * SBH / 2, rel=1e-12)


def test_full_recompute_keeps_the_input_of_every_layer() -> None:
    found = scored(context(), recompute=Recompute.FULL)

    assert found.memory_bytes["activations"][0] == pytest.approx(LAYERS * 2 * SBH + SBH, rel=1e-12)
    assert found.memory_bytes["working"][0] == pytest.approx(34 * SBH + 5 * SCORES + (8 + 2) * SBH, rel=1e-12)


def test_flash_attention_keeps_a_number_per_query_instead_of_the_scores() -> None:
    each = 34 * SBH + 4.0 * A * S * B

    assert activations(context(attention="flash")) == pytest.approx(LAYERS * each + SBH, rel=1e-12)


def test_without_dropout_no_masks_are_kept() -> None:
    """Three masks less: two of sbh, one of as2b with the dropped-out softmax of 2 as2b beside it."""
    assert activations(context(dropout=False)) == pytest.approx(LAYERS * (32 * SBH + 2 * SCORES), rel=1e-12)


def test_an_unfused_softmax_keeps_its_fp32_values_and_its_mask() -> None:
    each = 34 * SBH + (5 + 4 + 1) * SCORES

    assert activations(context(attention="unfused")) == pytest.approx(LAYERS * each + SBH, rel=1e-12)


def test_an_unfused_softmax_in_16_bit_keeps_what_a_fused_one_keeps() -> None:
    assert activations(context(attention="unfused_half")) == activations(context())


def test_devices_before_ampere_keep_their_scores() -> None:
    """FlashAttention does not run there: a fused softmax takes its place, unless an older kernel is named."""
    newer = context(attention="flash", dropout=False)
    half = replace(newer.workload, precision="fp16")
    older = replace(newer, workload=half, cluster=replace(newer.cluster, device=load_device("v100-sxm2-32")))

    assert (newer.attention, older.attention) == ("flash", "fused_softmax")
    assert activations(older) == activations(context(dropout=False)) > activations(newer)
    assert replace(older, framework=replace(older.framework, attention="unfused")).attention == "unfused"


def test_an_eager_gelu_keeps_one_more_tensor() -> None:
    assert activations(context(eager=("gelu",))) == pytest.approx(LAYERS * (42 * SBH + 5 * SCORES) + SBH, rel=1e-12)


def test_context_ranks_cut_the_tokens() -> None:
    """Each holds a quarter of the queries, which see all keys."""
    assert activations(context(), cp=4) == pytest.approx((LAYERS * (34 * SBH + 5 * SCORES) + SBH) / 4, rel=1e-12)


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_the_first_stage_of_1f1b_keeps_as_much_as_one_device_would(pp: int) -> None:
    """It has a pp-th of the layers and pp microbatches in flight (section 4.2.3)."""
    found = scored(context(), pp=pp)

    assert found.peak_stage[0] == 0
    assert found.memory_bytes["activations"][0] == pytest.approx(LAYERS * (34 * SBH + 5 * SCORES) + pp * SBH, rel=1e-12)


def test_interleaving_keeps_more_by_1_plus_pp_minus_1_over_pp_v() -> None:
    """Section 4.2.3: memory of the first stage grows by ``1 + (pp - 1)/(pp vpp)``."""
    pp, vpp = 4, 2
    found = scored(context(), pp=pp, vpp=vpp, schedule=Schedule.INTERLEAVED)
    whole = LAYERS * (34 * SBH + 5 * SCORES)

    assert found.peak_stage[0] == 0
    kept = (whole + pp * SBH) * (1 + (pp - 1) / (pp * vpp))
    assert found.memory_bytes["activations"][0] == pytest.approx(kept, rel=1e-12)


def test_gpipe_keeps_every_microbatch() -> None:
    setting = context()
    microbatches = setting.workload.global_batch / B
    found = scored(setting, pp=2, schedule=Schedule.GPIPE)

    assert found.peak_stage[0] == 1  # the one with the logits
    kept = microbatches * (LAYERS / 2) * (34 * SBH + 5 * SCORES)
    assert found.memory_bytes["activations"][0] == pytest.approx(kept, rel=1e-12)


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("1f1b", [4, 3, 2, 1]),
        ("gpipe", [8, 8, 8, 8]),
        ("interleaved", [5.5, 4.5, 3.5, 2.5]),
        ("zb-h1", [4, 4, 4, 4]),
        ("zb-v", [4, 4, 4, 4]),
        ("dualpipe", [2.5, 2.5, 2.5, 2.5]),
    ],
)
def test_microbatches_in_flight_on_four_stages(name: str, kept: list[float]) -> None:
    """Of eight, in stages; an interleaved rank keeps ``2 (pp - 1 - stage) + (vpp - 1) pp + 1`` halves."""
    (kind,) = (kind for kind in SCHEDULES.values() if kind.name == name)
    pp, vpp, count = np.full(4, 4.0), np.full(4, float(kind.fewest_virtual)), np.full(4, 8.0)
    found = kind.in_flight(np.arange(4.0), pp, vpp, count, uneven=1.0, memory=Keeping())

    assert np.broadcast_to(found, 4).tolist() == kept


def test_an_eager_loss_keeps_further_copies_of_the_logits() -> None:
    made = context(eager=("cross_entropy",))
    fused, eager = (scored(one).memory_bytes["logits"][0] for one in (context(), made))

    assert fused == pytest.approx(4 * SBH + 2 * S * B * 1024)
    assert made.framework.logit_bytes > 0
    assert eager - fused == pytest.approx(made.framework.logit_bytes * S * B * 1024)


def test_expert_ranks_divide_the_routed_experts_alone() -> None:
    made = request(moe_model(), framework="generic")
    one, four = (score(made, table_of([Strategy(dp=8, ep=ep)])).memory_bytes["parameters"][0] for ep in (1, 4))
    routed = 22 * 16 * 3 * 1024 * 1024

    assert one - four == pytest.approx(2 * routed * (1 - 1 / 4))


def test_the_vocabulary_is_padded_to_128_rows_on_every_tensor_rank() -> None:
    model = replace(gpt(), vocab=50257)

    assert padded_vocab(model, np.array([1.0, 8.0])).tolist() == [50304, 51200 / 8]


@pytest.mark.parametrize("replicas", [2, 8])
@pytest.mark.parametrize(
    "zero,cut",
    [(0, ()), (1, ("optimizer",)), (2, ("optimizer", "gradients")), (3, ("optimizer", "gradients", "parameters"))],
)
def test_zero_divides_2_4_and_12_bytes_by_the_replicas(zero: int, cut: tuple[str, ...], replicas: int) -> None:
    """bf16 parameter 2, fp32 gradient 4, fp32 copy and two moments 12 bytes."""
    setting = context()
    found = scored(setting, dp=replicas // 2, cp=2, zero=zero).memory_bytes
    count = parameter_count(setting.model)
    for part, width in (("parameters", 2), ("gradients", 4), ("optimizer", 12)):
        share = replicas if part in cut else 1
        assert found[part][0] == pytest.approx(width * count / share, rel=1e-12), part


def test_fp32_training_keeps_no_second_copy() -> None:
    setting = context()
    device = replace(setting.cluster.device, peak_flops_per_s={"fp32": 67e12})
    setting = replace(
        setting, cluster=replace(setting.cluster, device=device), workload=replace(setting.workload, precision="fp32")
    )
    found = scored(setting).memory_bytes

    assert found["parameters"][0] == 4 * parameter_count(setting.model)
    assert found["gradients"][0] == 4 * parameter_count(setting.model)
    assert found["optimizer"][0] == 8 * parameter_count(setting.model)
