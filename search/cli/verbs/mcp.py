"""``forerun mcp``: search, simulate, explain, compare, import and export as tools of an agent."""

import argparse

from forerun.search.cli.flags.declaration import Declared

EPILOG = """\
examples:
  forerun mcp  # started by a client

Speaks the Model Context Protocol over standard input and output. A client starts it by itself, for example with
  {"mcpServers": {"forerun": {"command": "forerun", "args": ["mcp"]}}}
Needs the package mcp (pip install "forerun[mcp]"). docs/agents.md teaches an agent to use the command line instead."""
FLAGS: Declared = ()


def run(args: argparse.Namespace) -> int:
    """Serve until the client leaves.

    Raises
    ------
    RequestError
        The package mcp is not installed.
    """
    from importlib.util import find_spec

    from forerun.spaces.errors import RequestError

    if find_spec("mcp") is None:
        raise RequestError(
            'forerun mcp needs the package mcp, which is not installed; run `pip install "forerun[mcp]"`'
        )
    from forerun.search.cli.agents.server import serve

    serve()
    return 0
