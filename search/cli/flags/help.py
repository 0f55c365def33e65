"""Help of declared flags, fitted to the terminal."""

import argparse
import re
from collections.abc import Iterable, Sequence
from typing import Any

from forerun.search.cli.flags.declaration import DEBUG, Declared, Flag, Group, Many

COMMANDS = ("  forerun ", "  torchrun ")


class HelpText(argparse.HelpFormatter):
    """Help that fits the terminal: filled prose, commands broken at shell continuations, other lines unchanged."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.replace("\\\n", " ").split("\n\n")
        return "\n\n".join(_fitted(paragraph.split("\n"), width) for paragraph in paragraphs)


def _fitted(lines: Sequence[str], width: int) -> str:
    """Return the lines of a paragraph at most ``width`` wide: unindented lines are one text."""
    import textwrap

    fitted, prose = [], []
    for line in [*lines, "  "]:
        if not line.startswith("  "):
            prose.append(line)
        if prose and (line.startswith("  ") or line.endswith(":")):
            fitted += textwrap.wrap(" ".join(prose), width, break_on_hyphens=False)
            prose = []
        entry = re.match(r"  \S+ {2,}", line)
        if line.startswith(COMMANDS) and "#" not in line:
            fitted += _command(line, width)
        elif entry and "#" not in line:
            fitted += textwrap.wrap(line, width, subsequent_indent=" " * entry.end(), break_on_hyphens=False)
        elif line.startswith("  "):
            fitted.append(line.rstrip())
    return "\n".join(fitted).rstrip()


def _command(line: str, width: int) -> list[str]:
    """Return a command as continued lines of at most ``width``; a flag stays with its value."""
    word = r'(?:[^\s"]|"[^"]*")+'
    broken, start = [], "  "
    for part in re.findall(rf"--{word}(?: (?!-){word})?|{word}", line):
        longer = f"{start} {part}" if start.strip() else start + part
        if len(longer) > width - 2 and start.strip():
            broken.append(f"{start} \\")
            longer = f"      {part}"
        start = longer
    return [*broken, start]


def help_parser(program: str, declared: Declared, **texts: Any) -> argparse.ArgumentParser:
    """Return the parser that prints a verb's help; ``texts`` are its description, epilog and usage."""
    parser = argparse.ArgumentParser(prog=program, formatter_class=HelpText, **texts)
    add_flags(parser, declared)
    return parser


def add_flags(parser: argparse.ArgumentParser, declared: Declared) -> None:
    """Add declared flags to an argparse parser used only for help and completion scripts."""
    _add(parser, (DEBUG,))
    for item in declared:
        if isinstance(item, Group):
            _add(parser.add_argument_group(item.title), item.flags)
        else:
            _add(parser, (item,))


def _add(group: "argparse.ArgumentParser | argparse._ArgumentGroup", flags: Iterable[Flag]) -> None:
    for flag in flags:
        options: dict[str, Any] = {"help": flag.help.replace("%", "%%")}
        if flag.is_switch:
            options["action"] = "store_true"
        else:
            options["metavar"] = flag.metavar or None
            options["choices"] = flag.choices or None
            if flag.many is not Many.REPEATED and flag.many.value:
                options["nargs"] = flag.many.value
        if not flag.is_argument:
            options |= {"dest": flag.dest, "required": flag.required}
        group.add_argument(*(flag.spellings or (flag.name,)), **options)
