"""Which sampler looks for the best, and why."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from forerun.search.samplers.contract import Sampler
from forerun.search.samplers.driver import Limits
from forerun.search.samplers.exhaustive_sampler import ExhaustiveSampler
from forerun.search.samplers.local_sampler import LocalSampler
from forerun.search.samplers.optuna_samplers import OptunaSampler
from forerun.search.samplers.random_sampler import RandomSampler
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.strategies.staged_space import StagedSpace

DEFAULT_REACH = 4
"""Layers by which a boundary may lie off its even place: the head and the embedding weigh one to four layers in
models of 1B to 500B parameters, and memory of the first stages asks for as many."""
ENUMERABLE = 100_000
"""Candidates that are all looked at, at some 10,000 a second."""

Maker = Callable[[int, str | None], Sampler]

SAMPLERS: Mapping[str, Maker] = {
    "exhaustive": lambda seed, storage: ExhaustiveSampler(seed),
    "random": lambda seed, storage: RandomSampler(seed),
    "tpe": lambda seed, storage: OptunaSampler("tpe", seed, storage),
    "nsga2": lambda seed, storage: OptunaSampler("nsga2", seed, storage),
    "cmaes": lambda seed, storage: OptunaSampler("cmaes", seed, storage),
    "gp": lambda seed, storage: OptunaSampler("gp", seed, storage),
    "local": lambda seed, storage: LocalSampler(seed),
}
"""All samplers by name; a new one is a file and a line here."""
MOST_ASKED: Mapping[str, int] = {"tpe": 1_000, "gp": 500, "cmaes": 10_000, "nsga2": 20_000}
"""Strategies that Optuna's samplers are asked for where the user names no limit: up to what number its documentation
advises them (optuna.readthedocs.io, samplers; NSGA-II twice that). A trial of TPE takes 30 ms on a 2-core machine."""
STORING = ("tpe", "nsga2", "cmaes", "gp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploring:
    """How a space that cannot be enumerated is to be explored; ``evaluations`` and ``seconds`` bound it further."""

    sampler: str = "auto"
    seed: int = 0
    reach: int = DEFAULT_REACH
    storage: str | None = None
    evaluations: int | None = None
    seconds: float | None = None

    def __post_init__(self) -> None:
        if self.sampler not in (*SAMPLERS, "auto"):
            raise unknown("sampler", self.sampler, (*SAMPLERS, "auto"))
        if self.storage is not None and self.sampler not in STORING:
            raise RequestError(f"a storage is for Optuna's samplers ({', '.join(STORING)}), not {self.sampler}")


def limits_of(exploring: Exploring, name: str) -> Limits:
    """Return when the sampler of a name is to stop."""
    given = exploring.evaluations
    if given is not None:
        return Limits(evaluations=given, asked=50 * given, stagnation=None, seconds=exploring.seconds)
    if name == "exhaustive":
        return Limits(evaluations=1 << 62, asked=1 << 62, stagnation=None, seconds=exploring.seconds)
    return Limits(asked=MOST_ASKED.get(name, Limits().asked), seconds=exploring.seconds)


def sampler_named(exploring: Exploring, space: StagedSpace) -> tuple[Sampler, str]:
    """Return the sampler that a user names, or that suits the space (``auto``), and why.

    Raises:
        RequestError: the sampler needs a package or a storage that is not there, or the space is too large for it.
    """
    name, why = exploring.sampler, "as asked"
    if name == "auto":
        small = space.size <= ENUMERABLE
        name = "exhaustive" if small else "local"
        why = f"{space.size:.3g} candidates can{'' if small else 'not'} all be looked at"
    elif name == "exhaustive" and space.size > 100 * ENUMERABLE:
        raise RequestError(
            f"{space.size:.3g} candidates cannot all be looked at; restrict axes with --set, or use --sampler local"
        )
    return SAMPLERS[name](exploring.seed, exploring.storage), why
