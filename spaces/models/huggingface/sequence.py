"""A language model from its layers in order, where a configuration says them one by one."""

from collections.abc import Iterable

from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.layer_runs import joined
from forerun.spaces.models.model import Layer, Model


def sequence_model(
    fields: Fields, name: str, hidden: int, layers: Iterable[Layer], *, tied: bool = False, mtp: str | None = None
) -> Model:
    """Return the model called ``name`` of ``layers`` of width ``hidden`` between embedding and head.

    ``tied``: whether embedding and head share their table where the configuration does not say; ``mtp``: the field with
    the number of multi-token-prediction layers, if it has one.

    Raises:
        RequestError: a field is missing or out of bounds.
    """
    return Model(
        name=name,
        source=fields.source,
        hidden=hidden,
        vocab=fields.size("vocab_size"),
        layers=joined(layers),
        tied_embeddings=fields.flag("tie_word_embeddings", tied),
        mtp_layers=(fields.optional_size(mtp, least=0, most=64) or 0) if mtp else 0,
        max_seq_len=fields.optional_size("max_position_embeddings"),
    )
