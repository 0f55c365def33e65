"""``forerun mcp``: search, simulate, explain, compare, import and export as tools of an agent."""

import argparse
from importlib.util import find_spec

from forerun.spaces.errors import RequestError


def run(args: argparse.Namespace) -> int:
    """Serve until the client disconnects."""
    if find_spec("mcp") is None:
        raise RequestError(
            'forerun mcp needs the package mcp, which is not installed; run `pip install "forerun[mcp]"`'
        )
    from forerun.search.cli.agents.server import serve

    serve()
    return 0
