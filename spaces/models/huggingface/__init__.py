"""Models of Hugging Face ``config.json`` files: decoders, hybrids, encoders, encoder-decoders, vision and audio."""

from forerun.spaces.models.huggingface.convert import Conversion, convert_config, model_from_config
from forerun.spaces.models.huggingface.families.registry import known_types

__all__ = ["Conversion", "convert_config", "known_types", "model_from_config"]
