"""The formats that launches of a framework are written in, imported when one is asked for: a search writes in one of
them, and all formats together take as long to import as it takes to search."""

from dataclasses import dataclass
from importlib import import_module

from forerun.search.formats.contract import Format
from forerun.spaces.frameworks.profile import FrameworkProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """A format that is written: the module of this folder that it is in, its name there, and the frameworks whose
    launches it writes."""

    module: str
    attribute: str = "FORMAT"
    frameworks: tuple[str, ...]

    def load(self) -> Format:
        """Return the format."""
        found: Format = getattr(import_module(f"forerun.search.formats.{self.module}"), self.attribute)
        return found


WRITERS: tuple[Writer, ...] = (
    Writer(module="maxtext", frameworks=("maxtext",)),
    Writer(module="mindspeed", frameworks=("mindspeed",)),
    Writer(module="megatron_bridge", frameworks=("nemo", "megatron-lm")),
    Writer(module="accelerate_megatron", frameworks=("megatron-lm",)),
    Writer(module="accelerate_fsdp", frameworks=("fsdp",)),
    Writer(module="nanotron", frameworks=("nanotron",)),
    Writer(module="torchtitan_toml", frameworks=("torchtitan",)),
    Writer(module="torchtitan_python", frameworks=("torchtitan",)),
    Writer(module="torchtitan_python", attribute="RELEASE_FORMAT", frameworks=("torchtitan",)),
    Writer(module="deepspeed", frameworks=("deepspeed",)),
    Writer(module="megatron_lm", frameworks=("megatron-lm",)),
)
"""In the order of the table of all formats."""


def writers_of(framework: FrameworkProfile) -> tuple[Writer, ...]:
    """Return what writes launches of a framework, else of the nearest one that it is like; imports none."""
    own = next((name for name in framework.lineage if any(name in writer.frameworks for writer in WRITERS)), None)
    return tuple(writer for writer in WRITERS if own in writer.frameworks)


def formats_of(framework: FrameworkProfile) -> tuple[Format, ...]:
    """Return the formats of a framework, or of one that it is like."""
    return tuple(writer.load() for writer in writers_of(framework))
