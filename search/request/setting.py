"""A request with its context, its space and named defaults."""

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, cast, overload

from forerun.search.request.goodput import Interrupted
from forerun.search.request.kinds import kind_of
from forerun.search.request.limits import NO_LIMITS, TrainingLimits
from forerun.search.request.model_kind import AnyContext, AnyStrategy, Choices
from forerun.search.request.request import Request
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.strategies import Context, Software, StrategySpace
from forerun.spaces.strategies.defaults import LARGEST_CP, LARGEST_MBS, LARGEST_TP, LARGEST_VPP
from forerun.spaces.strategies.software import can_turn_on, for_experts, names_of

if TYPE_CHECKING:
    from typing_extensions import TypeIs, TypeVar

    from forerun.simulator.opgraph import GraphContext
    from forerun.simulator.opgraph.space import SplitSpace

    C = TypeVar("C", bound=Context | GraphContext, default=Context, covariant=True)
else:
    from typing import TypeVar

    C = TypeVar("C")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting(Generic[C]):
    """A request with the context of its kind of model (``kinds``).

    ``gpus`` are the device counts to search, None if a strategy decides.

    ``defaults`` names every default, ``notes`` are remarks on model and cluster, and ``warnings`` those that must be
    read first.
    """

    request: Request
    context: C
    gpus: tuple[int, ...] | None
    objective: str
    top: int
    usd_per_gpu_hour: float | None
    defaults: tuple[str, ...]
    notes: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    limits: TrainingLimits = NO_LIMITS
    interrupted: Interrupted | None = None

    @overload
    def space(self: "Setting", overrides: Choices | None = None) -> StrategySpace: ...

    @overload
    def space(self: "Setting[GraphContext]", overrides: Choices | None = None) -> "SplitSpace": ...

    @overload
    def space(self: "Setting[AnyContext]", overrides: Choices | None = None) -> "StrategySpace | SplitSpace": ...

    def space(self, overrides: Choices | None = None) -> "StrategySpace | SplitSpace":
        """Return the space to search; ``overrides`` replace choices of the request.

        Raises
        ------
        RequestError
            No device count is known, or an axis or choice is unknown.
        """
        if self.gpus is None:
            raise RequestError("a search needs a number of GPUs; add --gpus 512 or --gpus 64..512")
        choices = self.request.overrides if overrides is None else overrides
        context: AnyContext = self.context
        if isinstance(context, Context):
            context = dataclasses.replace(context, free_software=self.free_software)
        return kind_of(context).space(context, self.gpus, choices)

    @property
    def free_software(self) -> Software:
        """Switches that a search may turn on, since the user did not set them."""
        if not isinstance(self.context, Context):
            return Software.NONE
        here = device_kinds(self.context.cluster)
        return can_turn_on(self.context.framework, but=self.request.switches.keys(), on=here)

    def slowdown(self) -> dict[int, float]:
        """Return the factor by which interruptions prolong a training, by number of GPUs; empty without goodput."""
        if self.interrupted is None or self.gpus is None:
            return {}
        return {gpus: self.interrupted.on(gpus).slowdown for gpus in self.gpus}

    def axes_left_open(self) -> str:
        """Describe the choices of axes that the user did not restrict."""
        other = "other " if self.request.overrides else ""
        if not isinstance(self.context, Context):
            return f"{other}axes: every mode and grid of an operator graph"
        return (
            f"{other}axes: all that {self.context.framework.name} offers, up to "
            f"tp {LARGEST_TP}, cp {LARGEST_CP}, vpp {LARGEST_VPP}, mbs {LARGEST_MBS}{self._switches_left_open()}"
        )

    def _switches_left_open(self) -> str:
        """Describe the switches that are searched; "" if no switch affects the model."""
        moe = isinstance(self.context, Context) and self.context.moe
        free = [setting for setting in names_of(self.free_software) if moe or not for_experts(setting)]
        return f", and {' and '.join(free)} where {'they pay' if free[1:] else 'it pays'}" if free else ""

    def remarks(self) -> tuple[str, ...]:
        """Return warnings, defaults and notes as lines."""
        filled = (f"defaults used: {'; '.join(self.defaults)}",) if self.defaults else ()
        return (*(f"warning: {text}" for text in self.warnings), *filled, *(f"note: {note}" for note in self.notes))

    def to_json(self) -> dict[str, Any]:
        """Return the request with every default filled in, as plain data."""
        data = self.request.to_json()
        data |= {
            "model_name": self.context.model.name,
            "cluster_name": self.context.cluster.name,
            "free_switches": names_of(self.free_software),
            "gpu_counts": None if self.gpus is None else list(self.gpus),
            "objective": self.objective,
            "top": self.top,
        }
        of_kind = kind_of(self.context).request(self.context, self.request.overrides)
        return data | of_kind | ({"framework": self.request.framework} if self.request.framework else {})

    def document(self) -> dict[str, Any]:
        """Return the request with defaults and notes, for documents without a leaderboard."""
        return {**self.to_json(), "defaults": list(self.defaults), "notes": [*self.warnings, *self.notes]}


def has_transformer(setting: Setting[AnyContext]) -> "TypeIs[Setting]":
    """Whether the model of a setting is a transformer, not an operator graph."""
    return isinstance(setting.context, Context)


def of_transformer(setting: Setting[AnyContext]) -> Setting:
    """Return a setting whose model is a transformer.

    Raises
    ------
    RequestError
        The model is an operator graph.
    """
    if has_transformer(setting):
        return setting
    raise RequestError(f"this is for transformers, and {setting.request.model} is an operator graph")


def of_operator_graph(setting: Setting[AnyContext]) -> "Setting[GraphContext]":
    """Return a setting whose model is an operator graph.

    Raises
    ------
    RequestError
        The model is a transformer.
    """
    if has_transformer(setting):
        raise RequestError(f"this is for operator graphs, and {setting.request.model} is a transformer")
    return cast("Setting[GraphContext]", setting)


def legal_strategy(setting: "Setting[AnyContext]", given: "str | AnyStrategy") -> Any:
    """Return a strategy that keeps every law of the setting; ``given`` may be its text.

    Raises
    ------
    RequestError
        The text cannot be read, or the strategy breaks laws; the message names all of them.
    """
    context, kind = setting.context, kind_of(setting.context)
    strategy = kind.parse(context, given) if isinstance(given, str) else given
    devices, cluster = strategy.devices, context.cluster
    if devices > cluster.max_devices:
        raise RequestError(f"{strategy} occupies {devices} GPUs, but {cluster.name} has {cluster.max_devices}")
    if setting.gpus is not None and devices not in setting.gpus:
        counts = " or ".join(map(str, setting.gpus[:8]))
        raise RequestError(f"strategy {strategy} occupies {devices} GPUs, but --gpus asks for {counts}")
    broken = kind.broken(context, strategy)
    if broken:
        laws = "\n".join(f"  {message}" for message in broken)
        raise RequestError(f"strategy {strategy} is not legal:\n{laws}")
    return strategy
