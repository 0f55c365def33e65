"""``forerun completion``: completion in a shell, and the man page."""

import argparse

MAN = "man"


def run(args: argparse.Namespace) -> int:
    """Print the script, or the page."""
    from forerun.search.cli.completion import completion_script, man_page

    print(man_page() if args.shell == MAN else completion_script(args.shell), end="")
    return 0
