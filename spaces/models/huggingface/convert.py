"""From the fields of a ``config.json`` to a model, with an account of what was ignored and what was filled in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.models.huggingface.architecture import assemble
from forerun.spaces.models.huggingface.families import FAMILIES, model_types
from forerun.spaces.models.huggingface.fields import Fields
from forerun.spaces.models.huggingface.harmless import HARMLESS
from forerun.spaces.models.model import Model

# The language model of a multimodal configuration; these keys of the outer level count for it too.
NESTED = "text_config"
OUTER = ("tie_word_embeddings", "vocab_size")
# Older configurations name only the class: what stands before "ForCausalLM", and its model_type.
CLASSES = {
    "BloomForCausalLM": "bloom",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
    "FalconForCausalLM": "falcon",
    "GPT2LMHeadModel": "gpt2",
    "GPTNeoXForCausalLM": "gpt_neox",
    "GemmaForCausalLM": "gemma",
    "Gemma2ForCausalLM": "gemma2",
    "Gemma3ForCausalLM": "gemma3_text",
    "GptOssForCausalLM": "gpt_oss",
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "MixtralForCausalLM": "mixtral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen2MoeForCausalLM": "qwen2_moe",
    "Qwen3ForCausalLM": "qwen3",
    "Qwen3MoeForCausalLM": "qwen3_moe",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A model, the fields that do not change its cost, and the values filled in for missing ones.

    ``left_out`` names the parts (``vision_config``, ...) of a multimodal configuration that are not in the model.
    """

    model: Model
    ignored: tuple[str, ...]
    left_out: tuple[str, ...]
    filled_in: Mapping[str, object]


def model_from_config(
    config: Mapping[str, Any], name: str, *, ignore: frozenset[str] = frozenset(), source: str = "config.json"
) -> tuple[Model, tuple[str, ...]]:
    """The model of ``config`` and the names of its fields that do not change cost; see ``convert_config``."""
    conversion = convert_config(config, name, ignore=ignore, source=source)
    return conversion.model, conversion.ignored


def convert_config(
    config: object, name: str, *, ignore: frozenset[str] = frozenset(), source: str = "config.json"
) -> Conversion:
    """The model that the Hugging Face configuration ``config`` describes, called ``name``.

    ``text_config`` is read in place of the outer level; vision and audio parts are left out. Fields in ``ignore`` are
    treated as absent. ``source`` names the file in messages and in the model.

    Raises:
        RequestError: ``config`` is no mapping; its family is unknown; a field is missing, of a wrong type or out of
            range; sizes do not divide; or a field that forerun does not know may change cost.
    """
    if not isinstance(config, Mapping):
        kind = "list" if isinstance(config, list) else type(config).__name__
        raise RequestError(f"{source}: a config.json is a mapping of fields to values, but got a {kind}")
    values, outer = _language_model(config, source)
    left_out = tuple(key for key in outer if isinstance(config[key], Mapping) and key not in HARMLESS)
    ignored = [key for key in outer if key not in left_out]
    ignored += [key for key in values if key in ignore]
    values = {key: value for key, value in values.items() if key not in ignore}
    model_type = _model_type(values, source)
    family = FAMILIES[model_type]
    fields = Fields(values, source=source, defaults=family.defaults)
    model = assemble(fields, family.rule(fields), name)
    unread = [key for key in values if key not in fields.read and key != "model_type"]
    _refuse_unknown(source, model_type, {key: values[key] for key in unread})
    ignored = sorted(ignored + unread)
    return Conversion(model=model, ignored=tuple(ignored), left_out=left_out, filled_in=fields.filled_in)


def _language_model(config: Mapping[str, Any], source: str) -> tuple[dict[str, Any], list[str]]:
    """The fields of the language model and the names of outer fields that were passed over."""
    nested = config.get(NESTED)
    if nested is None:
        return dict(config), []
    if not isinstance(nested, Mapping):
        raise RequestError(f"{source}: {NESTED} must be a mapping, but got {type(nested).__name__}")
    values = {key: config[key] for key in OUTER if key in config} | dict(nested)
    return values, [key for key in config if key != NESTED and key not in OUTER]


def _model_type(values: Mapping[str, Any], source: str) -> str:
    given = values.get("model_type")
    if given is None:
        classes = values.get("architectures")
        first = classes[0] if isinstance(classes, list) and classes else None
        given = CLASSES.get(first) if isinstance(first, str) else None
        if given is None:
            known = ", ".join(model_types())
            raise RequestError(f"{source}: the field model_type is missing; it must be one of {known}")
    if not isinstance(given, str) or given not in FAMILIES:
        message = unknown("model_type", str(given)[:60], model_types())
        raise RequestError(f"{source}: {message} (another model can be described in a YAML file of its own)")
    return given


def _refuse_unknown(source: str, model_type: str, unread: Mapping[str, Any]) -> None:
    """Raise for fields that forerun has not heard of and that hold more than a text."""
    doubtful = [
        key
        for key, value in unread.items()
        if key not in HARMLESS and not key.startswith("_") and not isinstance(value, str) and value
    ]
    if doubtful:
        shown = ", ".join(f"{key}={str(unread[key])[:40]}" for key in doubtful[:5])
        more = f" and {len(doubtful) - 5} more" if len(doubtful) > 5 else ""
        options = " ".join(f"--ignore-config-field {key}" for key in doubtful[:5])
        raise RequestError(
            f"{source}: forerun does not know these fields of {model_type}, and they may change cost: {shown}{more}; "
            f"if they do not, pass {options}"
        )
