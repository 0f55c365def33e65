"""Values that the configuration classes of transformers fill in where a ``config.json`` leaves a field out.

Nested configurations are saved without the fields that equal them, so that they are needed to read most multimodal
models. Source: the class attributes of transformers 5.23 (https://github.com/huggingface/transformers, Apache 2.0).
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from forerun.spaces.documents.package_data import package_text


def class_defaults(model_type: str) -> Mapping[str, Any]:
    """Return the numbers and flags of the class of ``model_type``; empty where it is not known."""
    return _table().get(model_type, {})


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return dict(json.loads(package_text("forerun.spaces.models.huggingface", "defaults.json")))
