"""Readers by ``model_type``: one table per kind of model."""

from collections.abc import Mapping
from functools import cache

from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.models.huggingface.decoder import Decoder
from forerun.spaces.models.huggingface.families.classifiers import classifiers
from forerun.spaces.models.huggingface.families.cross_attending import CROSS_ATTENDING
from forerun.spaces.models.huggingface.families.dual_encoders import DUAL_ENCODERS
from forerun.spaces.models.huggingface.families.encoder_decoders import encoder_decoders
from forerun.spaces.models.huggingface.families.multimodal import multimodal
from forerun.spaces.models.huggingface.families.other_vision_language import OTHER_VISION_LANGUAGE
from forerun.spaces.models.huggingface.families.part_readers import Reader, texts
from forerun.spaces.models.huggingface.tables import public, token_encoders


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
