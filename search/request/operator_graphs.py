"""The kind of models that are given operator by operator: see ``kinds``."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forerun.search.request.model_kind import Choices, StepWork
from forerun.simulator.opgraph import GraphContext
from forerun.simulator.opgraph.bottleneck import SplitFacts, facts_of
from forerun.simulator.opgraph.space import SplitSpace, split_space
from forerun.simulator.opgraph.table import AnySplit, SplitTable, table_of_splits
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.clusters import Cluster
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.opgraph import GraphModel
from forerun.spaces.opgraph.limits import check_split
from forerun.spaces.opgraph.mixture import Mixture, is_mixture, parse_mixture
from forerun.spaces.opgraph.profile import DEFAULT_PROFILE, load_graph_profile, with_graph_switches
from forerun.spaces.opgraph.resolve import resolve_graph_model
from forerun.spaces.opgraph.split import Mode, Split, parse_split
from forerun.spaces.schedules import Programs

if TYPE_CHECKING:
    from forerun.simulator.events import Disturbance, EventResult
    from forerun.spaces.trees import Node


class _OperatorGraphs:
    """Models given operator by operator: some thousand splits, listed.

    Their batch may grow with the devices, so that they rank by seconds per sample.
    """

    name = "an operator graph"
    framework = DEFAULT_PROFILE
    chunk = 4096
    first = 8192

    def model(self, name: str) -> GraphModel:
        return resolve_graph_model(name, allow_generic=True)[0]

    def software(self, name: str, switches: Mapping[str, str]) -> None:
        with_graph_switches(load_graph_profile(name), switches)

    def usual(self, model: Any, cluster: Cluster) -> str:
        """Return the name of the usual training software."""
        return self.framework

    def kept(self, space: SplitSpace, top: int) -> int:
        return space.size  # the best of every family is shown with its rank

    def check(self, choices: Choices) -> None:
        known = {mode.name.lower(): mode for mode in Mode}
        for axis, values in choices.items():
            if axis != "mode":
                raise RequestError(f"operator graphs have the axis mode, but got {axis}; write mode=data,filter")
            for value in values:
                if str(value) not in known:
                    raise unknown("mode", str(value), known)

    def space(self, context: GraphContext, gpus: Sequence[int], choices: Choices) -> SplitSpace:
        return split_space(context, gpus, modes_of(choices))

    def strategies(self, space: SplitSpace, indices: NDArray[np.int64]) -> tuple[Split, ...]:
        return space.strategies(indices)

    def table(self, context: GraphContext, strategies: Sequence[AnySplit]) -> SplitTable:
        return table_of_splits(context, strategies)

    def parse(self, context: GraphContext, text: str) -> AnySplit:
        return parse_mixture(text, context.model) if is_mixture(text) else parse_split(text)

    def broken(self, context: GraphContext, strategy: AnySplit) -> Sequence[str]:
        if isinstance(strategy, Mixture):  # scoring checks every layer's cuts
            return ()
        try:
            check_split(context.model, strategy, context.batch(strategy.devices))
        except RequestError as error:
            return (str(error),)
        return ()

    def request(self, context: GraphContext, choices: Choices) -> dict[str, Any]:
        return {
            "precision": context.precision,
            "framework": context.profile.name,
            "modes": [mode.name.lower() for mode in modes_of(choices)],
        }

    def work(self, context: GraphContext, gpus: int) -> StepWork:
        samples = context.batch(gpus)
        # Two operations per multiply-accumulate; the backward pass has two products for each of the forward pass.
        return StepWork(
            unit=context.model.sample,
            units=samples,
            flops=(2.0 if context.inference else 6.0) * context.model.macs * samples,
            precision=context.precision,
        )

    def facts(self, context: GraphContext, table: SplitTable, scores: ScoreTable) -> Sequence[SplitFacts]:
        return facts_of(context, table, scores)

    def tree(self, context: GraphContext, strategy: AnySplit) -> "Node":
        from forerun.simulator.opgraph.split_tree import tree_of_split

        return tree_of_split(context, strategy, context.batch(strategy.devices))

    def simulate(
        self,
        context: GraphContext,
        strategy: AnySplit,
        disturbance: "Disturbance | None" = None,
        *,
        contention: bool = False,
        orders: Programs = (),
    ) -> "EventResult":
        from forerun.simulator.opgraph.events.scores import simulate_split

        if disturbance is not None or orders:
            raise RequestError("--jitter, --slow and --orders are for transformers; leave them out")
        return simulate_split(context, strategy, contention=contention)

    def write_chakra(
        self,
        context: GraphContext,
        strategy: AnySplit,
        result: "EventResult",
        folder: Path,
        *,
        contention: bool = False,
    ) -> int:
        from forerun.simulator.opgraph.events.chakra import write_graph_chakra
        from forerun.simulator.opgraph.events.scores import plan_of_split

        return write_graph_chakra(plan_of_split(context, strategy), folder, contention=contention)

    def result_scores(self, context: GraphContext, table: SplitTable, result: "EventResult") -> ScoreTable:
        from forerun.simulator.opgraph.events.scores import result_scores

        return result_scores(context, table, result)

    def event_scores(self, context: GraphContext, table: SplitTable, *, contention: bool = False) -> ScoreTable:
        from forerun.simulator.opgraph.events.scores import event_scores

        return event_scores(context, table, contention=contention)


def modes_of(choices: Choices) -> list[Mode]:
    """Return the modes of an operator graph in the user's choices, or all modes."""
    named = choices.get("mode")
    return list(Mode) if named is None else [Mode[str(name).upper()] for name in named]


OPERATOR_GRAPHS = _OperatorGraphs()
