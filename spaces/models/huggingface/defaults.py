"""Default values of transformers' configuration classes for fields missing in a ``config.json``.

Nested configurations are saved without fields at their default, so most multimodal models cannot be read without them.
Source: the class attributes of transformers 5.23 (https://github.com/huggingface/transformers, Apache 2.0).
"""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from forerun.spaces.documents.package_data import package_text


def class_defaults(model_type: str) -> Mapping[str, Any]:
    """Return the numbers and flags of the class of ``model_type``; empty for an unknown type."""
    return _table().get(model_type, {})


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    return dict(json.loads(package_text("forerun.spaces.models.huggingface", "defaults.json")))
