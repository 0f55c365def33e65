"""Conversion of a ``config.json`` to a model, with its ignored fields and its filled-in values."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.classifiers import classifiers
from forerun.spaces.models.huggingface.families.encoder_decoders import encoder_decoders
from forerun.spaces.models.huggingface.families.multimodal import multimodal
from forerun.spaces.models.huggingface.families.other_vision_language import OTHER_VISION_LANGUAGE
from forerun.spaces.models.huggingface.families.pairs import CROSS_ATTENDING, DUAL_ENCODERS
from forerun.spaces.models.huggingface.families.part_readers import Reader, texts
from forerun.spaces.models.huggingface.fields import Fields, class_defaults
from forerun.spaces.models.huggingface.tables import public, token_encoders
from forerun.spaces.models.model import Model


@cache
def with_parts() -> Mapping[str, Reader]:
    """Return the families with nested configurations of text and encoder, by model type."""
    return {**multimodal(), **DUAL_ENCODERS, **CROSS_ATTENDING, **OTHER_VISION_LANGUAGE}


@cache
def families() -> Mapping[str, Reader]:
    """Return all families by model type."""
    return {
        **texts(),
        **public(token_encoders()),
        **public(encoder_decoders()),
        **public(classifiers()),
        **with_parts(),
    }


UNKNOWN = Decoder(query_key_value_bias="attention_bias", output_bias="attention_bias", mlp_bias="mlp_bias")
"""Reader of unknown types: a Llama-like decoder, with experts and latent attention if the configuration names them."""


@cache
def class_types() -> Mapping[str, str]:
    """Return the model types of classes, for configurations without a type."""
    return dict(package_yaml("forerun.spaces.models.huggingface", "data", "classes.yaml"))


@cache
def missing_operators() -> Mapping[str, str]:
    """Return the missing operator of each model type that cannot be read."""
    operators = package_yaml("forerun.spaces.models.huggingface", "data", "missing_operators.yaml")
    return {kind: operator for operator, kinds in operators.items() for kind in kinds}


def known_types() -> tuple[str, ...]:
    """Return the known values of ``model_type``, sorted."""
    return tuple(sorted(families()))


HARMLESS = frozenset(
    name
    for names in package_yaml("forerun.spaces.models.huggingface", "data", "harmless_fields.yaml").values()
    for name in names
)

# Endings of names with one meaning in all parts of a configuration.
_ENDINGS = re.compile(
    r"((^|_)(ids?|token_ids?|token_index|dropout|dropout_rate|dropout_prob)|_token|_index_token|_drop|_eps|_epsilon|^eps|_coef|_coeff|"
    r"_initializer_factor|_init_range|_init_std|_init_value|^init_std|initializer_range|initializer_cutoff_factor|"
    r"initializer_factor|_initializer_range|_rope_theta|rope_theta|_base_freq|_swiglu_limit|swiglu_limit|swiglu_alpha|"
    r"activation_function|_act_fn|_activation|_loss_weight|_jitter|_noise|_clip_threshold|_softcap|_layerdrop|"
    r"_hidden_act|_in_fp32|_kernel_dtype|_ssm_dtype|_cache_dtype|_variance_scale)$"
)


def changes_cost(name: str, value: object) -> bool:
    """Check whether an unread field may change cost.

    A field may change cost if its value is neither a text nor empty, and neither its name nor its ending is harmless.
    """
    if name in HARMLESS or name.startswith("_") or _ENDINGS.search(name):
        return False
    return not isinstance(value, str) and bool(value)


# The language model of a multimodal configuration whose other parts are not known; these keys of the outer level count
# for it too.
NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
OUTER = ("tie_word_embeddings", "vocab_size")
# Sizes with defaults in transformers that a configuration of its own must nevertheless have.
REQUIRED = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size")


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A model, the fields without an effect on its cost, and the values filled in for missing fields.

    ``left_out``: parts (``vision_config``, ...) of a multimodal configuration that are not in the model. ``guessed``:
    the unknown ``model_type`` of a configuration whose fields were all known; None otherwise.
    """

    model: Model
    ignored: tuple[str, ...]
    left_out: tuple[str, ...]
    filled_in: Mapping[str, object]
    guessed: str | None = None


def model_from_config(
    config: Mapping[str, Any], name: str, *, ignore: frozenset[str] = frozenset(), source: str = "config.json"
) -> tuple[Model, tuple[str, ...]]:
    """Return the model of ``config`` and the names of its fields without an effect on cost; see ``convert_config``."""
    conversion = convert_config(config, name, ignore=ignore, source=source)
    return conversion.model, conversion.ignored


def convert_config(
    config: object, name: str, *, ignore: frozenset[str] = frozenset(), source: str = "config.json"
) -> Conversion:
    """Convert the Hugging Face configuration ``config`` to a model called ``name``.

    Only the language model (``text_config``) of a multimodal configuration is read if its family is unknown, or if its
    class is that of the language model (``MllamaForCausalLM``). Fields in ``ignore`` are treated as absent. ``source``:
    name of the file in messages and in the model.

    Raises
    ------
    RequestError
        ``config`` is not a mapping; its family is unknown; a field is missing, of a wrong type or out of range; sizes
        do not divide; or a field unknown to forerun may change cost.
    """
    if not isinstance(config, Mapping):
        kind = "list" if isinstance(config, list) else type(config).__name__
        raise RequestError(f"{source}: a config.json is a mapping of fields to values, but got a {kind}")
    values = dict(config)
    left_out: tuple[str, ...] = ()
    passed: list[str] = []
    nested = False
    while any(values.get(key) is not None for key in NESTED) and (
        (text := _text_alone(values)) or config_type(values) not in (*with_parts(), *missing_operators())
    ):
        values, left_out, passed = _language_model(values, source, text)
        nested = True
    ignored = passed + [key for key in values if key in ignore]
    values = {key: value for key, value in values.items() if key not in ignore}
    model_type = _model_type(values, source)
    family = families().get(model_type, UNKNOWN)
    required = () if nested else REQUIRED
    defaults = {**class_defaults(model_type), **getattr(family, "defaults", {})}
    fields = Fields(values, source=source, defaults=defaults, required=required, ignored=ignore)
    model = family.read(fields, name)
    unread = _unread(fields, model_type)
    ignored = sorted(ignored + unread)
    guessed = None if model_type in families() else model_type
    return Conversion(
        model=model, ignored=tuple(ignored), left_out=left_out, filled_in=_filled_in(fields), guessed=guessed
    )


def _filled_in(fields: Fields) -> dict[str, object]:
    """Return the values of missing fields; fields of nested parts have their full names."""
    values = dict(fields.filled_in)
    for name, part in fields.parts.items():
        values |= {f"{name}.{key}": value for key, value in _filled_in(part).items()}
    return values


def _unread(fields: Fields, model_type: str) -> list[str]:
    """Return the names of fields that no rule read; refuse fields that may change cost."""
    unread = [key for key in fields.values if key not in fields.read and key != "model_type"]
    _refuse_unknown(fields.source, model_type, {key: fields.values[key] for key in unread})
    for name, part in fields.parts.items():
        unread += [f"{name}.{key}" for key in _unread(part, model_type)]
    return unread


def _language_model(
    config: Mapping[str, Any], source: str, model_type: str | None
) -> tuple[dict[str, Any], tuple[str, ...], list[str]]:
    """Return the fields of the language model, the omitted parts, and the names of other outer fields.

    ``model_type``: type of a language model without one.
    """
    key = next(key for key in NESTED if config.get(key) is not None)
    nested = config[key]
    if not isinstance(nested, Mapping):
        raise RequestError(f"{source}: {key} must be a mapping, but got {type(nested).__name__}")
    known = {} if model_type is None else {"model_type": model_type}
    values = known | {outer: config[outer] for outer in OUTER if outer in config} | dict(nested)
    others = [other for other in config if other != key and other not in OUTER]
    parts = {other: None for other in others if isinstance(config[other], Mapping) and other not in HARMLESS}
    return values, tuple(parts), [other for other in others if other not in parts]


def config_type(values: Mapping[str, Any]) -> str | None:
    """Return the ``model_type`` of the configuration, or of its class (older configurations have only a class)."""
    given = values.get("model_type")
    if given is None:
        return _class_type(values)
    return given if isinstance(given, str) else None


def _class_type(values: Mapping[str, Any]) -> str | None:
    """Return the ``model_type`` of the first class of the configuration, if it is known."""
    classes = values.get("architectures")
    first = classes[0] if isinstance(classes, list) and classes else None
    return class_types().get(first) if isinstance(first, str) else None


def _text_alone(values: Mapping[str, Any]) -> str | None:
    """Return the type of the language model if the named class contains only it, without the encoder."""
    family = with_parts().get(config_type(values) or "")
    text = _class_type(values)
    return text if text is not None and text == getattr(family, "text", None) else None


def _model_type(values: Mapping[str, Any], source: str) -> str:
    kind = config_type(values)
    given = values.get("model_type")
    if kind is None and given is None and "peft_type" in values:
        base = values.get("base_model_name_or_path")
        raise RequestError(
            f"{source} is an adapter ({values['peft_type']}), not a model: give the config.json of its base, {base}, "
            f"and --lora {values.get('r', 16)} for what is trained"
        )
    if kind is None and given is None:
        raise RequestError(f"{source}: the field model_type is missing, and architectures names no known class")
    if kind is not None and kind in missing_operators():
        raise RequestError(
            f"{source}: model_type {kind} needs {missing_operators()[kind]}, an operator that forerun has not"
        )
    if kind is not None and (kind in families() or _looks_like_a_decoder(values)):
        return kind
    name = str(given)[:60]
    near = nearest(name, known_types())
    hint = f"did you mean {' or '.join(near)}?" if near else f"{len(families())} others are known"
    raise RequestError(
        f"{source}: unknown model_type {name!r}; {hint} (another model can be described in a YAML file of its own)"
    )


def _looks_like_a_decoder(values: Mapping[str, Any]) -> bool:
    """Check whether an unknown configuration has code of its own (``auto_map``) or names a causal model."""
    classes = values.get("architectures")
    causal = isinstance(classes, list) and any("CausalLM" in str(one) for one in classes)
    return "auto_map" in values or causal


def _refuse_unknown(source: str, model_type: str, unread: Mapping[str, Any]) -> None:
    """Raise for unknown fields with a value other than a text."""
    doubtful = [key for key, value in unread.items() if changes_cost(key, value)]
    if doubtful:
        shown = ", ".join(f"{key}={str(unread[key])[:40]}" for key in doubtful[:5])
        more = f" and {len(doubtful) - 5} more" if len(doubtful) > 5 else ""
        options = " ".join(f"--ignore-config-field {key}" for key in doubtful[:5])
        raise RequestError(
            f"{source}: forerun does not know these fields of {model_type}, and they may change cost: {shown}{more}; "
            f"if they do not, pass {options}"
        )
