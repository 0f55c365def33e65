"""``forerun explain``: one strategy in depth."""

import argparse
from typing import TYPE_CHECKING

from forerun.search.answer.explain.explain import explain_strategy
from forerun.search.cli.arguments import single_request
from forerun.search.cli.opgraph import explain_split, is_graph_model
from forerun.search.files.documents import SCHEMA, dump_json, versions
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import legal_strategy, of_operator_graph, of_transformer
from forerun.spaces.strategies import Context, Strategy

if TYPE_CHECKING:
    from rich.text import Text


MOST_PASSES = 20_000
"""Most passes of a drawn step: about a second."""


def run(args: argparse.Namespace) -> int:
    """Explain and print."""
    setting = resolve(single_request(args, graphs=True))
    if is_graph_model(args):
        return explain_split(args, of_operator_graph(setting))
    strategy = legal_strategy(setting, args.strategy)
    explanation = explain_strategy(setting.context, strategy, usd_per_gpu_hour=setting.usd_per_gpu_hour)
    if args.json:
        document = {"schema": SCHEMA, "request": setting.document(), **explanation.to_json(), "versions": versions()}
        print(dump_json(document))
        return 0
    from rich.text import Text

    from forerun.search.cli.console import open_console, say
    from forerun.search.cli.details import explained

    console = open_console()
    say(console, *explained(explanation, _timeline(of_transformer(setting).context, strategy, console.width), console))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))
    return 0


def _timeline(context: "Context", strategy: "Strategy", width: int) -> "Text":
    """Return the step as a Gantt chart of text; or a remark if the simulation would take seconds."""
    from rich.text import Text

    from forerun.simulator.events import simulate, timeline_text

    passes = 2 * strategy.pp * strategy.vpp * context.workload.global_batch // (strategy.dp * strategy.mbs)
    if passes > MOST_PASSES:
        return Text(f"no timeline: a step has {passes:,} passes (`forerun simulate --fidelity events` draws it)")
    return Text(timeline_text(simulate(context, strategy), width))
