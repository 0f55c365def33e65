"""Scripts that start a run on its nodes: torchrun, accelerate or deepspeed, by hand or under SLURM.

Every value is quoted; text that the user chose appears in comments and directives only after it is made harmless.
"""

import re
import shlex
from collections.abc import Mapping, Sequence

from forerun.search.formats.contract import Launch

LAUNCH = "launch.sh"
SLURM = "slurm.sbatch"
PORT = "29500"

Value = str | int | float | bool | Sequence[str | int]


def harmless(text: str) -> str:
    """Return free text as one short word that no shell, directive or comment can trip over.

    >>> harmless("my run; rm -rf ~"), harmless("$(x)")
    ('my-run-rm-rf', 'x')
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60] or "forerun"


def comment(text: str) -> str:
    """Return free text as the rest of one comment line: no control characters, nothing that could end the line."""
    return "".join(char if char.isprintable() and char.isascii() else " " for char in text)


def array(name: str, flags: Mapping[str, Value]) -> list[str]:
    """Return the lines of a shell array of flags; True stands for a flag alone, False for none."""
    lines = [f"{name}=("]
    for flag, value in flags.items():
        if value is False:
            continue
        if value is True:
            lines.append(f"    {flag}")
            continue
        values = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
        lines.append("    " + " ".join([flag, *(shlex.quote(str(item)) for item in values)]))
    return [*lines, ")"]


def header(launch: Launch, title: str) -> list[str]:
    """Return the first lines of a launch script."""
    return [
        "#!/usr/bin/env bash",
        f"# {comment(launch.name)}: {title}",
        f"# {launch.strategy} ({launch.strategy.devices} GPUs), written by forerun",
        "set -euo pipefail",
    ]


def distributed(launch: Launch) -> list[str]:
    """Return the lines that set ``DISTRIBUTED_ARGS`` for torchrun; SLURM or the user names node and master."""
    return [
        f"NNODES={launch.nodes}",
        f"GPUS_PER_NODE={launch.devices_used_per_node}",
        'NODE_RANK="${NODE_RANK:-${SLURM_NODEID:-0}}"',
        'MASTER_ADDR="${MASTER_ADDR:-localhost}"',
        f'MASTER_PORT="${{MASTER_PORT:-{PORT}}}"',
        "DISTRIBUTED_ARGS=(",
        '    --nnodes "$NNODES"',
        '    --nproc_per_node "$GPUS_PER_NODE"',
        '    --node_rank "$NODE_RANK"',
        '    --master_addr "$MASTER_ADDR"',
        '    --master_port "$MASTER_PORT"',
        ")",
    ]


def torchrun(launch: Launch, title: str, program: str, arguments: str, *, before: Sequence[str] = ()) -> str:
    """Return a script that starts ``program`` (shell text, already quoted) with ``arguments`` on every node."""
    lines = [*header(launch, title), "", *distributed(launch), "", *before]
    return "\n".join([*lines, f'torchrun "${{DISTRIBUTED_ARGS[@]}}" {program} {arguments}'.rstrip(), ""])


def slurm(launch: Launch, *, before: Sequence[str] = ()) -> str:
    """Return a batch file that runs ``launch.sh`` once on each node, after some lines on the first."""
    return "\n".join(
        [
            "#!/usr/bin/env bash",
            f"#SBATCH --job-name={harmless(launch.name)}",
            f"#SBATCH --nodes={launch.nodes}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --gpus-per-node={launch.devices_used_per_node}",
            "#SBATCH --exclusive",
            "set -euo pipefail",
            'MASTER_ADDR="$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)"',
            "export MASTER_ADDR",
            f"export MASTER_PORT={PORT}",
            *before,
            f"srun --kill-on-bad-exit=1 bash {LAUNCH}",
            "",
        ]
    )
