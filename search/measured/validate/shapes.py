"""Columns about shape -> a model."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from forerun.search.measured.validate.cells import Filled, Skip, integer, required
from forerun.search.measured.validate.columns import TableRow
from forerun.search.measured.validate.facts import Facts
from forerun.search.measured.validate.vocabulary import bare, every, first, table
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model, model_names, resolve_model, transformer
from forerun.spaces.models.model import Model

FEW_EXPERTS = 16
"""Most experts with the width of the replaced MLP (Mixtral, GShard); models with more experts have narrower ones."""
USUAL_HEAD = 128
LLAMA_VOCAB, GPT_VOCAB = 32000, 50257
"""Vocabularies of Llama 2 and GPT-2, adopted by most models of their time."""
VOCAB_MULTIPLE = 128
"""Megatron-LM arguments.py --make-vocab-size-divisible-by (times tp, which changes the head by under 2 %)."""


def model_of(row: TableRow, facts: Facts, filled: Filled) -> Model:
    """Return the model of a row; equal shapes give the same object.

    Raises:
        Skip: the shape is incomplete or cannot be expressed.
    """
    name = bare(row["model"])
    if not any(row[column] for column in ("layers", "hidden", "heads")):
        model = _named(row["model"]) or _named(name)  # the folder of a file's path is in the position of a publisher
        if model is not None:
            return model
    if skipped := first(table("models", "skip"), name):
        raise Skip(skipped[0]["reason"])
    if skipped := first(table("models", "catalogue"), name):
        return _from_catalogue(row, skipped[0], filled)
    return _from_columns(row, facts, filled)


def _from_catalogue(row: TableRow, entry: Mapping[str, Any], filled: Filled) -> Model:
    """Return the catalogue's model of that name if the columns do not contradict it."""
    try:
        model = _catalogued(entry["name"], entry.get("mtp"))
    except RequestError:
        raise Skip("model not in the catalogue") from None
    filled.of("catalogue", None)
    if (hidden := integer(row, "hidden")) and hidden != model.hidden:
        raise Skip("hidden contradicts the published model")
    layers = integer(row, "layers")
    if layers and layers != model.layer_count:
        filled.of("truncated", None)
        return _cut(model, layers)
    return model


def _from_columns(row: TableRow, facts: Facts, filled: Filled) -> Model:
    """Return a model of the shape in the columns."""
    family = every(table("models", "facts"), bare(row["model"]))
    layers, hidden = (required(row, column, "shape") for column in ("layers", "hidden"))
    heads = _heads(row, hidden, filled)
    seq_len = required(row, "seq_len", "shape")
    ffn_hidden, gated = _feed_forward(row, hidden, filled)
    experts = integer(row, "moe_experts") or 0
    top_k = (required(row, "moe_topk", "shape") if experts else 0) or 0
    if experts:
        filled.of("moe_imbalance", None)
    vocab = integer(row, "vocab") or filled.of("vocab", family.get("vocab", LLAMA_VOCAB if gated else GPT_VOCAB))
    if vocab % VOCAB_MULTIPLE:
        vocab = filled.of("vocab_padding", -(-vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE)
    filled.of("family", None)
    tied = facts.tied if facts.tied is not None else family.get("tied", not gated)
    return _transformer(
        row["model"],
        layers=layers,
        hidden=hidden,
        ffn_hidden=ffn_hidden,
        heads=heads,
        kv_heads=integer(row, "kv_heads") or filled.of("kv_heads", heads),
        vocab=vocab,
        gated=gated,
        tied=tied,
        learned_positions=seq_len if family.get("learned_positions", not gated) else 0,
        rotary=family.get("rotary", True),
        bias=family.get("bias", not gated),
        norm_bias=not gated,
        causal=family.get("causal", True),
        bert=family.get("bert", False),
        mtp=family.get("mtp", 0),
        experts=experts,
        top_k=top_k,
        expert_hidden=_expert_hidden(row, hidden, ffn_hidden, experts, top_k, filled) if experts else None,
        shared_hidden=integer(row, "shared_hidden") or 0,
    )


def _heads(row: TableRow, hidden: int, filled: Filled) -> int:
    """Return the heads of a row."""
    if not row["heads"] and hidden % USUAL_HEAD == 0:
        shared = integer(row, "kv_heads") or 1  # one per key/value head if heads of 128 are not divisible by them
        usual = hidden // USUAL_HEAD
        return filled.of("heads", usual if usual % shared == 0 else shared)
    return required(row, "heads", "shape")


def _expert_hidden(row: TableRow, hidden: int, ffn_hidden: int, experts: int, top_k: int, filled: Filled) -> int:
    """Return the width of an expert.

    A column ``ffn_hidden`` that is wide for many experts is the width of the model's dense MLPs, about the total width
    of a token's experts (DeepSeek-V2 and V3, Qwen3, Kimi K2).
    """
    if stated := integer(row, "expert_hidden"):
        return stated
    shared = experts > FEW_EXPERTS and ffn_hidden > 2 * hidden
    return filled.of("expert_hidden", ffn_hidden // top_k if shared else ffn_hidden)


def _feed_forward(row: TableRow, hidden: int, filled: Filled) -> tuple[int, bool]:
    """Return inner width and gate of the MLP."""
    width, gate = integer(row, "ffn_hidden"), row["gated_mlp"].lower()
    if gate not in ("", "0", "1", "true", "false"):
        raise Skip("gated_mlp is neither 0 nor 1")
    if width and not gate:
        return width, filled.of("gated_mlp", width != 4 * hidden)
    gated = gate in ("1", "true")
    if width:
        return width, gated
    return filled.of("ffn_hidden", 8 * hidden // 3 // 64 * 64 if gated else 4 * hidden), gated


@cache
def _named(name: str) -> Model | None:
    """Return the catalogue or file model named by a row without a shape."""
    known = {_letters(one): one for one in model_names()}
    try:
        return resolve_model(known.get(_letters(name), name)).model
    except RequestError:
        return None


def _letters(name: str) -> str:
    """Return a name without case and punctuation.

    >>> _letters("Meta-Llama 3.1-8B") == _letters("llama3-8b")
    True
    """
    return re.sub(r"(?<=llama3)1|(?<=llama3)\.1|^meta|[^a-z0-9.]", "", re.sub(r"[-_ ]", "", name.lower()))


@cache
def _catalogued(name: str, mtp: int | None) -> Model:
    model = load_model(name)
    return model if mtp is None else replace(model, mtp_layers=mtp)


@cache
def _cut(model: Model, layers: int) -> Model:
    """Return a model with another number of layers: the last entries lose layers, or the last entry gains layers.

    Raises:
        Skip: fewer layers than the leading kinds have.
    """
    left, entries = layers, []
    for entry in model.layers:
        count = min(entry.count, left)
        if count:
            entries.append(replace(entry, count=count))
        left -= count
    if left:
        entries[-1] = replace(entries[-1], count=entries[-1].count + left)
    return replace(model, layers=tuple(entries))


@cache
def _transformer(name: str, *, bert: bool, mtp: int, **shape: Any) -> Model:
    try:
        model = transformer(name, **shape)
    except RequestError as error:
        raise Skip(f"shape that is no transformer ({error})") from None
    model = replace(model, mtp_layers=mtp)
    return replace(model, token_types=2, head_transform=True) if bert else model
