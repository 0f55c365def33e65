"""``forerun completion``: completion in a shell, and the man page."""

import argparse

from forerun.search.cli.completion import SHELLS
from forerun.search.cli.flags.declaration import Declared, Flag

MAN = "man"
EPILOG = """\
examples:
  forerun completion bash
  forerun completion man

where to put it:
  bash  in ~/.bashrc: source <(forerun completion bash)
  zsh   in ~/.zshrc, after compinit: source <(forerun completion zsh)
  fish  forerun completion fish > ~/.config/fish/completions/forerun.fish
  man   forerun completion man > ~/.local/share/man/man1/forerun.1

The script contains the verbs, flags and catalogue names of this version; generate it again after an update."""
FLAGS: Declared = (
    Flag("shell", "name of the shell", metavar="|".join((*SHELLS, MAN)), choices=(*SHELLS, MAN), required=True),
)


def run(args: argparse.Namespace) -> int:
    """Print the script, or the page."""
    from forerun.search.cli.completion import completion_script, man_page

    print(man_page() if args.shell == MAN else completion_script(args.shell), end="")
    return 0
