"""A real Slurm on this machine: two nodes of eight generic devices, without systemd, in a folder of its own."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "scontrol")
DEVICES, NODES, PORT = 8, 2, 17900
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
GresTypes=gpu
ReturnToService=2
NodeName=node[0-{last}] NodeHostname={host} NodeAddr=127.0.0.1 Port=[{first_port}-{last_port}] CPUs={cpus} \
Gres=gpu:{devices} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE State=UP
"""


def missing() -> str:
    """Return why there can be no Slurm here, empty where there can."""
    lacking = [name for name in DAEMONS if shutil.which(name, path=_path()) is None]
    if lacking:
        return f"{', '.join(lacking)} is not installed (Debian: apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "its daemons are started as root"


@contextmanager
def slurm(folder: Path) -> Iterator[Mapping[str, str]]:
    """Start the daemons; yield the environment in which its commands find them, and end them afterwards.

    Raises:
        RuntimeError: the nodes are not idle in time.
    """
    for name in ("state", *(f"spool-node{node}" for node in range(NODES))):
        (folder / name).mkdir()
    for device in range(DEVICES):
        (folder / f"gpu{device}").touch()
    cpus = os.cpu_count() or 1
    host = subprocess.run(["hostname", "-s"], capture_output=True, text=True, check=True).stdout.strip()
    ports = {"port": PORT, "first_port": PORT + 1, "last_port": PORT + NODES}
    facts = {"host": host, "folder": folder, "last": NODES - 1, "cpus": cpus, "devices": DEVICES, **ports}
    (folder / "slurm.conf").write_text(_CONFIGURATION.format(**facts))
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/gpu[0-{DEVICES - 1}]\n")
    (folder / "munge.key").write_bytes(os.urandom(1024))
    (folder / "munge.key").chmod(0o400)
    environment = {**os.environ, "PATH": _path(), "SLURM_CONF": str(folder / "slurm.conf")}
    files = {"socket": "socket", "key-file": "key", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    commands = [["munged", "--foreground", "--force", *(f"--{k}={folder}/munge.{v}" for k, v in files.items())]]
    commands += [["slurmctld", "-D", "-i"], *(["slurmd", "-D", "-N", f"node{node}"] for node in range(NODES))]
    with ExitStack() as stack:
        for command in commands:
            log = stack.enter_context((folder / f"{command[0]}-{command[-1]}.out".replace("/", "_")).open("w"))
            daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            stack.callback(_end, daemon)
            time.sleep(0.5)
        _wait_idle(environment, folder)
        yield environment


def _wait_idle(environment: Mapping[str, str], folder: Path) -> None:
    for _ in range(60):
        words = ["sinfo", "--noheader", "--Node", "--format=%t"]
        states = subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stdout.split()
        if states == ["idle"] * NODES:
            return
        time.sleep(0.5)
    logs = "\n".join(f"{path.name}: {path.read_text()[-600:]}" for path in sorted(folder.glob("*.log")))
    raise RuntimeError(f"the nodes are not idle:\n{logs}")


def _end(daemon: "subprocess.Popen[bytes]") -> None:
    daemon.terminate()
    try:
        daemon.wait(10)
    except subprocess.TimeoutExpired:
        daemon.kill()
        daemon.wait()


def _path() -> str:
    return f"/usr/sbin:{os.environ['PATH']}"
