"""Parts of a model that most measured runs did not have."""

from forerun.spaces.models.model import Attention, Model


def special_parts(model: Model) -> tuple[str, ...]:
    """Return in words what a model has besides layers of softmax attention that are trained whole.

    >>> from forerun.spaces.models import resolve_model
    >>> special_parts(resolve_model("nemotron-h-8b").model)
    ('Mamba-2',)
    >>> special_parts(resolve_model("llama3-8b").model)
    ()
    """
    mixers = (layer.mixer for layer in model.layers)
    found = [mixer.name for mixer in mixers if mixer is not None and not isinstance(mixer, Attention)]
    if any(layer.tokens is not None for layer in model.layers):
        found.append("an encoder of images or sound")
    if any(layer.trains == "adapters" for layer in model.layers):
        found.append("adapters")
    return tuple(dict.fromkeys(found))
