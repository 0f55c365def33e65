"""Numbers of devices that launch scripts start."""

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise

from forerun.search.formats.command_line import count, options, run_of, short, split_command
from forerun.search.formats.contract import LaunchFile
from forerun.search.formats.devices import World
from forerun.search.formats.shell import Script

_NODES = ("nnodes", "num-nodes", "nodes")
_DEVICES_OF_NODE = ("GPUS_PER_NODE", "NPROC_PER_NODE", "NGPU", "NPUS_PER_NODE", "SLURM_GPUS_PER_NODE")


def world_of(source: LaunchFile) -> World:
    """Count the devices that the launch scripts of a run start; the user's number takes precedence.

    Raises
    ------
    RequestError
        A script cannot be read.
    """
    if source.gpus is not None:
        return World(devices=source.gpus, by_user=True)
    for name in source.scripts:
        devices = script_devices(source.script(name))
        if devices is not None:
            return World(devices=devices)
    return World(devices=None)


def script_devices(script: Script) -> int | None:
    """Return nodes times devices per node from the launcher, ``#SBATCH`` lines or the usual variables.

    The result is None if one of them comes from a host file or an unset variable.
    """
    for command in dict.fromkeys((tuple(run_of(script.commands)), *script.commands)):
        launcher, program = split_command(command)
        trained = options(program)[0]  # slime: other devices of the cluster generate
        if (each := count(trained, "actor-num-gpus-per-node")) is not None:
            return each * (count(trained, "actor-num-nodes") or 1)
        if command[:1] == ("ray",):
            continue  # the devices of a cluster, which may run other work too
        flags = options(launcher)[0]
        if (chosen := _included(launcher)) is not None:
            return chosen
        if (processes := count(flags, "num-processes", "world-size") or _processes(launcher)) is not None:
            return processes
        per_node = count(flags, "nproc-per-node", "num-gpus", "gpus-per-node")
        nodes = count(flags, *_NODES) or short(launcher, "-N")
        least, colon, most = str(flags.get("nnodes", "")).partition(":")
        if colon and least != most:
            return None  # torchrun's elastic range, unknown before a run
        if per_node is not None and nodes is None and ({*_NODES, "hostfile"} & set(flags)):
            return None
        if per_node is not None:
            return per_node * (nodes or 1)
    flags = options(script.sbatch)[0]
    if gpus := count(flags, "gpus") or short(script.sbatch, "-G"):
        return gpus
    nodes = count(flags, "nodes") or short(script.sbatch, "-N")
    per_node = count(flags, "gpus-per-node", "gres", "ntasks-per-node")
    if nodes and per_node:
        return nodes * per_node
    return _devices_of_variables(script.variables)


def _processes(launcher: Sequence[str]) -> int | None:
    """Return the number of processes (one per device) that MPI or Slurm starts directly.

    >>> _processes(["mpirun", "-np", "16", "python"]), _processes(["srun", "-n", "2", "torchrun"])
    (16, None)
    >>> _processes("srun -N 8 --ntasks-per-node=8 ./bind.sh python".split())
    64
    """
    if any(word in ("torchrun", "deepspeed", "accelerate") or "torch.distributed" in word for word in launcher):
        return None
    if {"mpirun", "mpiexec"} & {*launcher}:
        return short(launcher, "-np") or short(launcher, "-n") or count(options(launcher)[0], "np", "n")
    if "srun" not in launcher:
        return None
    flags = options(launcher)[0]
    nodes, each = short(launcher, "-N") or count(flags, "nodes"), count(flags, "ntasks-per-node")
    if tasks := short(launcher, "-n") or count(flags, "ntasks"):
        return tasks
    return nodes * each if nodes and each and each > 1 else None  # one task of a node may start others


def _included(launcher: Sequence[str]) -> int | None:
    """Return the devices named for DeepSpeed's launcher, None without names.

    >>> _included(["deepspeed", "--include", "a:0,1,2,3@b:0,1"]), _included(["deepspeed", "-i", "localhost:0"])
    (6, 1)
    """
    after = [word for before, word in pairwise(launcher) if before in ("--include", "-i")]
    text = next(iter(after), str(options(launcher)[0].get("include", "")))
    nodes = [re.fullmatch(r"[\w.-]+:(\d+(?:,\d+)*)", node) for node in text.split("@")]
    return sum(node[1].count(",") + 1 for node in nodes if node) if all(nodes) else None


def _devices_of_variables(variables: Mapping[str, str | Sequence[str]]) -> int | None:
    """Return the number of devices in variables read by launchers such as ``swift`` and ``llamafactory-cli``."""
    numbers = {name: int(v) for name, v in variables.items() if isinstance(v, str) and re.fullmatch(r"\d{1,9}", v)}
    visible = variables.get("CUDA_VISIBLE_DEVICES", variables.get("ASCEND_RT_VISIBLE_DEVICES"))
    per_node = next((numbers[n] for n in _DEVICES_OF_NODE if n in numbers), None)
    if per_node is None and isinstance(visible, str) and re.fullmatch(r"\d+(,\d+)*", visible):
        per_node = visible.count(",") + 1
    stated = [name for name in ("NNODES", "NUM_NODES") if name in variables]
    nodes = next((numbers[n] for n in stated if n in numbers), None)
    if per_node and nodes:
        return per_node * nodes
    if per_node and not stated and ("NPROC_PER_NODE" in numbers or visible):
        return per_node  # these launchers start one node by default
    return numbers.get("WORLD_SIZE") or None
