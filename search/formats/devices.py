"""How many devices a run has, and how many of them are replicas."""

from dataclasses import dataclass

from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import ALL_REPLICAS


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Devices of a run; ``stated`` is False where nobody said how many there are. ``by_user``: on the command line."""

    devices: int | None
    by_user: bool = False

    @property
    def stated(self) -> bool:
        """Whether the number is known."""
        return self.devices is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReplicas:
    """The replicas of a run, what was assumed about them, and what does not add up."""

    dp: int
    known: bool
    defaults: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def replicas(world: World, model_parallel: int, *, what: str, source: str) -> RunReplicas:
    """Return the replicas that fill the devices with copies of ``model_parallel`` devices each.

    ``what`` spells the product, like ``tp*pp*cp = 8*16*1``.

    Raises:
        RequestError: the user's number of GPUs is no multiple.
    """
    if world.devices is None:
        assumed = f"dp=1: {source} does not say how many GPUs there are (give --gpus)"
        return RunReplicas(dp=1, known=False, defaults=(assumed,))
    if world.devices % model_parallel == 0:
        return RunReplicas(dp=world.devices // model_parallel, known=True)
    law = f"{world.devices} GPUs are not divisible by {what} = {model_parallel}"
    if world.by_user:
        raise RequestError(f"{source}: {law}; give --gpus a multiple of {model_parallel}")
    note = f"{law}, so the number of GPUs in {source} is a placeholder"
    assumed = f"dp=1: the number of GPUs in {source} does not fit (give --gpus)"
    return RunReplicas(dp=1, known=False, defaults=(assumed,), notes=(note,))


def shard_stated(shard: int | None, copies: int, notes: list[str]) -> int:
    """Return how many replicas share sharded states, of which there are ``copies`` (None: a number that follows from
    replicas that are not known)."""
    if shard is None:
        notes.append(
            f"states are sharded over 1/{copies} of the replicas, whose number is not known; read as sharded over all"
        )
        return ALL_REPLICAS
    return shard


def batch_of(found: RunReplicas, per_replica: int, why: str) -> tuple[int | None, str]:
    """Return the global batch that a file leaves to ``per_replica`` sequences times the replicas (None where these are
    not known either), and what to say of it.

    >>> batch_of(RunReplicas(dp=4, known=True), 8, "as the framework assumes")
    (32, 'global batch 32: 8*dp, as the framework assumes')
    """
    if not found.known:
        return None, f"global batch: {per_replica} times the replicas, whose number is not known"
    return per_replica * found.dp, f"global batch {per_replica * found.dp}: {per_replica}*dp, {why}"
