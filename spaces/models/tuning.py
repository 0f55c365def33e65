"""Fine-tuning: low-rank adapters of frozen matrices (LoRA, arXiv 2106.09685), and frozen parts of a model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.models.model import FeedForward, Layer, MixtureOfExperts, Model, Trains
from forerun.spaces.models.parts import Product

TARGETS = ("attention", "mlp", "experts")
"""Products that may have adapters: those of mixers, of dense feed-forwards and shared experts, of routed experts."""
DEFAULT_TARGETS = ("attention", "mlp")
LARGEST_RANK = 4096
ENDS = ("embedding", "head")


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapted:
    """A product with an adapter of ``rank * (inputs + outputs)`` parameters; ``routed``: one in every routed expert."""

    product: Product
    outputs: int
    routed: bool

    @property
    def inputs(self) -> int:
        """Columns that the adapter reads."""
        return self.product.inputs.whole


@dataclass(frozen=True, slots=True)
class Tuning:
    """The trained part of a model: adapters of ``rank`` (0: none) on ``targets``, and all except ``frozen`` parts."""

    rank: int = 0
    targets: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()

    @property
    def lora(self) -> str | None:
        """The adapters in the notation of ``tuned``."""
        return f"{self.rank}:{'+'.join(self.targets)}" if self.rank else None

    def __str__(self) -> str:
        """Return the text form; empty if the entire model is trained."""
        adapters = [f"adapters of rank {self.rank} beside {' and '.join(self.targets)}"] if self.rank else []
        return ", ".join([*adapters, *(f"{part} frozen" for part in self.frozen)])


def tuning_of(model: Model) -> Tuning:
    """Return the trained part of a model in its shortest form.

    >>> from forerun.spaces.models import load_model
    >>> str(tuning_of(tuned(load_model("llama3-8b"), "8:attention", ())))
    'adapters of rank 8 beside attention'
    """
    adapted = next((layer for layer in model.layers if layer.adapter_rank), None)
    if adapted is None:
        still = dict.fromkeys(layer.name for layer in model.layers if layer.trains in ("inputs", "nothing"))
        return Tuning(frozen=(*still, *model.frozen_ends))
    targets = adapted.adapted
    bare = dict.fromkeys(
        layer.name
        for layer in model.layers
        if not layer.adapter_rank and adapted_products(replace(layer, adapted=targets), model.hidden)
    )
    return Tuning(adapted.adapter_rank, targets, tuple(bare))


def tuned(model: Model, lora: str | None, frozen: Sequence[str]) -> Model:
    """Return a model with only a part trained.

    ``lora``: a rank, optionally followed by a colon and the products with adapters, ``16`` or
    ``16:attention+mlp+experts``; all other parts are frozen. ``frozen``: names of layers, ``embedding`` or ``head``.

    Raises
    ------
    RequestError
        No such rank, product or part exists, or no part remains trained.
    """
    if lora is None and not frozen:
        return model
    rank, targets = (0, ()) if lora is None else parse_lora(lora)
    names = tuple(dict.fromkeys(layer.name for layer in model.layers))
    for part in frozen:
        if part not in (*names, *ENDS):
            raise unknown(f"part of {model.name} to freeze", part, (*names, *ENDS))
    ends = ENDS if rank else tuple(end for end in ENDS if end in frozen)
    if model.tied_embeddings and len(ends) == 1:
        raise RequestError(f"{model.name} has one table for embedding and head; freeze both or neither")
    layers = _told(model, tuple(frozen), rank, targets, "embedding" not in ends)
    if len(ends) == len(ENDS) and not any(layer.trains in ("all", "adapters") for layer in layers):
        raise RequestError(f"nothing of {model.name} is left to train; freeze fewer parts")
    return replace(model, layers=layers, frozen_ends=ends)


def frozen_parts(text: str | None) -> tuple[str, ...]:
    """Read comma-separated names; an empty text has none.

    >>> frozen_parts("image, embedding")
    ('image', 'embedding')

    Raises
    ------
    RequestError
        A name is empty.
    """
    if text is None:
        return ()
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts):
        raise RequestError(f"parts to freeze are names with commas between them, but got {text!r}")
    return parts


def parse_lora(text: str) -> tuple[int, tuple[str, ...]]:
    """Read a rank and the products with adapters.

    >>> parse_lora("16"), parse_lora("8:attention")
    ((16, ('attention', 'mlp')), (8, ('attention',)))

    Raises
    ------
    RequestError
        The text has another form.
    """
    match = re.fullmatch(r"(\d{1,5})(?::([a-z]+(?:\+[a-z]+)*))?", text.strip())
    if match is None or not 1 <= int(match[1]) <= LARGEST_RANK:
        raise RequestError(
            f"adapters are written RANK or RANK:PRODUCTS, like 16 or 16:{'+'.join(TARGETS)}, with a rank of 1 to "
            f"{LARGEST_RANK}, but got {text!r}"
        )
    targets = tuple(match[2].split("+")) if match[2] else DEFAULT_TARGETS
    for target in targets:
        if target not in TARGETS:
            raise RequestError(f"adapters can be added to {', '.join(TARGETS)}, but got {target!r}")
    return int(match[1]), targets


def _told(
    model: Model, frozen: tuple[str, ...], rank: int, targets: tuple[str, ...], embedding: bool
) -> tuple[Layer, ...]:
    """Return the layers of a model, each with its trained part."""
    # A layer without trained parameters passes gradients on if anything before it is trained; the ``embedding`` feeds
    # all layers except those with their own tokens (images).
    layers, earlier = [], False
    for layer in model.layers:
        trains: Trains = "all"
        if layer.name in frozen or rank:
            trains = "inputs" if earlier or (embedding and layer.tokens is None) else "nothing"
        if rank and layer.name not in frozen and adapted_products(replace(layer, adapted=targets), model.hidden):
            trains = "adapters"
        earlier = earlier or trains in ("all", "adapters")
        adapts = trains == "adapters"
        layers.append(
            replace(layer, trains=trains, adapter_rank=rank if adapts else 0, adapted=targets if adapts else ())
        )
    return tuple(layers)


def adapted_products(layer: Layer, hidden: int) -> tuple[Adapted, ...]:
    """Return the products of a layer with adapters, one for each output, as PEFT counts them."""
    hidden, products = layer.hidden or hidden, list[tuple[Product, bool]]()
    if "attention" in layer.adapted and layer.attends:
        for mixer in (layer.mixer, layer.cross_attention):
            steps = () if mixer is None else mixer.steps(hidden)
            products += [(step, False) for step in steps if isinstance(step, Product) and step.blocks == 1]
    mlp = layer.mlp if layer.feeds_forward else None
    dense = mlp.shared if isinstance(mlp, MixtureOfExperts) else mlp
    if "mlp" in layer.adapted and dense is not None:
        products += [(step, False) for step in dense.steps(hidden) if isinstance(step, Product)]
    if "experts" in layer.adapted and isinstance(mlp, MixtureOfExperts):
        expert = FeedForward(hidden=mlp.expert_hidden, gated=mlp.gated)
        products += [(step, True) for step in expert.steps(mlp.width(hidden)) if isinstance(step, Product)]
    return tuple(
        Adapted(product=product, outputs=width.whole, routed=routed)
        for product, routed in products
        for width in product.outputs
    )


def adapter_parameters(layer: Layer, hidden: int) -> tuple[int, int]:
    """Count the parameters of a layer's adapters: (of dense products, of all routed experts)."""
    dense = routed = 0
    for one in adapted_products(layer, hidden):
        size = layer.adapter_rank * (one.inputs + one.outputs)
        if one.routed and isinstance(layer.mlp, MixtureOfExperts):
            routed += layer.mlp.experts * size
        else:
            dense += size
    return dense, routed
