"""An argument parser whose errors are ``RequestError``, with the nearest flag for a misspelt one."""

import argparse
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from forerun.search.files.release import VERSION
from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.escaping import quoted

if TYPE_CHECKING:
    from forerun.spaces.opgraph.batch import PerDevice


LEAST, LARGEST, MOST_WORKERS = 1e-12, 1e18, 4096
"""Of a number that a flag takes, and worker processes or tasks at once."""
COMMANDS = ("  forerun ", "  torchrun ")
ELSEWHERE = {
    **dict.fromkeys(("--gbs", "--batch", "--batch-size", "--global-batch-size", "--bs"), "--global-batch"),
    **dict.fromkeys(("--seqlen", "--seq", "--sequence-length", "--max-seq-len", "--context-length"), "--seq-len"),
    **dict.fromkeys(("--nodes", "--nnodes", "--num-nodes", "--world-size", "--n-gpus", "--devices"), "--gpus"),
    **dict.fromkeys(("--hardware", "--system", "--machine", "--device", "--gpu-type"), "--cluster"),
    **dict.fromkeys(("--dtype", "--fp8", "--bf16", "--fp16"), "--precision"),
}
"""What other tools call a flag of forerun."""


class HelpText(argparse.HelpFormatter):
    """Help that fits the terminal: prose is filled, commands are broken where a shell reads on, the rest is kept."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.replace("\\\n", " ").split("\n\n")
        return "\n\n".join(_fitted(paragraph.split("\n"), width) for paragraph in paragraphs)


def _fitted(lines: Sequence[str], width: int) -> str:
    """Return the lines of a paragraph at most ``width`` wide: those that are not indented are one text."""
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
    """Return a command as lines of at most ``width`` that a shell reads as one; a flag stays with its value."""
    word = r'(?:[^\s"]|"[^"]*")+'
    broken, start = [], "  "
    for part in re.findall(rf"--{word}(?: (?!-){word})?|{word}", line):
        longer = f"{start} {part}" if start.strip() else start + part
        if len(longer) > width - 2 and start.strip():
            broken.append(f"{start} \\")
            longer = f"      {part}"
        start = longer
    return [*broken, start]


class Parser(argparse.ArgumentParser):
    """argparse without abbreviations, without exits on error, and with help that fits the terminal."""

    rest: str | None = None
    """Name of the argument that takes the words after ``--``; None: they are positional arguments."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=HelpText, **options)
        self.add_argument("--debug", action="store_true", help="on an error also print the trace")

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print.

        Raises:
            RequestError: always.
        """
        raise RequestError(f"{message}; see `{self.prog} --help`")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse a value that is none of the choices.

        Raises:
            ArgumentError: naming the choices, and the nearest one of a misspelt value.
        """
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        near = nearest(str(value), known, count=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise argparse.ArgumentError(action, f"must be one of {', '.join(known)}, but got {quoted(value)}{hint}")

    def _unknown(self, flag: str) -> RequestError:
        """Return the error for a flag that the verb does not have: its name may be that of an argument without one."""
        for action in self._actions:
            if not action.option_strings and action.dest == flag.removeprefix("--"):
                name = action.metavar or action.dest
                return RequestError(f"{flag} is not a flag: write {self.prog} {name}, without {flag}")
        own = ELSEWHERE.get(flag)
        if own in self._option_string_actions:
            return RequestError(f"unknown flag {flag!r}; did you mean {own}?")
        near = nearest(flag.lstrip("-"), [name[2:] for name in self._option_string_actions if name.startswith("--")])
        if near:
            return RequestError(f"unknown flag {flag!r}; did you mean {' or '.join(f'--{name}' for name in near)}?")
        return RequestError(f"unknown flag {flag!r}; see `{self.prog} --help`")

    def parse_args(  # type: ignore[override]  # argparse overloads it by namespace, which is not used here
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Parse, after looking for unknown flags: they explain a missing one. ``given`` of the result has the flag of
        every argument whose value is not the default.

        Raises:
            RequestError: a flag is unknown, a value of the wrong type, or something is missing.
        """
        rest: Sequence[str] = ()
        if self.rest is not None and args is not None and "--" in args:
            at = list(args).index("--")
            args, rest = args[:at], args[at + 1 :]
        for word in args or ():
            if word == "--":
                break
            flag = word.split("=", 1)[0]
            if flag.startswith("--") and flag not in self._option_string_actions:
                raise self._unknown(flag)
        found = super().parse_args(args, namespace)
        if self.rest is not None:
            setattr(found, self.rest, tuple(rest))
        flags = {action.dest: action for action in self._actions if action.option_strings and action.dest != "help"}
        found.given = {
            name: action.option_strings[-1] for name, action in flags.items() if getattr(found, name) != action.default
        }
        for action in self._actions:
            if isinstance(action, OutputFile) and getattr(found, action.dest) is not None:
                action.check(found)
        return found


class OutputFile(argparse.Action):
    """A file that the verb writes: never over one that it reads, and over one that is there with ``--force`` only.

    ``Parser.parse_args`` looks, so that a verb that declares its files so (``action=OutputFile``) cannot forget to.
    """

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, type=Path, **options)

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: Any) -> None:
        """Keep the path."""
        setattr(namespace, self.dest, values)

    def check(self, namespace: argparse.Namespace) -> None:
        """Refuse a path that cannot, or must not, be written.

        Raises:
            RequestError: see ``check_output``; or another flag or argument names the same file.
        """
        from forerun.spaces.files import check_output

        path: Path = getattr(namespace, self.dest)
        for name, value in vars(namespace).items():
            others = value if isinstance(value, list) else [value]
            if name != self.dest and any(_same(path, other) for other in others):
                raise RequestError(f"{self.option_strings[-1]} {path} is a file that is read or written besides")
        check_output(path, force=bool(namespace.force))


def _same(path: Path, other: object) -> bool:
    """Whether an argument of whatever kind names the file at ``path``."""
    if not isinstance(other, str | Path):
        return False
    try:
        return path == Path(other) or path.samefile(other)
    except (OSError, ValueError):
        return False


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add what verbs with an ``OutputFile`` need."""
    parser.add_argument("--force", action="store_true", help="overwrite existing files")


class PrintVersion(argparse.Action):
    """``--version``."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        """Print the version and end the program."""
        print(f"forerun {VERSION}")
        parser.exit()


def whole(text: str) -> int:
    """Read a whole number of at least 1."""
    digits = text.replace("_", "").replace(",", "")
    if not digits.isdecimal() or len(digits) > 18 or int(digits) < 1:
        raise argparse.ArgumentTypeError(f"must be a whole number of at least 1, but got {quoted(text)}")
    return int(digits)


def batch(text: str) -> "int | PerDevice":
    """Read a global batch: a whole number, or one per GPU (``64/gpu``)."""
    from forerun.spaces.opgraph.batch import PerDevice

    number, slash, unit = text.lower().partition("/")
    if slash and unit not in ("gpu", "device"):
        raise argparse.ArgumentTypeError(f"must be a whole number or one per GPU like 64/gpu, but got {quoted(text)}")
    return PerDevice(whole(number)) if slash else whole(text)


def positive(text: str) -> float:
    """Read a number that leaves finite results: ``LEAST`` to ``LARGEST``."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not LEAST <= number <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"must be a number above 0 ({LEAST:g} or more) and at most {LARGEST:g}, but got {quoted(text)}"
        )
    return number


def seed(text: str) -> int:
    """Read the seed of a generator of random numbers: 32 bits, which all of them take."""
    if not text.isdecimal() or len(text) > 10 or int(text) >= 2**32:
        raise argparse.ArgumentTypeError(f"must be a whole number from 0 to {2**32 - 1}, but got {quoted(text)}")
    return int(text)


def some_workers(text: str) -> int:
    """Read a number of worker processes."""
    count = whole(text)
    if count > MOST_WORKERS:
        raise argparse.ArgumentTypeError(f"must be at most {MOST_WORKERS}, but got {quoted(text)}")
    return count


def count(text: str) -> float:
    """Read a count above 0, with or without a suffix: ``15T``."""
    from forerun.spaces.units import parse_count

    try:
        number = parse_count(text)
    except RequestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return positive(str(number))
