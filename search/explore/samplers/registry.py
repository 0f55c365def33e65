"""Samplers by name, and the choice of one for a space."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from forerun.search.explore.samplers.contract import Sampler
from forerun.search.explore.samplers.driver import StopConditions
from forerun.search.explore.samplers.exhaustive_sampler import ExhaustiveSampler
from forerun.search.explore.samplers.local_sampler import LocalSampler
from forerun.search.request.model_kind import Space
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.strategies import StrategySpace
from forerun.spaces.strategies.staged_space import StagedSpace
from forerun.spaces.units import format_whole

DEFAULT_REACH = 4
"""Largest distance of a boundary from the even division, in layers: head and embedding cost one to four layers in
models of 1B to 500B parameters, and memory of the first stages needs a similar shift."""
ENUMERABLE = 100_000
"""Largest space searched exhaustively, at some 10,000 candidates a second."""
FLAT_ENUMERABLE = 10**11
"""Largest flat space enumerated: an hour on two cores, at 25 million candidates a second."""
PER_STAGE = ("layers", "recompute", "tp", "offload")
"""Choices that may differ between stages: number of layers, recompute, tp of the second half, and the shares of
optimizer states and activations in the memory of the host."""

SAMPLERS: Mapping[str, Callable[[int], Sampler]] = {
    "exhaustive": lambda seed: ExhaustiveSampler(),
    "local": LocalSampler,
}
"""All samplers by name, made from a seed; a new sampler needs a file and a line in this table."""


STORED = 2_000
"""Default limit of strategies if each becomes a trial in a storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """Options of the exploration of a space that cannot be enumerated."""

    sampler: str = "auto"
    """Name of a sampler, or ``auto``."""
    seed: int = 0
    """Seed of the sampler's random numbers."""
    reach: int = DEFAULT_REACH
    """Layers by which a stage boundary may move."""
    per_stage: tuple[str, ...] = ("layers",)
    """Choices that may differ between stages, of ``PER_STAGE``."""
    storage: str | None = None
    """Storage of Optuna for the trials: a journal file or an RDB URL."""
    evaluations: int | None = None
    """Most scored strategies."""
    seconds: float | None = None
    """Time limit in s, including the search of the flat space."""
    stagnation: int | None = None
    """Number of strategies without improvement after which the sampler stops."""
    starts: tuple[str, ...] = ()
    """Strategies to begin with, or results of earlier searches (a folder of ``--out``, ``best.json`` or
    ``leaderboard.json``)."""
    best: Path | None = None
    """File that has the best strategy so far at any time."""

    def __post_init__(self) -> None:
        if self.sampler not in (*SAMPLERS, "auto"):
            raise unknown("sampler", self.sampler, (*SAMPLERS, "auto"))
        for name in self.per_stage:
            if name not in PER_STAGE:
                raise unknown("choice per stage", name, PER_STAGE)

    def space(self, flat: StrategySpace) -> StagedSpace:
        """Return the space to explore around a flat one."""
        return StagedSpace(
            flat=flat,
            reach=self.reach if "layers" in self.per_stage else 0,
            recompute="recompute" in self.per_stage,
            halves="tp" in self.per_stage,
            offload="offload" in self.per_stage,
        )


def limits_of(exploring: Exploring, name: str) -> StopConditions:
    """Return the stop conditions of a sampler."""
    given, seconds, stagnation = exploring.evaluations, exploring.seconds, exploring.stagnation
    if given is not None:
        return StopConditions(evaluations=given, asked=50 * given, stagnation=stagnation, seconds=seconds)
    if name == "exhaustive":
        return StopConditions(evaluations=1 << 62, asked=1 << 62, stagnation=stagnation, seconds=seconds)
    default = StopConditions()
    return StopConditions(
        asked=default.asked if exploring.storage is None else STORED,
        stagnation=default.stagnation if stagnation is None else stagnation,
        seconds=seconds,
    )


def sampler_named(exploring: Exploring, space: StagedSpace) -> tuple[Sampler, str]:
    """Return the named sampler, or the one that suits the space (``auto``), and the reason.

    Raises:
        RequestError: the sampler lacks a package or a storage, or the space is too large for it.
    """
    name, why = exploring.sampler, "as asked"
    if name == "auto":
        name, why = suited(space, all_kept=exploring.storage is not None)
    elif name == "exhaustive" and space.size > 100 * ENUMERABLE:
        raise RequestError(
            f"{format_whole(space.size)} candidates are too many to enumerate; restrict axes with --set, or use "
            "--sampler local"
        )
    sampler = SAMPLERS[name](exploring.seed)
    if exploring.storage is None:
        return sampler, why
    from forerun.search.explore.samplers.stored_sampler import StoredSampler

    return StoredSampler(sampler, exploring.storage), why


def suited(space: StagedSpace, *, all_kept: bool = False) -> tuple[str, str]:
    """Return the name of the sampler that suits the size and shape of a space, and the reason.

    Parameters
    ----------
    space
        Space to search.
    all_kept
        Whether every strategy becomes a trial in a storage.
    """
    size = f"{format_whole(space.size)} candidates"
    if space.size <= (STORED if all_kept else ENUMERABLE):
        return "exhaustive", f"{size} can all be looked at"
    deep = any(pp > 1 for pp in space.flat.choices["pp"])
    if space.offload or ((space.reach or space.recompute or space.halves) and deep):
        return "local", f"{size} are too many to enumerate, and stages can be planned one by one"
    return "local", f"{size} are too many to enumerate, and axes are ordered"


def suited_to_flat(space: Space) -> tuple[str, str]:
    """Return the sampler name that suits a flat space, and the reason: exhaustive search if it is fast enough."""
    size = f"{format_whole(space.size)} candidates"
    if space.size <= FLAT_ENUMERABLE:
        return "exhaustive", f"all of {size} can be enumerated"
    return "local", f"{size} are too many to enumerate"
