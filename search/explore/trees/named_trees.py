"""Strategy trees that users name: reading, legality in a setting, simulation, and rows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.search.board.rows import Row, tree_row
from forerun.search.request.kinds import kind_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.setting import Setting, legal_strategy
from forerun.simulator.assignment.borders import borders_between
from forerun.simulator.assignment.collectives import collectives_inside
from forerun.simulator.events import EventResult
from forerun.simulator.events.trees import simulate_tree
from forerun.simulator.score_table import ScoreTable
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.strategies import SPELLING, Context, Strategy
from forerun.spaces.strategies.software import names_of
from forerun.spaces.trees import (
    Stage,
    TreeError,
    TreeStrategies,
    flat_of,
    legal_tree,
    model_layers,
    resolve_tree,
    tree_yaml,
)
from forerun.spaces.trees.document import at_line, read_tree
from forerun.spaces.trees.names import layer_at, layers_text, ranges_text


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeAnswer:
    """A simulated tree: its row, its events and its facts as plain data."""

    row: Row
    events: EventResult
    tree: dict[str, Any]


def read_legal_tree(setting: Setting, path: Path) -> TreeStrategies:
    """Return the tree of a file after checking its legality in a setting.

    Raises:
        RequestError: the file is not a tree or the tree is illegal; the message has file, line and path of the node.
    """
    root, document = read_tree(path)
    try:
        strategies = legal_tree(setting.context, resolve_tree(root, model_layers(setting.context.model)))
    except TreeError as error:
        raise at_line(error, document) from None
    count = strategies.tree.device_count
    if setting.gpus is not None and count not in setting.gpus:
        counts = " or ".join(map(str, setting.gpus[:8]))
        raise RequestError(f"{path} occupies {count} GPUs, but --gpus asks for {counts}")
    return strategies


def simulate_tree_file(setting: Setting, path: Path, *, contention: bool = False) -> TreeAnswer:
    """Simulate the tree of a file; ``contention``: see ``simulate_tree``.

    Raises:
        RequestError: see ``read_legal_tree`` and ``simulate_tree``.
    """
    strategies = read_legal_tree(setting, path)
    result = simulate_tree(setting.context, strategies, contention=contention)
    row = row_of_tree(setting, strategies, f"tree {path.name}", result.scores)
    flat = None if row.tree else row.name
    tree = {
        "file": str(path),
        "flat": flat,
        "microbatches": strategies.tree.microbatches,
        "stages": [
            _stage(setting.context, stage, strategies, number) for number, stage in enumerate(strategies.tree.stages)
        ],
        "borders": borders_between(setting.context, strategies),
    }
    return TreeAnswer(row=row, events=result.events, tree=tree)


def row_of_tree(setting: Setting, strategies: TreeStrategies, name: str, scores: ScoreTable) -> Row:
    """Return the row of a legal tree with some ``scores`` (one row); ``name``: its name if it is not flat."""
    flat = flat_of(setting.context, strategies)
    distinct = dict.fromkeys(one for stage in strategies.of_leaf for one in stage)
    return tree_row(
        setting.context,
        name if flat is None else "",
        strategies.tree.device_count,
        tuple(distinct) if flat is None else (flat,),
        scores,
        usd_per_gpu_hour=setting.usd_per_gpu_hour,
    )


def _stage(context: Context, stage: Stage, strategies: TreeStrategies, number: int) -> dict[str, Any]:
    """Return a virtual stage as plain data: its runs of layers, or of modules of layers, with equal settings, and the
    collectives inside the first layer of each."""
    runs: list[dict[str, Any]] = []
    latest: dict[str, dict[str, Any]] = {}
    for leaf, strategy in zip(stage.leaves, strategies.of_leaf[number], strict=True):
        settings = {
            "dp": strategy.dp,
            "tp": strategy.tp,
            "cp": strategy.cp,
            "ep": strategy.ep,
            "etp": strategy.etp,
            "sp": strategy.sp,
            "mbs": strategy.mbs,
            "zero": strategy.zero,
            **({"shard": strategy.shard} if strategy.shard else {}),
            "recompute": SPELLING["recompute"][int(strategy.recompute)],
            "host": sorted(leaf.host),
        }
        run = latest.get(leaf.module)
        if run is not None and all(run[key] == value for key, value in settings.items()):
            run["layers"].append(leaf.layer)
            continue
        # Modules of one layer alternate, so each continues its own run; a whole layer ends all of them.
        latest = {module: run for module, run in latest.items() if module and leaf.module}
        latest[leaf.module] = {"layers": [leaf.layer], **({"module": leaf.module} if leaf.module else {}), **settings}
        runs.append(latest[leaf.module])
        if leaf.layer.isdigit():
            layer = layer_at(context.model, int(leaf.layer))
            inside = collectives_inside(context, layer, leaf.module, strategy, stage.devices)
            if inside is not None:
                latest[leaf.module]["collectives"] = inside
    for run in runs:
        run["layers"] = layers_text(run["layers"])
    return {
        "name": stage.name,
        "devices": ranges_text(stage.devices),
        "device_stage": strategies.tree.rank_of_stage[number],
        "in_flight": stage.in_flight,
        "runs": runs,
    }


def with_flags(strategy: Strategy) -> str:
    """Return the flags for running a tree with the switches of a flat strategy; "" without switches."""
    return " ".join(f"--with {setting}" for setting in names_of(strategy.software))


def write_tree(setting: Setting[AnyContext], strategy: str, path: Path) -> None:
    """Write a flat strategy as a tree to start from.

    Raises:
        RequestError: the strategy is illegal, or the file cannot be written.
    """
    legal = legal_strategy(setting, strategy)
    if isinstance(legal, Strategy) and legal.software:
        settings = "+".join(names_of(legal.software))
        raise RequestError(
            f"a tree says nothing of the software; leave with={settings} out of the strategy and "
            f"add {with_flags(legal)}"
        )
    tree = kind_of(setting.context).tree(setting.context, legal)
    write_text(path, f"# {legal}\n# of {setting.context.model.name}\n{tree_yaml(tree)}")
