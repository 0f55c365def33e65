"""Parts of a model that are rare in measured runs."""

from forerun.spaces.models.model import Attention, Model


def special_parts(model: Model) -> tuple[str, ...]:
    """Describe the parts of a model besides fully trained layers with softmax attention.

    >>> from forerun.spaces.models import resolve_model
    >>> special_parts(resolve_model("nemotron-h-8b").model)
    ('Mamba-2',)
    >>> special_parts(resolve_model("llama3-8b").model)
    ()
    """
    mixers = (layer.mixer for layer in model.layers)
    parts = [mixer.name for mixer in mixers if mixer is not None and not isinstance(mixer, Attention)]
    if any(layer.tokens is not None for layer in model.layers):
        parts.append("an encoder of images or sound")
    if any(layer.trains == "adapters" for layer in model.layers):
        parts.append("adapters")
    return tuple(dict.fromkeys(parts))
