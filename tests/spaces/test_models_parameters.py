"""Parameters by kind, each expected value derived from small named numbers."""

from dataclasses import replace

import pytest

from forerun.spaces.models import (
    Attention,
    FeedForward,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    Model,
    active_parameters,
    embedding_parameters,
    head_parameters,
    layer_parameters,
    load_model,
    mtp_block_parameters,
    parameter_count,
)

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER = 12, 6, 2, 4, 20
GROUPED = Attention(heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, value_head_dim=HEAD_DIM)
QUERY, KEY_VALUE = HEADS * HEAD_DIM, 2 * KV_HEADS * HEAD_DIM
GATED = FeedForward(hidden=INNER, gated=True)
MIXTURE = MixtureOfExperts(experts=8, top_k=2, expert_hidden=5, gated=True)
MODEL = Model(
    name="small", source="test", hidden=HIDDEN, vocab=100, layers=(Layer(name="x", count=3, mixer=GROUPED, mlp=GATED),)
)


def layer(attention: Attention = GROUPED, mlp: FeedForward | MixtureOfExperts = GATED, **fields: object) -> Layer:
    return replace(Layer(name="x", count=3, mixer=attention, mlp=mlp), **fields)  # type: ignore[arg-type]


def test_grouped_attention_and_gated_mlp() -> None:
    kinds = layer_parameters(layer(), HIDDEN)

    assert kinds.mixer == HIDDEN * QUERY + HIDDEN * KEY_VALUE + QUERY * HIDDEN
    assert kinds.mlp_dense == 3 * HIDDEN * INNER
    assert kinds.replicated == 2 * HIDDEN
    assert kinds.experts_total == kinds.router == 0


def test_row_parallel_biases_and_norms_are_replicated() -> None:
    attention = replace(GROUPED, query_key_value_bias=True, output_bias=True, query_key_norm=True)
    mlp = FeedForward(hidden=INNER, gated=False, bias=True)
    kinds = layer_parameters(layer(attention, mlp, norm_bias=True, norms=4), HIDDEN)
    plain = layer_parameters(layer(), HIDDEN)

    assert kinds.mixer == plain.mixer + QUERY + KEY_VALUE
    assert kinds.mlp_dense == 2 * HIDDEN * INNER + INNER
    assert kinds.replicated == HIDDEN + HIDDEN + 2 * HEAD_DIM + 4 * 2 * HIDDEN


@pytest.mark.parametrize("query_rank", [None, 7])
def test_latent_attention(query_rank: int | None) -> None:
    rank, rope, value = 6, 3, 5
    nope = HEAD_DIM - rope
    latent = LatentAttention(query_rank=query_rank, key_value_rank=rank, rope_head_dim=rope)
    attention = Attention(heads=HEADS, kv_heads=HEADS, head_dim=HEAD_DIM, value_head_dim=value, latent=latent)
    kinds = layer_parameters(layer(attention), HIDDEN)

    up = rank * HEADS * (nope + value) + HEADS * value * HIDDEN
    down = HIDDEN * (rank + rope) + rank
    if query_rank is None:
        up += HIDDEN * HEADS * HEAD_DIM
    else:
        up += query_rank * HEADS * HEAD_DIM
        down += HIDDEN * query_rank + query_rank
    assert kinds.mixer == up
    assert kinds.replicated == down + 2 * HIDDEN


def test_mixture_counts_experts_router_shared_and_gate() -> None:
    mlp = replace(MIXTURE, shared_hidden=11, shared_gate=True, router_bias=True, expert_bias=True)
    kinds = layer_parameters(layer(mlp=mlp), HIDDEN)

    assert kinds.experts_total == 8 * (3 * HIDDEN * 5 + 2 * 5 + HIDDEN)
    assert kinds.router == 8 * HIDDEN + 8
    assert kinds.mlp_dense == 3 * HIDDEN * 11
    assert kinds.replicated == 2 * HIDDEN + HIDDEN


def test_cross_attention_is_a_second_attention() -> None:
    kinds = layer_parameters(layer(cross_attention=GROUPED), HIDDEN)

    assert kinds.mixer == 2 * layer_parameters(layer(), HIDDEN).mixer


def test_tying_saves_exactly_the_head() -> None:
    tied = replace(MODEL, tied_embeddings=True)

    assert parameter_count(MODEL) - parameter_count(tied) == 100 * HIDDEN
    assert head_parameters(tied) == HIDDEN


def test_the_parts_add_up() -> None:
    model = load_model("deepseek-v3")
    layers = sum(entry.count * layer_parameters(entry, model.hidden).total for entry in model.layers)
    blocks = mtp_block_parameters(model).total

    assert parameter_count(model) == embedding_parameters(model) + layers + blocks + head_parameters(model)


def test_embedding_side_tables() -> None:
    model = replace(MODEL, learned_positions=9, token_types=2, embedding_norm=True, patch_inputs=48)

    assert embedding_parameters(model) == (100 + 9 + 2) * HIDDEN + HIDDEN + (48 + 1) * HIDDEN


def test_head_side_tables() -> None:
    model = replace(MODEL, head_transform=True, lm_head_bias=True, classes=10, final_norm=False)

    assert head_parameters(model) == HIDDEN * HIDDEN + HIDDEN + HIDDEN + 100 * HIDDEN + 100 + 10 * (HIDDEN + 1)


# Published active counts: DeepSeek-V3 and -V2 abstracts; Mixtral paper (arXiv 2401.04088, section 1: 13 B).
@pytest.mark.parametrize(
    ("name", "active"),
    [("deepseek-v3", 37e9), ("deepseek-v2", 21e9), ("mixtral-8x7b", 12.9e9), ("mixtral-8x22b", 39e9)],
)
def test_active_parameters_match_the_published(name: str, active: float) -> None:
    assert active_parameters(load_model(name), mtp=False) == pytest.approx(active, rel=0.02)


def test_a_dense_model_is_wholly_active() -> None:
    assert active_parameters(MODEL) == parameter_count(MODEL)
