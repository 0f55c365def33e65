"""The interface of a kind of models: its candidates, their text form and their costs (the kinds: ``kinds``)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from forerun.simulator.score_table import ScoreTable
from forerun.spaces.clusters import Cluster
from forerun.spaces.frameworks import FrameworkProfile
from forerun.spaces.models.model import Model
from forerun.spaces.schedules import Programs
from forerun.spaces.strategies import Context, Strategy, StrategySpace, StrategyTable

if TYPE_CHECKING:
    from forerun.simulator.events import Disturbance, EventResult
    from forerun.simulator.opgraph import GraphContext
    from forerun.simulator.opgraph.bottleneck import SplitFacts
    from forerun.simulator.opgraph.space import SplitSpace
    from forerun.simulator.opgraph.table import AnySplit, SplitTable
    from forerun.spaces.opgraph import GraphModel
    from forerun.spaces.trees import Node

C = TypeVar("C", contravariant=True)
AnyContext: TypeAlias = "Context | GraphContext"
AnyStrategy: TypeAlias = "Strategy | AnySplit"
Table: TypeAlias = "StrategyTable | SplitTable"
Space: TypeAlias = "StrategySpace | SplitSpace"
Choices = Mapping[str, Sequence[object]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The work of a step: ``units`` tokens or samples, called ``unit``, with ``flops`` model FLOPs in ``precision``.

    A whole training has ``total`` units, None if its length is unknown.
    """

    unit: str
    units: float
    flops: float
    precision: str
    total: float | None = None


class ModelKind(Protocol[C]):
    """Interface of a kind of models for searches; contexts, spaces, tables and strategies are of this kind.

    ``name`` with its article; ``framework``: the usual training software; ``chunk``: candidates scored at once (limits
    memory); ``first``: candidates in the first slice of a space.
    """

    name: str
    framework: str
    chunk: int
    first: int

    def model(self, name: str) -> "Model | GraphModel":
        """Return the model of a name or file.

        Raises
        ------
        RequestError
            The name is unknown, or its file is wrong.
        """

    def software(self, name: str, switches: Mapping[str, str]) -> FrameworkProfile | None:
        """Return the software of a user's file; None for a name of the catalogue.

        Raises
        ------
        RequestError
            The name is unknown.
        """

    def usual(self, model: Any, cluster: Cluster) -> str:
        """Return the usual training software of a ``model`` of the kind on a cluster."""

    def kept(self, space: Space, top: int) -> int:
        """Return the number of candidates kept by a search for ``top`` rows."""

    def check(self, choices: Choices) -> None:
        """Check that the kind has an axis, and the axis has the user's choices.

        Raises
        ------
        RequestError
            A choice or the axis is unknown.
        """

    def space(self, context: C, gpus: Sequence[int], choices: Choices) -> Space:
        """Return all candidates on some numbers of devices, ``choices`` in place of the default ones."""

    def strategies(self, space: Space, indices: NDArray[np.int64]) -> tuple[AnyStrategy, ...]:
        """Return candidates of a space, in the order given."""

    def table(self, context: C, strategies: Sequence[AnyStrategy]) -> Table:
        """Return the table of some strategies."""

    def parse(self, context: C, text: str) -> AnyStrategy:
        """Return the strategy of a text.

        Raises
        ------
        RequestError
            The text is not a strategy.
        """

    def broken(self, context: C, strategy: AnyStrategy) -> Sequence[str]:
        """Return the texts of the laws that a strategy breaks."""

    def request(self, context: C, choices: Choices) -> dict[str, Any]:
        """Return the kind's part of a request as plain data, with defaults."""

    def work(self, context: C, gpus: int) -> StepWork:
        """Return the work of a step on some devices."""

    def facts(self, context: C, table: Table, scores: ScoreTable) -> "Sequence[SplitFacts | None]":
        """Return the facts of each row besides its costs."""

    def tree(self, context: C, strategy: AnyStrategy) -> "Node":
        """Return a strategy as a strategy tree.

        Raises
        ------
        RequestError
            A mixture has no tree.
        """

    def simulate(
        self,
        context: C,
        strategy: AnyStrategy,
        disturbance: "Disturbance | None" = None,
        *,
        contention: bool = False,
        orders: Programs = (),
    ) -> "EventResult":
        """Simulate one step event by event.

        Raises
        ------
        RequestError
            The schedule has no such order, or the request is not supported for the kind.
        """

    def write_chakra(
        self, context: C, strategy: AnyStrategy, result: "EventResult", folder: Path, *, contention: bool = False
    ) -> int:
        """Write the Chakra traces of a simulated step into a folder; return the number of devices.

        ``contention``: see ``simulate``.

        Raises
        ------
        RequestError
            There are too many devices, or a file cannot be written.
        """

    def result_scores(self, context: C, table: Table, result: "EventResult") -> ScoreTable:
        """Return the scores of the only strategy of a table from its simulated step."""

    def event_scores(self, context: C, table: Table, *, contention: bool = False) -> ScoreTable:
        """Return the event-level scores of a table: 10 to 500 ms per row.

        Raises
        ------
        RequestError
            See ``simulate``.
        """
