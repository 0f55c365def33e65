"""Text for files and messages without the secrets of the environment."""

import os
import re
from collections.abc import Mapping

from forerun.spaces.escaping import shown, without_secrets

_SECRET = re.compile(r"key|token|secret|passw|credential|auth", re.IGNORECASE)
"""Names of environment variables whose values are secret."""
_LEAST = 6
"""Least length of a replaced value; shorter values occur in any text."""


def redacted(text: str, environment: Mapping[str, str] | None = None) -> str:
    """Replace values of secret environment variables by shell references to the variables.

    >>> redacted("--token hunter2-and-more", {"HF_TOKEN": "hunter2-and-more"})
    '--token $HF_TOKEN'
    """
    variables = os.environ if environment is None else environment
    secrets = {value: name for name, value in variables.items() if _SECRET.search(name) and len(value) >= _LEAST}
    for value in sorted(secrets, key=len, reverse=True):
        text = text.replace(value, f"${secrets[value]}")
    return text


def line(text: str) -> str:
    """Return text of a log as one short harmless line."""
    return shown(without_secrets(redacted(text)), most=300)
