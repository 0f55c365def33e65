"""The version of the package, read by ``pyproject.toml``; installed metadata would be slower to read."""

VERSION = "0.6.0"
