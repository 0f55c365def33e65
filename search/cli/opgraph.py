"""Answers of verbs for operator graphs alone: limits, and the bottlenecks of a split."""

import argparse
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from forerun.search.cli.arguments import request_of

if TYPE_CHECKING:
    from forerun.search.board.rows import Row
    from forerun.search.request.model_kind import AnyContext
    from forerun.search.request.setting import Setting
    from forerun.simulator.opgraph import GraphContext


def is_graph_model(args: argparse.Namespace) -> bool:
    """Whether the user's model is an operator graph, without opening files."""
    from forerun.spaces.opgraph.resolve import names_graph_model

    return names_graph_model(args.model)


def explain_split(args: argparse.Namespace, setting: "Setting[GraphContext]") -> int:
    """Predict one split and print it with its bottlenecks and helpful changes."""
    from forerun.search.api import simulate_setting
    from forerun.search.files.documents import dump_json
    from forerun.search.opgraph.what_if import congestion, doublings, phases
    from forerun.spaces.opgraph.split import Split

    row = simulate_setting(setting, args.strategy)
    flat = isinstance(row.strategy, Split)  # a mixture has no further facts
    bottlenecks = (*row.graph.bottlenecks, *(congestion(setting.context, row) if flat else ()))
    changes = doublings(setting.context, row) if flat else ()
    document = {
        **row_document(setting, row),
        "phases_s": phases(row),
        "bottlenecks": [one.to_json() for one in bottlenecks],
        "doubling": {change.what: change.gain for change in changes},
        "changes": [asdict(change) for change in changes],
    }
    if args.json:
        print(dump_json(document))
        return 0
    from forerun.search.cli.opgraph_view import print_explained

    print_explained(setting, row, document)
    return 0


def row_document(setting: "Setting[AnyContext]", row: "Row[Any]") -> dict[str, Any]:
    """Return the keys of one split's document besides its row's (schema 1 repeats the row)."""
    from forerun.search.files.documents import SCHEMA, versions

    return {"schema": SCHEMA, "request": setting.document(), "row": row.to_json(), "versions": versions()}


def run_limits(args: argparse.Namespace) -> int:
    """Compute the limit of every family of splits and print it."""
    from forerun.search.files.documents import dump_json
    from forerun.search.opgraph.limits import limits_of
    from forerun.search.request.choices import choices_of
    from forerun.search.request.operator_graphs import OPERATOR_GRAPHS
    from forerun.search.request.resolve import resolve
    from forerun.search.request.setting import of_operator_graph

    overrides = choices_of(None, args.set, OPERATOR_GRAPHS.check)
    setting = of_operator_graph(resolve(request_of(args, graphs=True, overrides=overrides)))
    limits = limits_of(setting, setting.gpus or ())
    try:
        if args.report is not None:
            from forerun.search.opgraph.page import write_page

            write_page(args.report, limits)
    finally:
        if args.json:
            print(dump_json(limits.to_json()))
        else:
            from forerun.search.cli.opgraph_view import print_limits

            print_limits(setting, limits.to_json())
    if args.report is not None and not args.json:
        print(f"forerun: wrote {args.report}", file=sys.stderr)
    return 0
