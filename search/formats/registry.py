"""Every format by name, with its module (the only list of formats).

A format is imported on demand: a search needs one format, and importing all takes the time of a search.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from forerun.search.formats.contract import Format
    from forerun.search.formats.keys import Launcher, LaunchKey
    from forerun.spaces.frameworks.profile import FrameworkProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatEntry:
    """One format.

    Parameters
    ----------
    name
        Name on the command line.
    module
        Module in this folder.
    attribute
        Name in the module: a format, or the table of keys of a read-only one (``LAUNCHER``).
    written
        Whether it writes launches.
    frameworks
        Frameworks of the catalogue whose launches it writes.
    """

    name: str
    module: str
    attribute: str = "LAUNCHER"
    written: bool = False
    frameworks: tuple[str, ...] = ()

    def load(self) -> "Format":
        """Return the format."""
        from forerun.search.formats.facts import format_of
        from forerun.search.formats.keys import Launcher

        value = self._attribute(self.attribute)
        return format_of(value) if isinstance(value, Launcher) else cast("Format", value)

    def table(self) -> "Launcher | None":
        """Return the table of its keys, None without one."""
        from forerun.search.formats.keys import Launcher

        tables = (self._attribute(self.attribute), self._attribute("LAUNCHER"))
        return next((table for table in tables if isinstance(table, Launcher)), None)

    def _attribute(self, name: str) -> object:
        return getattr(import_module(f"forerun.search.formats.{self.module}"), name, None)


def _read(name: str, module: str = "", attribute: str = "LAUNCHER") -> FormatEntry:
    return FormatEntry(name=name, module=module or f"tables.{name.replace('-', '_')}", attribute=attribute)


def _written(name: str, module: str, *frameworks: str, attribute: str = "FORMAT") -> FormatEntry:
    return FormatEntry(name=name, module=module, attribute=attribute, written=True, frameworks=frameworks)


ENTRIES: tuple[FormatEntry, ...] = (
    _written("forerun", "own_yaml"),
    _read("megatron-log", "megatron_log", "FORMAT"),
    _written("gpt-neox", "tables.neox"),
    _written("axolotl", "tables.axolotl"),
    _written("llama-factory", "tables.llama_factory"),
    _read("olmo"),
    _written("olmo-core", "tables.olmo_core"),
    _read("verl"),
    _read("levanter"),
    _read("colossalai"),
    _read("ms-swift"),
    _read("mindspeed-fsdp2"),
    _read("hf-trainer"),
    _read("megatron-bridge-performance", "tables.bridge_performance"),
    _read("simumax"),
    _read("calculon"),
    _written("maxtext", "maxtext", "maxtext"),
    _read("megatron-bridge-recipe", "bridge_recipes", "FORMAT"),
    _read("megatron-lm-test", "megatron_variants", "TESTS"),
    _read("primus", "megatron_variants", "PRIMUS"),
    _read("slime", "megatron_variants", "SLIME"),
    _read("ms-swift-megatron", "megatron_variants", "MS_SWIFT"),
    _read("pai-megatron-patch", "megatron_variants", "PAI"),
    _written("mindspeed", "mindspeed", "mindspeed"),
    _written("megatron-bridge", "megatron_bridge", "nemo", "megatron-lm"),
    _written("accelerate-megatron", "accelerate_megatron", "megatron-lm"),
    _written("accelerate-fsdp", "accelerate_fsdp", "fsdp"),
    _written("nanotron", "nanotron", "nanotron"),
    _written("torch", "torch_parallel"),
    _written("torchtitan-toml", "torchtitan_toml", "torchtitan"),
    _written("torchtitan", "torchtitan_python", "torchtitan"),
    _written("torchtitan-0.3", "torchtitan_python", "torchtitan", attribute="RELEASE_FORMAT"),
    _read("galvatron", "galvatron", "FORMAT"),
    _written("deepspeed", "deepspeed", "deepspeed"),
    _written("megatron-lm", "megatron_lm", "megatron-lm"),
)
"""Formats in the order of recognition, most specific first."""


WRITTEN = tuple(entry.name for entry in ENTRIES if entry.written)
"""Names of the formats that write launches."""


def writers_of(framework: "FrameworkProfile") -> tuple[FormatEntry, ...]:
    """Return the writers of a framework, else of its nearest parent, without importing them.

    Formats named after the framework precede those of other software that starts it (Megatron-Bridge for Megatron-LM).
    """
    ancestor = next((name for name in framework.lineage if any(name in entry.frameworks for entry in ENTRIES)), "")
    writers = (entry for entry in ENTRIES if ancestor in entry.frameworks)
    return tuple(sorted(writers, key=lambda entry: not entry.name.startswith(ancestor)))


def formats_of(framework: "FrameworkProfile") -> "tuple[Format, ...]":
    """Return the formats of a framework, or of its parent."""
    return tuple(entry.load() for entry in writers_of(framework))


def tables() -> "Iterator[Launcher]":
    """Iterate over the tables of keys, frameworks with profiles first.

    A table with all keys of another one (Megatron-LM) is omitted.
    """
    seen: list[Sequence[LaunchKey]] = []
    predicted = [entry for entry in reversed(ENTRIES) if entry.frameworks]
    for entry in (*predicted, *(entry for entry in ENTRIES if not entry.frameworks)):
        launcher = entry.table()
        if launcher is not None and not any(all(key in launcher.keys for key in keys) for keys in seen):
            seen.append(launcher.keys)
            yield launcher
