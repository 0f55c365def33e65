"""Start of the command line, which Ctrl-C ends in one line from the first import on."""

import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    try:
        from forerun.search.cli.program import main as run
    except KeyboardInterrupt:
        print("forerun: interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    return run(argv)
