"""Hosts with a network of limited speed on one machine: namespaces, one bridge, one token bucket per direction.

Every host is a network namespace with one interface, ``eth0``, on a bridge that lives in a namespace of its own, so
that nothing of the machine's network is touched. What a host sends is limited at its interface, what it receives at its
port of the bridge: a full-duplex NIC. Processes on one host reach each other over its loopback, without a limit.

    with VirtualHosts([100e6, 100e6]) as hosts:                 # two hosts, 100 Mbit/s each way
        server = hosts.start(0, ["iperf3", "-s", "-1"])
        client = hosts.start(1, ["iperf3", "-c", hosts.address(0)])
        client.wait()

Needs root and iproute2 (``ip``, ``tc``). It ends what it started and removes its namespaces when the block is left,
also by SIGTERM; what a killed run left behind goes with ``python benchmarks/real_runs/hosts.py --clean``.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO

_PREFIX = "frhosts"
_BUCKET_BYTES = 16_384
"""Bytes that pass at once after a pause: small, so that a message of 100 kB feels the limit."""
_PACKET_BYTES = 15_000
"""Longest burst of segments handed to the interface; it has to fit into the bucket."""
_QUEUE_BYTES = 16_000_000
"""Room in front of a bucket: more than all windows together, so that nothing is ever dropped and sent again."""
_WINDOW_BYTES = 65_536
"""Largest TCP window: far less than a tensor, so that connections share a NIC evenly from their first bytes on. With
256 KiB who sends already keeps an advantage over who begins, and asynchronous workers fall out of step with each other
that would otherwise stay together."""


class HostsError(RuntimeError):
    """The machine cannot make such hosts; the message says what is missing."""


class VirtualHosts:
    """A context manager that makes hosts, starts processes on them, and cleans up.

    ``rates_bits_per_s``: one entry per host, the speed of its NIC in each direction.
    """

    def __init__(self, rates_bits_per_s: Sequence[float]) -> None:
        self.rates_bits_per_s = tuple(rates_bits_per_s)
        self._name = f"{_PREFIX}{os.getpid()}"
        self._processes: list[subprocess.Popen[str]] = []
        self._handler: object = None

    def __len__(self) -> int:
        return len(self.rates_bits_per_s)

    def __enter__(self) -> "VirtualHosts":
        check()
        self._handler = signal.signal(signal.SIGTERM, _leave)
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def address(self, host: int) -> str:
        """Return the IPv4 address of a host."""
        return f"10.77.0.{host + 1}"

    def start(
        self,
        host: int,
        command: Sequence[str],
        *,
        environment: dict[str, str] | None = None,
        stdout: IO[str] | int | None = None,
    ) -> subprocess.Popen[str]:
        """Start a process on a host; it ends with the block at the latest."""
        process = subprocess.Popen(
            ["ip", "netns", "exec", self._host(host), *command],
            env={**os.environ, **(environment or {})},
            stdout=stdout,
            text=True,
        )
        self._processes.append(process)
        return process

    def limit(self, host: int, bits_per_s: float) -> None:
        """Change the speed of a host's NIC, both directions."""
        for space, device in ((self._host(host), "eth0"), (self._switch, f"port{host}")):
            _run("tc", "-n", space, "qdisc", "replace", "dev", device, "root", *_bucket(bits_per_s))

    def close(self) -> None:
        """End what still runs and remove all namespaces; a second call does nothing."""
        for process in self._processes:
            if process.poll() is None:
                process.kill()
            process.wait()
        self._processes.clear()
        for space in (*(self._host(host) for host in range(len(self))), self._switch):
            subprocess.run(["ip", "netns", "del", space], stderr=subprocess.DEVNULL, check=False)
        if self._handler is not None:
            signal.signal(signal.SIGTERM, self._handler)  # type: ignore[arg-type]
            self._handler = None

    @property
    def _switch(self) -> str:
        return f"{self._name}-switch"

    def _host(self, host: int) -> str:
        return f"{self._name}-{host}"

    def _build(self) -> None:
        _run("ip", "netns", "add", self._switch)
        _run("ip", "-n", self._switch, "link", "add", "bridge", "type", "bridge")
        _run("ip", "-n", self._switch, "link", "set", "bridge", "up")
        for host, rate in enumerate(self.rates_bits_per_s):
            space, port = self._host(host), f"port{host}"
            _run("ip", "netns", "add", space)
            _run(*f"ip link add eth0 netns {space} type veth peer name {port} netns {self._switch}".split())
            _run("ip", "-n", self._switch, "link", "set", port, "master", "bridge", "up")
            _run("ip", "-n", space, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            for where, device in ((space, "eth0"), (self._switch, port)):
                _run(*f"ip -n {where} link set {device} gso_max_size {_PACKET_BYTES}".split())
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            _run("ip", "-n", space, "link", "set", "lo", "up")
            for key, value in (
                ("net.ipv4.tcp_congestion_control", "reno"),
                ("net.ipv4.tcp_rmem", f"4096 131072 {_WINDOW_BYTES}"),
                ("net.ipv4.tcp_wmem", f"4096 131072 {_WINDOW_BYTES}"),
                ("net.ipv4.tcp_slow_start_after_idle", "0"),
            ):
                path = Path("/proc/sys") / key.replace(".", "/")
                _run("ip", "netns", "exec", space, "sh", "-c", f"echo '{value}' > {path}")
            self.limit(host, rate)


def check() -> None:
    """Raise ``HostsError`` where the machine cannot make such hosts."""
    if os.geteuid() != 0:
        raise HostsError("hosts in network namespaces need root; run this as root")
    for program in ("ip", "tc"):
        if shutil.which(program) is None:
            raise HostsError(f"`{program}` is not there; install iproute2")


def remove_left_over() -> list[str]:
    """Remove namespaces of runs that are no more; return their names."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    removed = []
    for line in listed.splitlines():
        space = line.split()[0]
        number = space.removeprefix(_PREFIX).partition("-")[0]
        if space.startswith(_PREFIX) and number.isdigit() and not Path("/proc", number).exists():
            _run("ip", "netns", "del", space)
            removed.append(space)
    return removed


def _bucket(bits_per_s: float) -> list[str]:
    return ["tbf", "rate", f"{round(bits_per_s)}bit", "burst", str(_BUCKET_BYTES), "limit", str(_QUEUE_BYTES)]


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostsError(f"`{' '.join(command)}` failed: {done.stderr.strip()}; the kernel needs veth, bridge and tbf")


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clean", action="store_true", required=True, help="remove what a killed run left behind")
    parser.parse_args()
    check()
    print("\n".join(remove_left_over()) or "nothing was left behind")
