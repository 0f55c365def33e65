"""Models of Hugging Face ``config.json`` files: decoders, hybrids, encoders, encoder-decoders, vision and audio."""

from forerun.spaces.models.huggingface.convert import convert_config, model_from_config

__all__ = ["convert_config", "model_from_config"]
