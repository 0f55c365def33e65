"""Models, read from the catalogue, a user's YAML or a Hugging Face ``config.json``."""

from forerun.spaces.models.catalogue import load_model, load_model_file, model_names
from forerun.spaces.models.flops import layer_forward_flops, train_flops_per_sequence
from forerun.spaces.models.model import Attention, FeedForward, LatentAttention, Layer, MixtureOfExperts, Model
from forerun.spaces.models.parameters import (
    LayerParameters,
    active_parameters,
    embedding_parameters,
    head_parameters,
    layer_parameters,
    mtp_block_parameters,
    parameter_count,
)
from forerun.spaces.models.resolve import resolve_model
from forerun.spaces.models.shapes import transformer

__all__ = [
    "Attention",
    "FeedForward",
    "LatentAttention",
    "Layer",
    "LayerParameters",
    "MixtureOfExperts",
    "Model",
    "active_parameters",
    "embedding_parameters",
    "head_parameters",
    "layer_forward_flops",
    "layer_parameters",
    "load_model",
    "load_model_file",
    "model_names",
    "mtp_block_parameters",
    "parameter_count",
    "resolve_model",
    "train_flops_per_sequence",
    "transformer",
]
