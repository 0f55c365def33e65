"""Values that the configuration classes of transformers fill in where a ``config.json`` leaves a field out.

Nested configurations are saved without the fields that equal them, so that they are needed to read most multimodal
models. Source: the class attributes of transformers 5.23 (https://github.com/huggingface/transformers, Apache 2.0).
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any


def class_defaults(model_type: str) -> Mapping[str, Any]:
    """Return the numbers and flags of the class of ``model_type``; empty where it is not known."""
    return _table().get(model_type, {})


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    text = (files("forerun.spaces.models.huggingface") / "defaults.json").read_text(encoding="utf-8")
    return dict(json.loads(text))
