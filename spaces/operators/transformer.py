"""Layers of a transformer as graphs of operators, with their cuts under each form of parallelism.

The forms are tensor, sequence, context and expert parallelism; ``forerun.simulator`` costs a layer as a whole.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from forerun.spaces.errors import RequestError
from forerun.spaces.models.model import Attention, FeedForward, Layer, MixtureOfExperts
from forerun.spaces.operators.axes import Axis, AxisKind, Cut, CutOperator, Operand, follow
from forerun.spaces.operators.graph import OperatorGraph
from forerun.spaces.operators.layers import attention_core, linear, pointwise

ATTENTION_OPERATORS = frozenset({"norm1", "queries", "keys", "values", "core", "projection", "residual1"})
"""Operators of ``transformer_layer`` in its attention; the others are in its MLP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerDegrees:
    """Division of a layer over the ``dp * cp * tp`` devices of a stage, numbered with tp innermost.

    Experts are divided ``ep`` ways over the same devices.
    """

    dp: int = 1
    tp: int = 1
    cp: int = 1
    ep: int = 1
    sp: bool = False

    @property
    def devices(self) -> int:
        """Devices of the stage."""
        return self.dp * self.cp * self.tp


def transformer_layer(layer: Layer, hidden: int, *, sequences: int, seq_len: int) -> OperatorGraph:
    """Return one layer on ``sequences`` sequences of ``seq_len`` tokens, from ``x`` to ``y``.

    Raises:
        RequestError: keys are latent or the layer reads an encoder: these have no operators.
    """
    if layer.attention.latent is not None or layer.cross_attention is not None:
        raise RequestError(f"layer {layer.name}: latent and cross attention have no operator graph")
    tokens = {"batch": sequences, "sequence": seq_len}
    norm = "layernorm" if layer.norm_bias else "rmsnorm"
    parts = [_pass("norm1", norm, tokens, hidden, "x")]
    parts += _attention(layer.attention, tokens, hidden)
    parts.append(_pass("residual1", "residual_add", tokens, hidden, "x", "projection"))
    parts.append(_pass("norm2", norm, tokens, hidden, "residual1"))
    mlp = layer.feed_forward
    parts += _experts(mlp, tokens, hidden) if isinstance(mlp, MixtureOfExperts) else _feed_forward(mlp, tokens, hidden)
    parts.append(_pass("residual2", "residual_add", tokens, hidden, "residual1", "mlp", result="y"))
    return OperatorGraph(name=layer.name, operators=tuple(parts))


def _pass(
    name: str, form: str, tokens: Mapping[str, int], hidden: int, *sources: str, result: str | None = None
) -> CutOperator:
    weight = ("hidden",) if form.endswith("norm") else ()
    return pointwise(
        name,
        form=form,
        batch=tokens,
        axes={},
        opaque={"hidden": hidden},
        sources=sources,
        result=result,
        weight_axes=weight,
    )


def _attention(attention: Attention, tokens: Mapping[str, int], hidden: int) -> list[CutOperator]:
    heads, group = attention.kv_heads, attention.heads // attention.kv_heads
    wide = {"hidden": hidden}
    closed = ("head_dim", "value_dim")
    return [
        linear(
            "queries",
            batch=tokens,
            outputs={"kv_heads": heads, "group": group, "head_dim": attention.head_dim},
            inputs=wide,
            source="norm1",
            opaque=closed,
        ),
        linear(
            "keys",
            batch=tokens,
            outputs={"kv_heads": heads, "head_dim": attention.head_dim},
            inputs=wide,
            source="norm1",
            opaque=closed,
        ),
        linear(
            "values",
            batch=tokens,
            outputs={"kv_heads": heads, "value_dim": attention.value_head_dim},
            inputs=wide,
            source="norm1",
            opaque=closed,
        ),
        attention_core(
            "core",
            batch=tokens["batch"],
            queries=tokens["sequence"],
            keys=tokens["sequence"],
            kv_heads=heads,
            group=group,
            head_dim=attention.head_dim,
            value_head_dim=attention.value_head_dim,
        ),
        linear(
            "projection",
            batch=tokens,
            outputs=wide,
            inputs={"kv_heads": heads, "group": group, "value_dim": attention.value_head_dim},
            source="core",
            opaque=closed,
        ),
    ]


def _feed_forward(mlp: FeedForward, tokens: Mapping[str, int], hidden: int) -> list[CutOperator]:
    wide, inner = {"hidden": hidden}, {"inner": mlp.hidden}
    form = "swiglu" if mlp.gated else "gelu"
    made = [linear("up", batch=tokens, outputs=inner, inputs=wide, source="norm2")]
    sources: tuple[str, ...] = ("up",)
    if mlp.gated:
        made.append(linear("gate", batch=tokens, outputs=inner, inputs=wide, source="norm2"))
        sources = ("up", "gate")
    made.append(pointwise("activation", form=form, batch=tokens, axes=inner, sources=sources))
    made.append(linear("mlp", batch=tokens, outputs=wide, inputs=inner, source="activation"))
    return made


def _experts(mixture: MixtureOfExperts, tokens: Mapping[str, int], hidden: int) -> list[CutOperator]:
    """Routed experts on evenly spread tokens: a token's ``top_k`` copies are assigned to the slots of all experts."""
    # A token's slot is known only at run time, so no tensor connects the two sides: ``routed`` and ``combined`` are
    # inputs of the graph.
    routed = tokens["batch"] * tokens["sequence"] * mixture.top_k
    if routed % mixture.experts:
        raise RequestError(f"{routed} routed tokens do not spread evenly over {mixture.experts} experts")
    slots, experts = {"slots": routed // mixture.experts}, {"experts": mixture.experts}
    inner, wide = {"inner": mixture.expert_hidden}, {"hidden": hidden}
    deal = pointwise("dispatch", form="copy", batch=slots, axes=experts, opaque=wide, sources=("routed",))
    up = _per_expert("up", slots, experts, wide, inner, "dispatch")
    sources: tuple[str, ...] = ("up",)
    made = [deal, up]
    if mixture.gated:
        made.append(_per_expert("gate", slots, experts, wide, inner, "dispatch"))
        sources = ("up", "gate")
    form = "swiglu" if mixture.gated else "gelu"
    made.append(pointwise("activation", form=form, batch=slots, axes={**experts, **inner}, sources=sources))
    made.append(_per_expert("down", slots, experts, inner, wide, "activation"))
    made.append(pointwise("combine", form="copy", batch=slots, axes=experts, opaque=wide, sources=("down",)))
    made.append(_pass("mlp", "copy", tokens, hidden, "combined"))
    return made


def _per_expert(
    name: str,
    slots: Mapping[str, int],
    experts: Mapping[str, int],
    inputs: Mapping[str, int],
    outputs: Mapping[str, int],
    source: str,
) -> CutOperator:
    """Return one product per expert: input, weight and output all have the axis of experts."""
    axes = [Axis(name=axis, size=size, kind=AxisKind.BATCH) for axis, size in slots.items()]
    axes += [Axis(name=axis, size=size, kind=AxisKind.PARALLEL) for axis, size in (*experts.items(), *outputs.items())]
    axes += [Axis(name=axis, size=size, kind=AxisKind.REDUCE) for axis, size in inputs.items()]
    return CutOperator(
        name=name,
        kind="linear",
        form="contraction",
        axes=tuple(axes),
        inputs=(Operand(name=source, dimensions=follow((*slots, *experts, *inputs))),),
        weights=(Operand(name=f"{name}.weight", dimensions=follow((*experts, *inputs, *outputs))),),
        output=Operand(name=name, dimensions=follow((*slots, *experts, *outputs))),
    )


def layer_cuts(operator: CutOperator, degrees: LayerDegrees) -> tuple[Cut, ...]:
    """Return the cuts of one operator of ``transformer_layer`` over the devices of a stage, outermost first."""
    names = {axis.name for axis in operator.axes}
    if "experts" in names:
        shards = degrees.devices // degrees.ep
        if operator.name in ("dispatch", "combine"):
            return (Cut(axis="slots", degree=degrees.devices),)
        return (Cut(axis="slots", degree=shards), Cut(axis="experts", degree=degrees.ep))
    outer = (Cut(axis="batch", degree=degrees.dp), Cut(axis="sequence", degree=degrees.cp))
    if "inner" in names:
        return (*outer, Cut(axis="inner", degree=degrees.tp))
    if "kv_heads" in names:
        heads = operator.axis("kv_heads").size
        first = min(degrees.tp, heads)
        more = degrees.tp // first
        rest = Cut(axis="group" if "group" in names else None, degree=more)
        return (*outer, Cut(axis="kv_heads", degree=first), *((rest,) if more > 1 else ()))
    return (*outer, Cut(axis="sequence" if degrees.sp else None, degree=degrees.tp))
