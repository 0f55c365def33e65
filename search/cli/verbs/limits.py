"""``forerun limits``: limits of every family of splits, and changes that raise them."""

import argparse

from forerun.search.cli.opgraph import is_graph_model, run_limits
from forerun.spaces.errors import RequestError


def run(args: argparse.Namespace) -> int:
    """Find the limits and print."""
    if not is_graph_model(args):
        raise RequestError(
            f"limits are for operator graphs, but got {args.model}; "
            f"for a transformer use `forerun search --gpus LO..HI`"
        )
    return run_limits(args)
