"""What the verbs do for operator graphs: the request from the flags, and the answers."""

import argparse
import sys
from typing import TYPE_CHECKING, Any

from forerun.search.cli.answers import EVENTS_OF_GRAPH, LIMITS_OF_GRAPH, SEARCH_OF_GRAPH, STRATEGY_OF_GRAPH, only
from forerun.spaces.errors import RequestError

if TYPE_CHECKING:
    from forerun.search.opgraph import Doubling, GraphRow, GraphSetting
    from forerun.spaces.opgraph.split import Split


def is_graph_model(args: argparse.Namespace) -> bool:
    """Whether the model that the user names is an operator graph; opens nothing."""
    from forerun.spaces.opgraph.resolve import names_graph_model

    return names_graph_model(args.model)


def _by_events(args: argparse.Namespace) -> bool:
    return getattr(args, "tree", None) is not None or getattr(args, "fidelity", None) == "events"


def setting_of(args: argparse.Namespace, takes: tuple[str, ...]) -> "GraphSetting":
    """Return the request of the flags, resolved; ``takes``: what the answer looks at.

    Raises:
        RequestError: another flag is set, or any part of the request is wrong.
    """
    from forerun.search.opgraph import GraphRequest, resolve_request
    from forerun.search.opgraph.request import choices_by_axis

    only(args, takes, f"is for transformers, and {args.model} is an operator graph")
    return resolve_request(
        GraphRequest(
            model=args.model,
            cluster=args.cluster,
            global_batch=args.global_batch,
            gpus=args.gpus,
            precision=args.precision,
            framework=args.framework,
            objective=getattr(args, "objective", None),
            top=getattr(args, "top", None),
            seconds_per_sample=args.seconds_per_sample,
            optimizer=args.optimizer,
            usd_per_gpu_hour=args.usd_per_gpu_hour,
            modes=choices_by_axis(getattr(args, "set", [])),
            allow_generic=args.allow_generic,
        )
    )


def run_search(args: argparse.Namespace) -> int:
    """Search and print."""
    from forerun.search.board.leaderboard import dump_json
    from forerun.search.opgraph import NothingFits, search_graph

    _no_oracle(args)
    setting = setting_of(args, SEARCH_OF_GRAPH)
    if args.report is not None:
        raise RequestError("--report is for transformers; curves of this model: forerun limits ... --report FILE")
    if args.out is not None:
        from forerun.search.board.folder import check_folder

        check_folder(args.out, force=args.force)
    try:
        board = search_graph(setting)
    except NothingFits as error:
        if args.json:
            print(dump_json(error.document))
        raise
    try:
        if args.out is not None:
            from forerun.search.board.folder import write_folder

            write_folder(args.out, board)
    finally:
        if args.json:
            print(dump_json(board.to_json()))
        else:
            from forerun.search.cli.opgraph_view import print_board

            print_board(board)
    if args.out is not None:
        print(f"forerun: wrote {args.out}", file=sys.stderr)
    return 0


def run_strategy(args: argparse.Namespace, *, explain: bool) -> int:
    """Predict one split and print it; ``explain`` adds what holds it up and what would help."""
    from forerun.search.board.leaderboard import SCHEMA, dump_json, versions
    from forerun.search.opgraph import bottlenecks, congestion
    from forerun.search.opgraph.rows import phases

    setting = setting_of(args, EVENTS_OF_GRAPH if _by_events(args) else STRATEGY_OF_GRAPH)
    if getattr(args, "write_tree", None) is not None:
        _write_tree(setting, args)
    if _by_events(args):
        return _run_tree(setting, args)
    row = _row(setting, args.strategy)
    found = bottlenecks(setting.context, row)
    if explain and not row.mixture:
        found = (*found, *congestion(setting.context, row))
    oracle = _oracle(setting, row) if args.paradl else None
    if args.json:
        document: dict[str, Any] = {"schema": SCHEMA, "request": setting.to_json(), "row": row.to_json()}
        if explain:
            document["phases_s"] = phases(row)
            document["bottlenecks"] = [
                {"class": one.name, "seconds": one.seconds, "words": one.words, "also_inference": one.inference}
                for one in found
            ]
            document["doubling"] = {change.what: change.gain for change in _changes(setting, row)}
        if oracle is not None:
            document["paradl"] = oracle
        print(dump_json({**document, "versions": versions()}))
        return 0
    from forerun.search.cli.opgraph_view import print_row

    print_row(setting, row, found, _changes(setting, row) if explain else ())
    if oracle is not None:
        from forerun.search.cli.opgraph_view import print_oracle

        print_oracle(oracle, row)
    return 0


def _run_tree(setting: "GraphSetting", args: argparse.Namespace) -> int:
    """Simulate a strategy tree, or a split as one, event by event and print it.

    Raises:
        RequestError: the tree is wrong, the split has none, or something is asked for that it does not have.
    """
    from forerun.search.board.leaderboard import SCHEMA, dump_json, versions
    from forerun.search.cli.step_files import write_timelines
    from forerun.search.opgraph.tree import simulate_graph_tree, simulate_split
    from forerun.simulator.events import event_summary

    if args.fidelity == "analytic":
        raise RequestError("a tree is simulated event by event: closed forms know splits; drop --fidelity")
    if args.tree is not None:
        answer = simulate_graph_tree(setting, args.tree)
    else:
        _no_oracle(args)
        answer = simulate_split(setting, _legal_split(setting, args.strategy))
    write_timelines(args, answer.events)
    if args.json:
        document = {"schema": SCHEMA, "request": setting.to_json(), "row": answer.row, "tree": answer.tree}
        print(dump_json({**document, "events": event_summary(answer.events), "versions": versions()}))
        return 0
    from forerun.search.cli.opgraph_view import print_tree

    print_tree(setting, answer)
    return 0


def _legal_split(setting: "GraphSetting", text: str) -> "Split":
    """Return the split that a text names.

    Raises:
        RequestError: it cannot be read, or breaks a law.
    """
    from forerun.spaces.opgraph.limits import check_split
    from forerun.spaces.opgraph.split import parse_split

    split = parse_split(text)
    _check_devices(setting, split.devices)
    check_split(setting.context.model, split, setting.batch(split.devices))
    return split


def _write_tree(setting: "GraphSetting", args: argparse.Namespace) -> None:
    """Write a split as a strategy tree to start from.

    Raises:
        RequestError: a tree is given already, or the file cannot be written.
    """
    from forerun.search.opgraph.tree import write_split

    if args.tree is not None:
        raise RequestError("--write-tree goes with a flat --strategy; drop it, or give a --strategy")
    write_split(setting, _legal_split(setting, args.strategy), args.write_tree)


def run_limits(args: argparse.Namespace) -> int:
    """Find how far every family goes and print it."""
    from forerun.search.board.leaderboard import dump_json
    from forerun.search.opgraph import limits_of

    _no_oracle(args)
    setting = setting_of(args, LIMITS_OF_GRAPH)
    limits = limits_of(setting, setting.counts or ())
    try:
        if args.report is not None:
            from forerun.search.opgraph.page import write_page

            write_page(args.report, limits)
    finally:
        if args.json:
            print(dump_json(limits.to_json()))
        else:
            from forerun.search.cli.opgraph_view import print_limits

            print_limits(limits)
    if args.report is not None and not args.json:
        print(f"forerun: wrote {args.report}", file=sys.stderr)
    return 0


def _row(setting: "GraphSetting", text: str) -> "GraphRow":
    """Return the one split that the user names, scored.

    Raises:
        RequestError: it cannot be read or is not legal.
    """
    from forerun.search.opgraph import scored_rows
    from forerun.search.opgraph.mixture import mixture_row
    from forerun.spaces.opgraph.mixture import is_mixture, parse_mixture

    if is_mixture(text):
        mixture = parse_mixture(text, setting.context.model)
        _check_devices(setting, mixture.devices)
        return mixture_row(setting.context, mixture, setting.batch(mixture.devices))
    split = _legal_split(setting, text)
    return scored_rows(setting.context, [split], [setting.batch(split.devices)])[0]


def _changes(setting: "GraphSetting", row: "GraphRow") -> "tuple[Doubling, ...]":
    """Return what each doubling would bring; of a mixture nothing is known but itself."""
    from forerun.search.opgraph import doublings

    return () if row.mixture else doublings(setting.context, row)


def _check_devices(setting: "GraphSetting", devices: int) -> None:
    """Refuse a number of devices that the cluster or the request does not have.

    Raises:
        RequestError: see there.
    """
    cluster = setting.context.cluster
    if devices > cluster.max_devices:
        raise RequestError(f"the split occupies {devices} GPUs, but {cluster.name} has {cluster.max_devices}")
    if setting.counts is not None and devices not in setting.counts:
        counts = " or ".join(map(str, setting.counts[:8]))
        raise RequestError(f"the split occupies {devices} GPUs, but --gpus asks for {counts}")


def _oracle(setting: "GraphSetting", row: "GraphRow") -> dict[str, float]:
    """Return what ParaDL's formulas say of one step.

    Raises:
        RequestError: they do not know such a split.
    """
    from forerun.simulator.opgraph.paradl_of import oracle_step

    if row.mixture:
        raise RequestError(f"ParaDL has no formula for mixtures, but got {row.mixture}; leave --paradl out")
    cost = oracle_step(setting.context, row.split, row.global_batch)
    return {
        "step_time_s": cost.total_s,
        "compute_s": cost.compute_s,
        "communication_s": cost.communication_s,
        "memory_gib": cost.memory_bytes / 2**30,
    }


def _no_oracle(args: argparse.Namespace) -> None:
    """Refuse ParaDL's formulas where there is no one split to ask about.

    Raises:
        RequestError: they are asked for.
    """
    if args.paradl:
        raise RequestError("--paradl is about one split; use it with `forerun explain` or `forerun simulate`")
