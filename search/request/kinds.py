"""The two kinds of models, which differ in the form, enumeration and cost of candidates.

Transformers have strategies (``tp4 pp2 dp8``), operator graphs splits (``data4 filter4``: ``operator_graphs``).
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from forerun.search.request.model_kind import AnyContext, Choices, ModelKind, StepWork
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.clusters import Cluster
from forerun.spaces.frameworks import FrameworkProfile, resolve_framework, switched
from forerun.spaces.frameworks.hardware import device_kinds
from forerun.spaces.frameworks.usual import usual_framework
from forerun.spaces.models import resolve_model, train_flops_per_sequence
from forerun.spaces.models.model import Model
from forerun.spaces.opgraph.resolve import names_graph_model
from forerun.spaces.schedules import Programs
from forerun.spaces.strategies import (
    Context,
    Strategy,
    StrategySpace,
    StrategyTable,
    default_choices,
    parse_strategy,
    restrict,
    table_of,
)
from forerun.spaces.strategies.space import strategies_at
from forerun.spaces.strategies.stage_laws import broken_laws

if TYPE_CHECKING:
    from forerun.simulator.events import Disturbance, EventResult
    from forerun.spaces.trees import Node

C = TypeVar("C", bound="AnyContext")


class _Transformers:
    """Models of layers with attention or another mixer: an index over axes, scored a hundred thousand at a time."""

    name = "a transformer"
    framework = "megatron-lm"
    chunk = 1 << 17
    first = 1 << 19

    def model(self, name: str) -> Model:
        return resolve_model(name).model

    def software(self, name: str, switches: Mapping[str, str]) -> FrameworkProfile | None:
        profile = switched(resolve_framework(name), switches)
        return profile if profile.lineage[1:] else None

    def usual(self, model: Any, cluster: Cluster) -> str:
        """Return the name of the usual training software."""
        return usual_framework(device_kinds(cluster), decodes=model.decodes)

    def kept(self, space: StrategySpace, top: int) -> int:
        return top

    def check(self, choices: Choices) -> None:
        restrict({}, choices)

    def space(self, context: Context, gpus: Sequence[int], choices: Choices) -> StrategySpace:
        axes = restrict(default_choices(context, tuple(gpus)), choices)
        return StrategySpace(choices={axis: tuple(sorted(set(axes[axis]))) for axis in axes}, context=context)

    def strategies(self, space: StrategySpace, indices: NDArray[np.int64]) -> tuple[Strategy, ...]:
        return strategies_at(space, indices)

    def table(self, context: Context, strategies: Sequence[Strategy]) -> StrategyTable:
        return table_of(strategies)

    def parse(self, context: Context, text: str) -> Strategy:
        return parse_strategy(text)

    def broken(self, context: Context, strategy: Strategy) -> Sequence[str]:
        return broken_laws(strategy, context)

    def request(self, context: Context, choices: Choices) -> dict[str, Any]:
        documents = context.workload.document_tokens
        return {
            "precision": context.workload.precision,
            "framework": context.framework.name,
            "switches": dict(context.framework.switches),
            **({} if documents is None else {"document_tokens": documents}),
        }

    def work(self, context: Context, gpus: int) -> StepWork:
        workload = context.workload
        sequence = train_flops_per_sequence(
            context.model, workload.seq_len, causal_half=True, document_tokens=workload.document_tokens
        )
        return StepWork(
            unit="token",
            units=workload.tokens_per_step,
            flops=sequence * workload.global_batch,
            precision=workload.precision,
            total=workload.tokens,
        )

    def facts(self, context: Context, table: StrategyTable, scores: ScoreTable) -> Sequence[None]:
        return [None] * len(table)

    def tree(self, context: Context, strategy: Strategy) -> "Node":
        from forerun.spaces.trees import tree_of

        return tree_of(context, strategy)

    def simulate(
        self,
        context: Context,
        strategy: Strategy,
        disturbance: "Disturbance | None" = None,
        *,
        contention: bool = False,
        orders: Programs = (),
    ) -> "EventResult":
        from forerun.simulator.events import simulate

        return simulate(context, strategy, disturbance, contention=contention, orders=orders)

    def write_chakra(
        self, context: Context, strategy: Strategy, result: "EventResult", folder: Path, *, contention: bool = False
    ) -> int:
        from forerun.simulator.events import write_chakra

        return write_chakra(context, strategy, result, folder)

    def result_scores(self, context: Context, table: StrategyTable, result: "EventResult") -> ScoreTable:
        from forerun.simulator.events import result_scores

        return result_scores(context, table, result)

    def event_scores(self, context: Context, table: StrategyTable, *, contention: bool = False) -> ScoreTable:
        from forerun.simulator.events import event_scores

        return event_scores(context, table, contention=contention)


AnyKind: TypeAlias = ModelKind[Any]
TRANSFORMERS = cast("AnyKind", _Transformers())


def kind_of(context: C) -> ModelKind[C]:
    """Return the kind of a context's model."""
    return TRANSFORMERS if isinstance(context, Context) else _operator_graphs()


def kind_named(model: str) -> AnyKind:
    """Return the kind of a model from its name, without opening a file."""
    return _operator_graphs() if names_graph_model(model) else TRANSFORMERS


def _operator_graphs() -> AnyKind:
    """Return the kind of operator graphs, imported late since transformers do not need it."""
    from forerun.search.request.operator_graphs import OPERATOR_GRAPHS

    return cast("AnyKind", OPERATOR_GRAPHS)
