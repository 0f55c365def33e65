"""Megatron-Bridge's performance scripts: ``setup_experiment.py -m llama -mr llama3_70b -ng 64 -tp 4 -pp 4 ...``.

Source: ``scripts/performance/argument_parser.py`` of NVIDIA-NeMo/Megatron-Bridge. Settings missing in a command come
from a preset in Python (``scripts/performance/configs``), by model, device and precision.
"""

from forerun.search.formats.keys import LaunchFacts
from forerun.search.formats.launcher_data import read_launcher
from forerun.search.formats.syntax import arguments
from forerun.spaces.errors import RequestError

NEEDED = {"tp": "-tp", "pp": "-pp", "cp": "-cp", "mbs": "-mb", "global_batch": "-gb"}


def adjust(facts: LaunchFacts) -> None:
    """Apply the settings common to all presets: a distributed optimizer, and sequence parallelism with tp.

    Raises
    ------
    RequestError
        A degree or a batch is left to the preset.
    """
    missing = [flag for decision, flag in NEEDED.items() if facts.get(decision) is None]
    if facts.get("pp", 1) > 1 and facts.get("vpp") is None:
        missing.append("-vp")
    if missing:
        raise RequestError(
            f"{facts.source.name} leaves {', '.join(missing)} to a preset of Megatron-Bridge; add them, or import the "
            "preset's Python file (scripts/performance/configs) with --entry NAME"
        )
    facts.values["zero"] = 1
    facts.values["sp"] = facts.get("tp", 1) > 1
    if facts.get("ep") is None:
        facts.assume("ep", 1, "-ep is not stated; a mixture's preset may have more")
    facts.notes.append("recompute, overlap and CUDA graphs are those of the preset where no argument sets them")


LAUNCHER = read_launcher("megatron-bridge-performance", syntax=arguments, adjust=adjust)
