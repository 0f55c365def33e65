"""Experts from the fields of a configuration: their number, width and layers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from forerun.spaces.errors import RequestError
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.formulas import Count, Formula
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.models.shapes import check_top_k


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """The properties of a family's experts that are fixed in code.

    ``width``: field of their inner width if not ``moe_intermediate_size``. ``grouped``: routing is limited to groups
    (``n_group``).
    """

    gated: bool = True
    router_bias: bool = False
    expert_bias: bool = False
    shared_gate: bool = False
    grouped: bool = False
    width: str = "moe_intermediate_size"
    from_last: bool = False
    where: Count | None = None
    """Whether a layer, given its number as ``index``, has experts where the usual fields do not exclude them."""


def per_layer(fields: Fields, traits: Experts, count: int) -> list[MixtureOfExperts | None]:
    """Return the experts of each of ``count`` layers, None where a layer is dense."""
    if not fields.optional_size("num_local_experts", least=0):
        fields.raw(traits.width)  # width without experts
        return [None] * count
    experts = mixture(fields, traits)
    sparse = sparse_layers(fields, traits, count)
    if traits.where is not None:
        sparse = [one and bool(traits.where(fields, index=index)) for index, one in enumerate(sparse)]
    return [experts if one else None for one in sparse]


def experts_of(entry: Mapping[str, Any]) -> Experts:
    """Make the traits of a table's entry."""
    where = entry.get("where")
    return Experts(**{**entry, "where": None if where is None else Formula(where)})


def mixture(fields: Fields, traits: Experts) -> MixtureOfExperts:
    """Read the routed and shared experts of the configuration."""
    experts, top_k = fields.size("num_local_experts"), fields.size("num_experts_per_tok")
    check_top_k(fields.source, experts, top_k)
    widths = fields.listed_or_none(traits.width, int)  # of experts for text, and for images (ERNIE 4.5 VL)
    inner = widths[0] if widths else fields.optional_size(traits.width)
    # Mixtral and gpt-oss name the width of an expert `intermediate_size`.
    inner = fields.size("intermediate_size") if inner is None else inner
    groups = fields.size("n_group", 1) if traits.grouped else 1
    top_groups = fields.size("topk_group", groups) if traits.grouped else 1
    if top_groups > groups:
        raise RequestError(f"{fields.source}: topk_group <= n_group must hold, but got ({top_groups}, {groups})")
    shared = _shared(fields, inner)
    return MixtureOfExperts(
        experts=experts,
        top_k=top_k,
        expert_hidden=inner,
        gated=traits.gated,
        shared_hidden=shared,
        shared_gate=traits.shared_gate and shared > 0,
        router_bias=traits.router_bias,
        expert_bias=traits.expert_bias,
        groups=groups,
        top_groups=top_groups,
    )


def _shared(fields: Fields, inner: int) -> int:
    """Return the inner width of all shared experts, given as a width or as a number of experts."""
    width = fields.optional_size("shared_expert_intermediate_size", least=0)
    number = fields.optional_size("n_shared_experts", least=0)
    if width is not None:
        return width * (1 if number is None else number)
    return (number or 0) * inner


def sparse_layers(fields: Fields, traits: Experts, count: int) -> Sequence[bool]:
    """Mark the layers with experts.

    Sources, in order: ``mlp_layer_types``, the number of leading dense layers, the period of sparse layers, the list of
    dense layers.
    """
    types = fields.listed("mlp_layer_types", str, length=count)
    frequency = fields.listed_or_none("moe_layer_freq", int)
    first = fields.size("first_k_dense_replace", 0, least=0)
    dense = set(fields.listed("mlp_only_layers", int) or ())
    step = fields.optional_size("decoder_sparse_step")
    every = None if frequency is not None else fields.optional_size("moe_layer_freq")
    if types is not None:
        return [kind == "sparse" for kind in types]
    if frequency is not None:
        if len(frequency) != count:
            raise RequestError(
                f"{fields.source}: moe_layer_freq must have one entry for each of {count} layers, "
                f"but got {len(frequency)}"
            )
        return [bool(one) for one in frequency]
    period = step or every or 1
    # Qwen counts the first sparse layer from the end of a period, DeepSeek from its start.
    offset = 1 if step or (traits.from_last and not every) else 0
    return [index >= first and index not in dense and (index + offset) % period == 0 for index in range(count)]
