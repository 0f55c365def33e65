"""Writer of torchtitan's Python configuration: a module with a function that returns ``Trainer.Config``."""

import re
from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.launchers import TORCHRUN, comment, scripts
from forerun.search.formats.software import flags_of
from forerun.search.formats.templates import filled
from forerun.search.formats.titan_keys import FLAVORS
from forerun.search.formats.writing import nested
from forerun.spaces.strategies import Recompute

MAIN = "torchtitan_config.py"
FUNCTION = "forerun_config"

POLICIES = {Recompute.NONE: "None", Recompute.SELECTIVE: "SelectiveAC.Config()", Recompute.FULL: "FullAC.Config()"}
"""``activation_checkpoint``; MemoryBudgetAC is read as selective."""

_DATA_IMPORT = "from torchtitan.components.data import ConcatThenSplitPackingConfig, GrainDataLoader"
_DATA = 'GrainDataLoader.Config(dataset=ConcatThenSplitPackingConfig(dataset=DATASETS["c4"]))'
_RELEASE_DATA = 'HuggingFaceTextDataLoader.Config(dataset="c4")'


def write(launch: Launch, stated: Mapping[str, Any], *, tokens: bool) -> Files:
    """Return a module with the settings ``stated``; ``tokens``: for the main branch, which counts tokens."""
    s = launch.strategy
    name, flavor = FLAVORS.get(launch.model.name, ("llama3", launch.model.name))
    switches = flags_of(launch, "torchtitan") | ({"model_registry.attn_backend": "varlen"} if launch.packed else {})
    sections = nested(stated)
    degrees = {**sections["parallelism"], "enable_sequence_parallel": s.sp or s.tp == 1}
    register = f"    # Register {comment(launch.model.name)!r} as a flavor."
    text = filled(
        "torchtitan_config.py.txt",
        version="torchtitan (main)" if tokens else "torchtitan 0.3.0",
        strategy=s,
        devices=s.devices,
        imports=_DATA_IMPORT if tokens else "",
        datasets="DATASETS" if tokens else "HuggingFaceTextDataLoader",
        module=_module(name),
        function=FUNCTION,
        remark="" if launch.model.name in FLAVORS else register,
        model=", ".join([repr(flavor), *_keywords_of(switches, "model_registry")]),
        training=_arguments(_training(launch, sections["training"])),
        parallelism=_arguments(degrees),
        checkpointing=POLICIES[s.recompute],
        compile=", ".join(_keywords_of(switches, "compile")),
        loader=_DATA if tokens else _RELEASE_DATA,
    )
    program = f"-m torchtitan.train --module {MAIN.removesuffix('.py')} --config {FUNCTION}"
    path = ['export PYTHONPATH="$PWD:${PYTHONPATH:-}"']
    return {MAIN: text, **scripts(launch, "torchtitan", [*TORCHRUN, program], before=path)}


def _keywords_of(switches: dict[str, Any], section: str) -> list[str]:
    """Return the switches of one call as keyword arguments."""
    return [f"{key.partition('.')[2]}={value!r}" for key, value in switches.items() if key.startswith(f"{section}.")]


def _module(name: str) -> str:
    return re.sub(r"\W", "_", name, flags=re.ASCII)


def _training(launch: Launch, stated: Mapping[str, Any]) -> dict[str, Any]:
    s = launch.strategy
    training = dict(stated)
    if s.pp > 1 or s.ep > 1:
        training["disable_cuda_graphs"] = (
            True  # Trainer.Config refuses graphs with pipelines and most expert dispatchers
        )
    return {"mixed_precision_param": "bfloat16"} | training | {"steps": launch.job.steps}


def _arguments(values: dict[str, Any]) -> str:
    inner = "".join(f"            {key}={value!r},\n" for key, value in values.items())
    return f"\n{inner}        "
