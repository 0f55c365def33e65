"""The version of the package, which ``pyproject.toml`` reads here: metadata of an installation take longer to read."""

VERSION = "0.4.0"
