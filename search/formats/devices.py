"""Numbers of devices and replicas of a run."""

import math
from dataclasses import dataclass

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import ALL_REPLICAS


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Devices of a run; ``stated`` is False if their number is unknown. ``by_user``: stated on the command line."""

    devices: int | None
    by_user: bool = False

    @property
    def stated(self) -> bool:
        """Whether the number is known."""
        return self.devices is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReplicas:
    """The replicas of a run, assumptions about them, and contradictions."""

    dp: int
    known: bool
    defaults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def replicas(world: World, model_parallel: int, *, what: str, source: str, least: int = 1) -> RunReplicas:
    """Return the number of replicas of ``model_parallel`` devices that fill the devices.

    ``what``: text of the product, like ``tp*pp*cp = 8*16*1``. ``least``: the fewest replicas with all experts.

    Raises
    ------
    RequestError
        The user's number of GPUs is not a multiple.
    """
    fewest = f"dp={least}, the fewest for its experts" if least > 1 else "dp=1"
    if world.devices is None:
        assumed = f"{fewest}: {source} does not say how many GPUs there are (give --gpus)"
        return RunReplicas(dp=least, known=False, defaults=(assumed,))
    if world.devices % model_parallel == 0:
        return RunReplicas(dp=world.devices // model_parallel, known=True)
    law = f"{world.devices} GPUs are not divisible by {what} = {model_parallel}"
    if world.by_user:
        raise RequestError(f"{source}: {law}; give --gpus a multiple of {model_parallel}")
    note = f"{law}, so the number of GPUs in {source} is a placeholder"
    assumed = f"{fewest}: the number of GPUs in {source} does not fit (give --gpus)"
    return RunReplicas(dp=least, known=False, defaults=(assumed,), notes=(note,))


def fewest_replicas(ep: int, etp: int, shared: int) -> int:
    """Return the fewest replicas with ``ep*etp`` expert ranks, at ``shared`` ranks (tp*cp) per replica.

    >>> fewest_replicas(64, 1, 1), fewest_replicas(16, 1, 2), fewest_replicas(1, 8, 8)
    (64, 8, 1)
    """
    return ep * etp // math.gcd(ep * etp, shared)


def shard_stated(shard: int | None, copies: int, notes: list[str]) -> int:
    """Return the number of replicas that share states, given the number of ``copies``.

    ``shard`` is the number in the file; None if it depends on an unknown number of replicas.
    """
    if shard is None:
        notes.append(
            f"states are sharded over 1/{copies} of the replicas, whose number is not known; read as sharded over all"
        )
        return ALL_REPLICAS
    return shard


def batch_of(run: RunReplicas, per_replica: int, why: str) -> tuple[int | None, str]:
    """Return the global batch of ``per_replica`` sequences times the replicas, and a remark.

    The batch is None if the replicas are unknown.

    >>> batch_of(RunReplicas(dp=4, known=True), 8, "as the framework assumes")
    (32, 'global batch 32: 8*dp, as the framework assumes')
    """
    if not run.known:
        return None, f"global batch: {per_replica} times the replicas, whose number is not known"
    return per_replica * run.dp, f"global batch {per_replica * run.dp}: {per_replica}*dp, {why}"
