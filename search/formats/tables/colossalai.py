"""Colossal-AI 0.5: the arguments of its training programs (``colossalai run ... --plugin 3d --tp 4 --pp 2``).

Source: ``examples/language/llama/benchmark.py`` and ``applications/Colossal-LLaMA/train.py`` of hpcaitech/ColossalAI.
``batch_size`` is the batch of a replica, cut into microbatches of ``mbs`` under a pipeline.
"""

from collections.abc import Mapping
from typing import Any

from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import arguments
from forerun.spaces.errors import RequestError

PLUGINS = {
    "gemini": 3,
    "gemini_auto": 3,
    "gemini_cuda": 3,
    "fsdp": 3,
    "torch_fsdp": 3,
    "fsdp_cpu": 3,
    "zero2": 2,
    "zero2_cpu": 2,
    "ddp": 0,
    "torch_ddp": 0,
    "zero1": 1,
    "low_level_zero": 1,
    "zero1_cpu": 1,
    "colossalai": 3,
    "cai_gemini": 3,
    "cai_zero1": 1,
    "cai_zero2": 2,
    "pytorch_ddp": 0,
    "pytorch_zero": 1,
    "torch_zero": 1,
}
"""Plugins that imply sharding; ``3d``, ``hybrid_parallel`` and ``moe`` take ``--zero_stage``."""
SHORT = {"-p": "plugin", "-b": "batch_size", "-g": "grad_checkpoint", "-l": "max_length", "-c": "config", "-z": "zero"}


def read(source: LaunchFile) -> Mapping[str, Any]:
    """Return the arguments, short ones by their long names."""
    return {SHORT.get(name, name): value for name, value in arguments(source).items()}


def adjust(facts: LaunchFacts) -> None:
    """Determine sharding and the microbatches of a replica.

    Raises
    ------
    RequestError
        Microbatches do not divide the batch.
    """
    settings = facts.settings
    plugin = (settings.text("plugin", "distplan") or "gemini").lower()
    if plugin in PLUGINS:
        facts.values["zero"] = PLUGINS[plugin]
    if "cpu" in plugin or settings.flag("offload"):
        facts.notes.append(f"plugin {plugin} offloads to the host, which is not part of a strategy")
    local, steps = facts.get("local_batch"), facts.get("accumulation", 1)
    if local is None:
        return
    if facts.get("pp", 1) > 1 and facts.get("mbs") is not None:
        if local % facts.get("mbs"):
            raise RequestError(
                f"{facts.source.name}: a batch of {local} is not divisible by microbatches of {facts.get('mbs')}"
            )
        facts.values["accumulation"] = local // facts.get("mbs") * steps
    else:
        facts.values |= {"mbs": local, "accumulation": steps}
    facts.values["local_batch"] = None


LAUNCHER = read_launcher("colossalai", syntax=read, adjust=adjust)
