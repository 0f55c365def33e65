"""Scripts that start a run on its nodes, manually or under Slurm (the only writer of such scripts).

Both start from any directory. ``launch.sh`` is in its folder; Slurm runs a copy of ``slurm.sbatch``, which finds that
folder by the submitted path. Every value is quoted; user text appears in comments and directives only with harmless
characters.
"""

import re
import shlex
from collections.abc import Mapping, Sequence

from forerun.search.formats.contract import Files, Launch
from forerun.search.formats.templates import filled
from forerun.spaces.errors import RequestError
from forerun.spaces.models.model import Model
from forerun.spaces.strategies.racks import use_of

LAUNCH = "launch.sh"
SLURM = "slurm.sbatch"
PORT = "29500"
TORCHRUN = (
    'torchrun --nnodes "$NNODES" --nproc_per_node "$GPUS_PER_NODE" --node_rank "$NODE_RANK"',
    '--master_addr "$MASTER_ADDR" --master_port "$MASTER_PORT"',
)
"""Start of torchrun on each node; the program and its arguments follow."""

DEVICES_IN_SLURM = {"Huawei": "npu", "Intel": "hpu", "AWS": "neuron"}
"""Slurm's generic resources for devices of a vendor other than GPUs; names are site-specific."""
YOUR_PROGRAM = '"${TRAIN_SCRIPT'
"""Start of the word with the user's program in a script."""
_PROGRAM = re.compile(r'-m \S+|"[^"]*"\S*|\S+')
_PREDICTED = re.compile(r"^# predicted with (.*)$", re.MULTILINE)
_FACT = re.compile(r"--(documents|moe-imbalance) (\d+(?:\.\d+)?)(?= |$)")

Value = str | int | float | bool | Sequence[str | int]


def harmless(text: str) -> str:
    """Return free text as one short word that is safe in shells, directives and comments.

    >>> harmless("my run; rm -rf ~"), harmless("$(x)")
    ('my-run-rm-rf', 'x')
    """
    return re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.")[:60] or "forerun"


def comment(text: str) -> str:
    """Return free text as the rest of one comment line: without control characters and line ends."""
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


def facts_of_data(launch: Launch) -> dict[str, float]:
    """Return assumptions on the data by flag of the search, for which frameworks have no keys."""
    workload = launch.workload
    facts = {"documents": workload.document_tokens} if launch.packed and workload.document_tokens else {}
    return facts | ({"moe_imbalance": workload.moe_imbalance} if workload.moe_imbalance > 1 else {})


def stated_facts(*texts: str) -> dict[str, float]:
    """Read the assumptions on the data in files of ``scripts``.

    >>> stated_facts("# predicted with --documents 20000 --moe-imbalance 1.25")
    {'documents': 20000.0, 'moe_imbalance': 1.25}
    """
    lines = [match[1] for text in texts for match in _PREDICTED.finditer(text)]
    matches = (match for line in lines for match in _FACT.finditer(line))
    return {match[1].replace("-", "_"): float(match[2]) for match in matches}


def _own_tokens(launch: Launch) -> list[tuple[str, int]]:
    """Return the parts of a model with separate tokens, such as images, and their tokens per sequence."""
    layers = launch.model.layers if isinstance(launch.model, Model) else ()
    return list(dict.fromkeys((layer.name, layer.tokens) for layer in layers if layer.tokens is not None))


def scripts(
    launch: Launch, title: str, command: Sequence[str], *, before: Sequence[str] = (), once: bool = False
) -> Files:
    """Return ``launch.sh`` and ``slurm.sbatch``.

    Parameters
    ----------
    launch
        The training run.
    title
        Name and version of the framework.
    command
        The launcher and its program as shell text: each entry is a line of one command.
    before
        Lines before the command.
    once
        Whether Slurm runs ``launch.sh`` on the first node only, whose launcher starts the others; by default on every
        node.
    """
    if once and launch.job.platform != "slurm":
        raise RequestError(f"--platform {launch.job.platform}: this launcher starts its nodes by srun, of Slurm")
    s, command = launch.strategy, _with_trainer(command, launch.job.trainer)
    data = " ".join(f"--{name.replace('_', '-')} {value:.12g}" for name, value in facts_of_data(launch).items())
    remarks = [
        *([f"# predicted with {data}"] if data else []),
        *(f"# predicted for {tokens:,} tokens of {comment(name)} a sequence" for name, tokens in _own_tokens(launch)),
    ]
    text = filled(
        "launch.sh.txt",
        name=comment(launch.name),
        title=title,
        strategy=s,
        devices=s.devices,
        remarks="\n".join(remarks),
        nodes=launch.nodes,
        devices_per_node=launch.devices_used_per_node,
        port=PORT,
        before="\n".join([*before, ""]) if before else "",
        command=" \\\n    ".join(filter(None, command)),
    )
    return {LAUNCH: text, SLURM: _batch(launch, once=once)}


def _with_trainer(command: Sequence[str], trainer: str) -> Sequence[str]:
    """Replace the program of a launcher by a trainer with the same arguments.

    >>> _with_trainer([*TORCHRUN, "-m torchtitan.train --module m"], "mine.py --log 1")[-1]
    'mine.py --log 1 --module m'
    """
    if not trainer:
        return command
    for place, entry in enumerate(command):
        if entry.startswith(YOUR_PROGRAM) or tuple(command[:place]) == TORCHRUN:
            changed = _PROGRAM.sub(lambda _: trainer, entry, count=1)
            return [*command[:place], changed, *command[place + 1 :]]
    raise RequestError(f"{command[0].split()[0]} starts its own trainer: name another format, or leave --trainer out")


def _batch(launch: Launch, *, once: bool) -> str:
    """Return a batch file that runs ``launch.sh`` on each node, or ``once``."""
    each = launch.devices_used_per_node
    nodes = rack_nodes(launch)
    directives = [
        f"--job-name={harmless(launch.name)}",
        *launch.job.directives,
        f"--nodes={launch.nodes}",
        f"--ntasks-per-node={each if once else 1}",
        f"--gres={DEVICES_IN_SLURM[launch.vendor]}:{each}"
        if launch.vendor in DEVICES_IN_SLURM
        else f"--gpus-per-node={each}",
        *([f"--segment={nodes}"] if nodes else []),
        "--exclusive",
    ]
    if once and launch.job.container is not None:
        raise RequestError("--container: this launcher starts its own srun, which a container of pyxis does not have")
    written = '"${SLURM_SUBMIT_DIR:-.}"' if launch.job.folder is None else shlex.quote(launch.job.folder)
    return filled(
        "slurm.sbatch.txt",
        directives="\n".join(f"#SBATCH {directive}" for directive in directives),
        launch=LAUNCH,
        written=written,
        port=PORT,
        command=" \\\n    ".join([*_runner(launch, once=once), f'bash "$FOLDER/{LAUNCH}"']),
    )


def _runner(launch: Launch, *, once: bool) -> list[str]:
    """Return the command that runs ``launch.sh``, line by line."""
    if once:
        return []
    runner = ["srun --kill-on-bad-exit=1"]
    if launch.job.container is not None:
        runner += [
            f'--container-image={shlex.quote(launch.job.container)} --container-workdir="$FOLDER"',
            '--container-mounts="$FOLDER:$FOLDER${CONTAINER_MOUNTS:+,$CONTAINER_MOUNTS}"',
        ]
    return runner


def rack_nodes(launch: Launch) -> int:
    """Return the number of nodes of a segment, which Slurm places inside one rack (``--segment``, topology/block).

    Groups of tensor, context and expert ranks that fit a rack then stay inside one, as predicted. 0: nodes are not in
    racks, or segments are single nodes.

    >>> from forerun.spaces.strategies import parse_strategy
    >>> experts = parse_strategy("tp1 pp1 dp512 ep64 mbs1")
    >>> rack_nodes(Launch(rack_devices=72, devices_per_node=4, strategy=experts, model=None, workload=None))
    16
    """
    if not launch.rack_devices:
        return 0
    use = use_of(launch.rack_devices, launch.devices_per_node, launch.strategy)
    nodes = use.segment // launch.devices_per_node
    return nodes if nodes > 1 else 0
