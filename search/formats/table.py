"""All formats by name."""

from forerun.search.formats import (
    accelerate_fsdp,
    accelerate_megatron,
    deepspeed,
    megatron_bridge,
    megatron_lm,
    megatron_log,
    nanotron,
    own_yaml,
    planners,
    torchtitan_python,
    torchtitan_toml,
)
from forerun.search.formats.contract import Format, LaunchFile
from forerun.spaces.errors import RequestError, unknown

FORMATS: tuple[Format, ...] = (
    own_yaml.FORMAT,
    megatron_log.FORMAT,
    megatron_bridge.FORMAT,
    accelerate_megatron.FORMAT,
    accelerate_fsdp.FORMAT,
    nanotron.FORMAT,
    torchtitan_toml.FORMAT,
    torchtitan_python.FORMAT,
    torchtitan_python.RELEASE_FORMAT,
    planners.SIMUMAX,
    planners.CALCULON,
    planners.GALVATRON,
    deepspeed.FORMAT,
    megatron_lm.FORMAT,
)
"""In the order in which a file is tried: the surest mark first."""


def writable() -> tuple[Format, ...]:
    """Return the formats that a launch can be written in."""
    return tuple(item for item in FORMATS if item.write is not None)


def format_named(name: str) -> Format:
    """Return one format.

    Raises:
        RequestError: no format has this name; the text names the nearest ones.
    """
    for item in FORMATS:
        if item.name == name.lower():
            return item
    raise unknown("format", name, [item.name for item in FORMATS])


def recognised(source: LaunchFile) -> Format:
    """Return the format that a file looks like.

    Raises:
        RequestError: it looks like none.
    """
    for item in FORMATS:
        if item.recognise(source):
            return item
    if '"model_type"' in source.text and '"architectures"' in source.text:
        told = "describes a model and no training: `forerun search` takes it as MODEL"
        raise RequestError(f"{source.name} is a Hugging Face configuration, which {told}")
    names = ", ".join(item.name for item in FORMATS)
    raise RequestError(f"{source.name} looks like no format that forerun reads; name one with --format: {names}")
