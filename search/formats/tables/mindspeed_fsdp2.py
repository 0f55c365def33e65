"""MindSpeed-LLM on FSDP 2: sections of a YAML file, and the same names as arguments of ``train_fsdp2.py``.

Source: ``examples/fsdp2`` of Ascend/MindSpeed-LLM. Arguments override the file, which is given with the script.
"""

from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.keys import REST, LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.settings import flatten
from forerun.search.formats.syntax import arguments, document, is_script


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the settings of a script and of its files."""
    parts: list[Mapping[str, Any]] = [
        flatten(LaunchFile(name=name, text=text).top_level()) for name, text in source.others.items()
    ]
    if not is_script(source):
        parts.append(document(source))
    parts += [arguments(source, name) for name in source.scripts]
    return {name: value for part in parts for name, value in part.items()}


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding: states are sharded over ``fsdp_size`` ranks, with a copy per group."""
    size = facts.settings.whole("parallel.fsdp_size")
    if size is None:
        return
    facts.values |= {"zero": 3 if size > 1 else 0, "replicate": REST, "shard": size}


LAUNCHER = read_launcher("mindspeed-fsdp2", syntax=read, adjust=adjust)
