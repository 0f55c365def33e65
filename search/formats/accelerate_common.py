"""Common settings of accelerate's YAML files, for ``accelerate_fsdp`` and ``accelerate_megatron``.

Source: ``accelerate/commands/config/config_args.py`` of 1.15. Micro-batch and accumulation are arguments of the user's
program in the launch script.
"""

from typing import Any

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.launchers import scripts
from forerun.search.formats.program_arguments import OWN_PROGRAM, PROGRAM
from forerun.search.formats.yaml_text import dump_yaml

VERSION = "1.15"

MIXED = {"bf16": "bf16", "fp16": "fp16", "fp32": "no"}


def common(launch: Launch, kind: str) -> dict[str, Any]:
    """Return the settings of every file; ``kind``: the distributed type."""
    return {
        "compute_environment": "LOCAL_MACHINE",
        "debug": False,
        "distributed_type": kind,
        "machine_rank": 0,
        "main_training_function": "main",
        "mixed_precision": MIXED[launch.workload.precision],
        "num_machines": launch.nodes,
        "num_processes": launch.strategy.devices,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
    }


def files(launch: Launch, main: str, data: dict[str, Any], arguments: list[str]) -> Files:
    """Return the YAML under the name ``main``, and the scripts that start it."""
    command = [
        f'accelerate launch --config_file {main} --num_machines "$NNODES" --machine_rank "$NODE_RANK"',
        '--main_process_ip "$MASTER_ADDR" --main_process_port "$MASTER_PORT"',
        PROGRAM,
        *arguments,
    ]
    text = dump_yaml(data, f"{launch.name}: accelerate {VERSION}, {launch.strategy}")
    return {main: text, **scripts(launch, f"accelerate {VERSION}", command, before=[f"{OWN_PROGRAM}."])}
