"""One node of a run on Ray: an actor that starts the node's script. Ray copies this file to nodes without forerun."""

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

RANKS = "node-{rank}.log"
"""Output of the nodes after the first, whose output is the log of the run."""


class RayNode:
    """Process of one node.

    Parameters
    ----------
    script
        Script to run; its folder is on a file system that all nodes share.
    rank
        Number of the node.
    first
        Actor of node 0; None on node 0.
    """

    def __init__(self, script: str, rank: int, first: Any = None) -> None:
        from importlib import import_module

        ray: Any = import_module("ray")
        if first is None:
            with socket.socket() as free:
                free.bind(("", 0))
                self._rendezvous = (str(ray.util.get_node_ip_address()), str(free.getsockname()[1]))
        else:
            self._rendezvous = ray.get(first.rendezvous.remote())
        address, port = self._rendezvous
        folder, null = Path(script).parent, subprocess.DEVNULL
        given = {**os.environ, "NODE_RANK": str(rank), "MASTER_ADDR": address, "MASTER_PORT": port}
        with (folder / RANKS.format(rank=rank)).open("w") if rank else open(os.devnull, "w") as output:
            self._process = subprocess.Popen(
                ["bash", script], env=given, start_new_session=True, stdin=null, stdout=output, stderr=output
            )

    def rendezvous(self) -> tuple[str, str]:
        """Return address and port of the rendezvous of all nodes."""
        return self._rendezvous

    def exit_code(self) -> int | None:
        """Return the exit code of the script; None while it runs."""
        return self._process.poll()

    def end(self, grace_s: float) -> None:
        """Ask the processes of the node to end, and kill the remaining ones after some seconds."""
        ends_at = time.monotonic() + grace_s
        self._signal(signal.SIGTERM)
        while self._process.poll() is None and time.monotonic() < ends_at:
            time.sleep(0.1)
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with suppress(OSError):
            os.killpg(self._process.pid, number)
