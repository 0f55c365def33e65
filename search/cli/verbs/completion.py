"""``forerun completion``: a script that lets a shell complete verbs, flags and names."""

import argparse

from forerun.search.cli.parser import Parser

SHELLS = ("bash", "zsh", "fish")

EPILOG = """\
examples:
  forerun completion bash

where to put it:
  bash  in ~/.bashrc: source <(forerun completion bash)
  zsh   in ~/.zshrc, after compinit: source <(forerun completion zsh)
  fish  forerun completion fish > ~/.config/fish/completions/forerun.fish

The script contains the verbs, flags and catalogue names of this version; generate it again after an update."""


def add_arguments(parser: Parser) -> None:
    """Add the shell."""
    parser.add_argument("shell", choices=SHELLS, metavar="|".join(SHELLS), help="name of the shell")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from forerun.search.cli.completion import WRITERS, gather

    print(WRITERS[args.shell](gather()), end="")
    return 0
