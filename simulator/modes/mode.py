"""Synchronisation modes of data-parallel training."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from forerun.simulator.modes.profile import GradientProfile
from forerun.simulator.opgraph.messages import Filling
from forerun.spaces.errors import RequestError, unknown

Exchange = Literal["all-reduce", "parameter-server"]
Policy = Literal["multiplexed", "fifo", "priority", "windowed"]
Placement = Literal["even", "whole"]
Barrier = Literal["step", "layer"]

MODES = {
    "all-reduce": ("all-reduce", True),
    "sync-ps": ("parameter-server", True),
    "async-ps": ("parameter-server", False),
}
"""Modes by their names on the command line: exchange, and whether workers wait for each other."""
MOST_SHARDS = 4096
"""Limit of servers in a request, above any training; limits memory."""
BUCKET_BYTES = 25 * 2.0**20
"""Gradients of one all-reduce: the default of PyTorch's DistributedDataParallel (documentation, 2.x)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingMode:
    """A variant of data-parallel training.

    ``exchange``: all-reduce between workers, or parameter servers that workers fetch from and send to. ``synchronous``:
    a step ends after the gradients of all workers are applied; otherwise every worker continues with the servers'
    current parameters after its own gradient is applied. ``workers``: replicas of the model. ``shards``: number of
    servers for the parameters: ``placement`` "even" cuts every layer into as many pieces, "whole" assigns each layer to
    the shard with the fewest bytes so far. ``colocated``: shard s runs on the node of worker s and shares its NIC.
    ``policy``: order of sending on a connection: all tensors at once, in the order in which they are ready (fifo),
    lower layers first (priority), or the first ``window_bytes`` of each at once and the rest in order (windowed).
    ``overlap``: transfers overlap with the passes, layer by layer; otherwise download, passes and upload run in
    sequence. ``barrier``: whether a worker fetches a layer for its next step after the update of the whole step, or of
    that layer. ``bucket_bytes``: gradients of one all-reduce; ``first_bucket_bytes``: gradients of the first (None:
    like the others); ``strict_buckets``: never more. ``backup_workers``: number of slowest gradients of a synchronous
    step that are dropped.

    Raises:
        RequestError: a value is out of range, or the values are inconsistent.
    """

    exchange: Exchange = "all-reduce"
    synchronous: bool = True
    workers: int = 1
    shards: int = 1
    placement: Placement = "even"
    colocated: bool = False
    policy: Policy = "multiplexed"
    window_bytes: float = 65535.0
    overlap: bool = True
    barrier: Barrier = "step"
    bucket_bytes: float = BUCKET_BYTES
    first_bucket_bytes: float | None = None
    strict_buckets: bool = False
    backup_workers: int = 0

    def __post_init__(self) -> None:
        options = (("exchange", Exchange), ("policy", Policy), ("placement", Placement), ("barrier", Barrier))
        for name, known in options:
            if getattr(self, name) not in get_args(known):
                raise unknown(name, str(getattr(self, name)), get_args(known))
        for name in ("workers", "shards"):
            if getattr(self, name) < 1:
                raise RequestError(f"{name} must be at least 1, but got {getattr(self, name)}")
        if not self.bucket_bytes > 0:
            raise RequestError(f"a bucket has more than 0 bytes, but got {self.bucket_bytes}")
        if not self.window_bytes >= 0:
            raise RequestError(f"a window is at least 0 bytes, but got {self.window_bytes}")
        if self.exchange == "all-reduce":
            self._check_all_reduce()
        elif self.colocated and self.shards > self.workers:
            raise RequestError(
                f"co-located shards need a worker's node each, but got {self.shards} shards for {self.workers} "
                f"workers; use {self.workers} shards or fewer"
            )
        self._check_backup()

    def _check_all_reduce(self) -> None:
        if not self.synchronous:
            raise RequestError("an all-reduce makes every worker wait; asynchronous training needs parameter servers")
        if self.shards > 1 or self.colocated:
            raise RequestError(f"an all-reduce has no servers, but got {self.shards} shards; use a parameter server")

    def _check_backup(self) -> None:
        if self.backup_workers < 0:
            raise RequestError(f"backup_workers must be at least 0, but got {self.backup_workers}")
        if not self.backup_workers:
            return
        if self.exchange == "all-reduce" or not self.synchronous:
            raise RequestError(
                "only a synchronous parameter server (sync-ps) has backup workers: there a gradient may be late"
            )
        if self.backup_workers >= self.workers:
            raise RequestError(
                f"backup workers must be fewer than workers, but got {self.backup_workers} of {self.workers}; "
                f"use {self.workers - 1} or fewer"
            )

    @property
    def name(self) -> str:
        """The mode as the command line calls it."""
        return next(name for name, mode in MODES.items() if mode == (self.exchange, self.synchronous))

    def shard_bytes(self, profile: GradientProfile) -> tuple[tuple[float, ...], ...]:
        """Return bytes of every layer on every shard (layers x shards).

        Raises:
            RequestError: shards outnumber the layers or parameters to place on them.
        """
        sizes = [layer.parameter_bytes for layer in profile.layers]
        if self.placement == "even":
            # Four bytes is the widest parameter on the wire: a shard without any would be a server without work.
            most = math.floor(profile.total_bytes / 4)
            if self.shards > max(most, 1):
                raise RequestError(
                    f"a shard has one parameter or more, but got {self.shards} shards for {most} parameters of "
                    f"{profile.name}; use {max(most, 1)} or fewer"
                )
            if self.shards > MOST_SHARDS:
                raise RequestError(f"shards are at most {MOST_SHARDS}, but got {self.shards}")
            return tuple(tuple(size / self.shards for _ in range(self.shards)) for size in sizes)
        filled = sum(size > 0 for size in sizes)
        if self.shards > max(filled, 1):
            raise RequestError(
                f"whole layers go to at most as many shards as there are layers with parameters, but got {self.shards} "
                f"shards for {filled} layers of {profile.name}; use {max(filled, 1)} or fewer, or placement even"
            )
        load = [0.0] * self.shards
        rows = []
        for size in sizes:
            least = load.index(min(load)) if size else 0
            load[least] += size
            rows.append(tuple(size if shard == least else 0.0 for shard in range(self.shards)))
        return tuple(rows)

    def buckets(self, profile: GradientProfile) -> tuple[tuple[int, ...], ...]:
        """Return the layers of every all-reduce, in the order of ready gradients (last layer first)."""
        first = self.bucket_bytes if self.first_bucket_bytes is None else self.first_bucket_bytes
        filling = Filling(cap_bytes=self.bucket_bytes, first_bytes=first, strict=self.strict_buckets)
        sizes = [layer.reduced_bytes(self.workers) for layer in reversed(profile.layers)]
        last = len(sizes) - 1
        return tuple(tuple(last - place for place in bucket) for bucket in filling.buckets(sizes))
