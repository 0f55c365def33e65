"""``forerun simulate``: one strategy, and files of its event-level step."""

import argparse
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from forerun.search.cli.arguments import single_request
from forerun.search.cli.opgraph import is_graph_model, row_document
from forerun.search.request.kinds import kind_of
from forerun.search.request.model_kind import AnyContext
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting, has_transformer, legal_strategy, of_operator_graph, of_transformer
from forerun.simulator import score
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.schedules import Programs, orders_text, programs_of, read_orders

if TYPE_CHECKING:
    from forerun.search.board.rows import Row
    from forerun.simulator.events import Disturbance, EventResult


def refuse_step_files(args: argparse.Namespace) -> None:
    """Refuse files without events."""
    from forerun.spaces.errors import RequestError

    for name in ("trace", "timeline", "chakra"):
        if getattr(args, name) is not None:
            raise RequestError(f"--{name} needs --fidelity events: closed forms have no timeline")


def write_step_files(args: argparse.Namespace, setting: "Setting[AnyContext]", result: "EventResult") -> None:
    """Write the requested files."""
    from forerun.spaces.errors import RequestError

    write_timelines(args, result)
    if args.chakra is not None:
        if args.strategy is None:
            raise RequestError("--chakra needs a flat --strategy; a tree has no execution traces yet")
        from forerun.search.board.folder import claimed
        from forerun.search.request.kinds import kind_of
        from forerun.search.request.setting import legal_strategy

        strategy = legal_strategy(setting, args.strategy)
        kind = kind_of(setting.context)
        with claimed(args.chakra, force=args.force):
            kind.write_chakra(setting.context, strategy, result, args.chakra, contention=args.contention)


def write_timelines(args: argparse.Namespace, result: "EventResult") -> None:
    """Write trace and picture if requested."""
    from forerun.simulator.events import timeline_html, timeline_svg, write_trace
    from forerun.spaces.errors import RequestError
    from forerun.spaces.files import write_text

    if args.trace is not None:
        write_trace(result, args.trace)
    if args.timeline is not None:
        drawn = {".svg": timeline_svg, ".html": timeline_html}.get(args.timeline.suffix.lower())
        if drawn is None:
            raise RequestError(f"--timeline writes .svg or .html, but got {args.timeline}")
        write_text(args.timeline, drawn(result))


def disturbance_of(args: argparse.Namespace) -> "Disturbance | None":
    """Return the disturbance of the flags, None without any."""
    from forerun.simulator.events import Disturbance
    from forerun.spaces.errors import RequestError

    if args.seed is not None and args.jitter is None:
        raise RequestError("--seed is that of the jitter; add --jitter")
    if args.jitter is None and not args.slow and not args.every_replica:
        return None
    if args.fidelity == "analytic" or (args.fidelity is None and args.tree is None):
        raise RequestError("--jitter, --slow and --every-replica need --fidelity events: closed forms know one replica")
    return Disturbance(
        seed=args.seed or 0, jitter=args.jitter or 0.0, slow=dict(args.slow), every_replica=bool(args.every_replica)
    )


def run(args: argparse.Namespace) -> int:
    """Predict and print; a strategy that does not fit is an answer, not an error."""
    if args.strategy is None and args.tree is None:
        raise RequestError("--strategy or --tree is required; see `forerun simulate --help`")
    setting = resolve(single_request(args, graphs=True), groups=True)
    row, events, tree = _tree(setting, args) if args.tree is not None else _strategy(setting, args)
    if args.strategy is not None and has_transformer(setting):
        from forerun.search.answer.notes.uneven_experts import whole_experts_note

        notes = whole_experts_note(setting.context, args.strategy)
        setting = replace(setting, notes=(*setting.notes, *notes))
    try:
        if events is not None:
            write_step_files(args, setting, events)
    finally:  # the answer is printed even if a file cannot be written
        _say(args, setting, row, events, tree)
    return 0


def _say(
    args: argparse.Namespace,
    setting: "Setting[AnyContext]",
    row: "Row[Any]",
    events: "EventResult | None",
    tree: "dict[str, Any] | None",
) -> None:
    """Print the prediction as tables or as one JSON document."""
    from forerun.search.files.documents import dump_json

    more: dict[str, Any] = {}
    if args.json:
        more |= {} if events is None else {"events": _summary(events)}
        more |= {} if tree is None else {"tree": tree}
        more |= {} if row.facts is None else row_document(setting, row)
        print(
            dump_json(
                {**row.to_json(), "defaults": setting.defaults, "notes": (*setting.warnings, *setting.notes), **more}
            )
        )
        return
    from rich.text import Text

    from forerun.search.cli.console import brush_of, open_console, say
    from forerun.search.cli.details import headline, memory_stack, memory_table, step_table

    console = open_console()
    brush = brush_of(console)
    say(console, *headline(row), step_table(row, brush, console), memory_table(row, brush, console))
    say(console, memory_stack(row, brush, min(60, console.width - 24)))
    if row.facts is not None:
        from forerun.search.cli.opgraph_view import print_facts

        print_facts(row, tree)
    if events is not None:
        from forerun.simulator.events import timeline_text

        say(console, Text(timeline_text(events, console.width)))
    say(console, *(Text(line, style="dim") for line in setting.remarks()))


def _strategy(
    setting: "Setting[AnyContext]", args: argparse.Namespace
) -> "tuple[Row[Any], EventResult | None, dict[str, Any] | None]":
    """Predict a flat strategy, and write the requested files."""
    from forerun.search.api import simulate_setting

    if args.write_tree is not None:
        from forerun.search.explore.trees.named_trees import write_tree

        write_tree(setting, args.strategy, args.write_tree)
    if args.write_orders is not None:
        _write_orders(of_transformer(setting), args)
    if setting.context.cluster.groups:
        return *_grouped(of_transformer(setting), args), None
    events = _events(setting, args)
    if events is None:
        return simulate_setting(setting, args.strategy, score=score), None, None

    scored = partial(kind_of(setting.context).result_scores, result=events)
    row = simulate_setting(setting, args.strategy, score=scored)
    if row.facts is None:
        return row, events, None
    from forerun.search.opgraph.tree import split_facts

    return row, events, split_facts(of_operator_graph(setting), row.strategy)


def _grouped(setting: Setting, args: argparse.Namespace) -> "tuple[Row, EventResult]":
    """Predict a strategy on groups of nodes that differ."""
    from forerun.search.explore.groups.simulated_plans import simulate_groups

    if args.fidelity == "analytic":
        raise RequestError("groups of nodes that differ are simulated event by event; drop --fidelity analytic")
    if disturbance_of(args) is not None:
        raise RequestError("groups of nodes that differ are simulated with equal replicas; drop --jitter and --slow")
    if args.orders is not None:
        raise RequestError("groups of nodes that differ run the order of their schedule; drop --orders")
    row, events = simulate_groups(setting, args.strategy, contention=args.contention)
    return row, events


def _tree(setting: "Setting[AnyContext]", args: argparse.Namespace) -> "tuple[Row[Any], EventResult, dict[str, Any]]":
    """Predict a strategy tree."""
    from forerun.search.answer.trees import simulate_tree
    from forerun.search.opgraph.tree import simulate_graph_tree

    if args.fidelity == "analytic":
        raise RequestError("a tree is simulated event by event: closed forms know flat strategies; drop --fidelity")
    if setting.context.cluster.groups:
        raise RequestError("a tree needs equal nodes, but the cluster has groups that differ; give a --strategy")
    unequal = disturbance_of(args) is not None
    for flag, given in (
        ("--write-tree", args.write_tree is not None),
        ("--jitter, --slow or --every-replica", unequal),
        ("--orders or --write-orders", args.orders is not None or args.write_orders is not None),
    ):
        if given:
            raise RequestError(f"{flag} needs a flat --strategy; drop it, or give one")
    if is_graph_model(args):
        return simulate_graph_tree(of_operator_graph(setting), args.tree, contention=args.contention)
    answer = simulate_tree(of_transformer(setting), args.tree, contention=args.contention)
    return answer.row, answer.events, answer.tree


def _events(setting: "Setting[AnyContext]", args: argparse.Namespace) -> "EventResult | None":
    """Simulate event by event if requested."""
    if args.fidelity != "events":
        refuse_step_files(args)
        disturbance_of(args)
        if args.contention:
            raise RequestError("--contention needs --fidelity events: closed forms do not simulate single transfers")
        if args.orders is not None:
            raise RequestError("--orders needs --fidelity events: closed forms know the schedules only")
        return None
    from forerun.simulator.assignment.of_strategy import assign

    strategy = legal_strategy(setting, args.strategy)
    orders: Programs = ()
    if args.orders is not None:
        assignment = assign(of_transformer(setting).context, strategy)
        orders = read_orders(args.orders, assignment.shape, assignment.chunks_of_rank)
    simulate = kind_of(setting.context).simulate
    return simulate(setting.context, strategy, disturbance_of(args), contention=args.contention, orders=orders)


def _write_orders(setting: Setting, args: argparse.Namespace) -> None:
    """Write the order of passes of every pipeline rank."""
    from forerun.simulator.assignment.of_strategy import assign

    strategy = legal_strategy(setting, args.strategy)
    shape = assign(setting.context, strategy).shape
    write_text(args.write_orders, orders_text(programs_of(strategy.schedule, shape)))


def _summary(result: "EventResult") -> dict[str, object]:
    from forerun.simulator.events import event_summary

    return event_summary(result)
