"""Hugging Face ``config.json`` files of decoder language models as models to train."""

from forerun.spaces.models.huggingface.convert import Conversion, convert_config, model_from_config
from forerun.spaces.models.huggingface.families import model_types

__all__ = ["Conversion", "convert_config", "model_from_config", "model_types"]
