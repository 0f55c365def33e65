"""Models by name: one YAML file each in ``data/``, read only on demand."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from forerun.spaces.documents import read_document, validate
from forerun.spaces.documents.package_data import package_names, package_yaml
from forerun.spaces.errors import unknown
from forerun.spaces.models.model import (
    Attention,
    FeedForward,
    LatentAttention,
    Layer,
    MixtureOfExperts,
    Model,
    windowed_layers,
)

_Keys = Mapping[str, Any]


def model_from_mapping(data: _Keys, *, name: str) -> Model:
    """Return the model that ``data`` describes; ``name`` is its default name.

    Raises
    ------
    RequestError
        The fields of a Hugging Face configuration (``config``) cannot be read.
    """
    keys = _stated(data)
    called = keys.pop("name", "") or name
    if "published_parameters" in keys:
        keys["published_parameters"] = float(keys["published_parameters"])
    if "config" in keys:
        from forerun.spaces.models.huggingface import model_from_config  # here: most files have no configuration

        model, _ = model_from_config(keys.pop("config"), called, source=f"{name}.yaml, config")
        return replace(model, **keys)
    norm_bias, bias = keys.pop("norm", "rms") == "layer", keys.pop("bias", False)
    runs = [_layers(_stated(run), keys["hidden"], bias=bias, norm_bias=norm_bias) for run in keys.pop("layers")]
    model = Model(name=called, layers=tuple(layer for run in runs for layer in run), **keys)
    return replace(model, final_norm_bias=model.final_norm and norm_bias)


def _layers(keys: dict[str, Any], hidden: int, *, bias: bool, norm_bias: bool) -> tuple[Layer, ...]:
    """Return the layers of one entry in execution order, equal neighbours joined."""
    windows, mixer = keys.pop("windows", None), _attention(keys.pop("attention"), hidden, bias)
    cross = keys.pop("cross_attention", None)
    mlp: FeedForward | MixtureOfExperts
    if "mlp" in keys:
        kind, mlp = "dense", FeedForward(**{"bias": bias} | _stated(keys.pop("mlp")))
    else:
        kind, mlp = "moe", MixtureOfExperts(**_stated(keys.pop("mixture")))
    layer = Layer(
        name=keys.pop("name", "") or kind,
        mixer=mixer,
        mlp=mlp,
        cross_attention=None if cross is None else _attention(cross, hidden, bias),
        norm_bias=norm_bias,
        **keys,
    )
    if windows is None:
        return (layer,)
    return windowed_layers(layer, [windows[index % len(windows)] for index in range(layer.count)])


def _attention(data: _Keys, hidden: int, bias: bool) -> Attention:
    """Return one attention block of a model of width ``hidden`` whose projections have a ``bias`` or none."""
    keys = _stated(data)
    head_dim = keys.get("head_dim", hidden // keys["heads"])
    usual = {
        "kv_heads": keys["heads"],
        "head_dim": head_dim,
        "value_head_dim": head_dim,
        "query_key_value_bias": bias,
        "output_bias": bias,
    }
    if "latent" in keys:
        keys["latent"] = LatentAttention(**{"query_rank": None} | keys["latent"])
    return Attention(**usual | keys)


def _stated(data: _Keys) -> dict[str, Any]:
    """Return the keys that have a value: null counts as a missing key."""
    return {key: value for key, value in data.items() if value is not None}


def model_names() -> tuple[str, ...]:
    """Return the names of all models of the catalogue, sorted; no file is opened."""
    return package_names("forerun.spaces.models", "data")


def load_model(name: str) -> Model:
    """Return the model called ``name`` (upper case, and ``_`` for ``-``, are accepted).

    Raises
    ------
    RequestError
        No model has that name; the text names the nearest ones.
    """
    key = name.lower().replace("_", "-")
    # Names are matched against the listing, so that no text can point outside the folder.
    known = model_names()
    if key not in known:
        raise unknown("model", name, known)
    return model_from_mapping(package_yaml("forerun.spaces.models", "data", f"{key}.yaml"), name=key)


def load_model_file(path: Path) -> Model:
    """Return the model in the YAML file at ``path``, in the form of ``forerun.spaces.models.schema``.

    Raises
    ------
    RequestError
        The file cannot be read or breaks the schema; the text names file, line and key.
    """
    from forerun.spaces.models.schema import ConfigDocument, ModelDocument  # pydantic: the catalogue needs none

    document = read_document(path)
    configured = isinstance(document.data, dict) and "config" in document.data
    checked = validate(document, ConfigDocument if configured else ModelDocument)
    return model_from_mapping(checked.model_dump(exclude_unset=True), name=path.stem)
