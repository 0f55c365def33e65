"""Entry point: verb, flags, run, and one message and exit code for every error.

Exit codes: 0 success, 1 internal error, 2 the request is wrong, 3 nothing is feasible, 130 interrupted, 143 ended by
SIGTERM, 141 closed output pipe.
"""

import errno
import gc
import os
import sys
from collections.abc import Sequence
from typing import TextIO

from forerun.search.cli.flags.declaration import Flag, flags_of
from forerun.search.cli.flags.kinds import SWITCH
from forerun.search.cli.flags.parsing import HelpWanted, Words
from forerun.search.cli.progress import working
from forerun.search.cli.registry import VERBS, Verb
from forerun.search.cli.settings import user_defaults
from forerun.search.cli.streams import escaped_streams
from forerun.search.files.release import VERSION
from forerun.search.request.interrupts import Signals, Stopped, signals_as_stops
from forerun.spaces.errors import ForerunError, RequestError, unknown
from forerun.spaces.escaping import without_secrets

DESCRIPTION = "Finds the fastest way to train a model on a cluster before anyone rents it."
EPILOG = """\
examples:
  forerun search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192
  forerun explain llama3-70b --cluster dgx-h100 --global-batch 1024 --seq-len 8192 \\
      --strategy "tp4 pp4 dp32 mbs1 zero1 sp"
  forerun list clusters

Results go to stdout, progress and messages to stderr. Exit codes: 0 done, 2 the request is wrong,
3 nothing is feasible, 1 a bug in forerun."""

LONGEST, MOST_LINES = 4000, 200
"""Most characters of a message line, and most lines, so that no file content floods a terminal."""
GARBAGE_AFTER = 50_000
"""New objects between garbage collections (default 700): collections over modules and catalogues would take a twentieth
of a search."""
BLAS_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Variables read by NumPy's libraries at import. No matrix of a search is large enough for a second thread, and idle
threads take time from other processes."""
INTERRUPTED = 130
READER_GONE = 141
NOT_EVERYWHERE = ("networkx", "optuna", "ray", "scipy")
"""Dependencies not imported by flat searches, so that these run where a dependency has no build."""
EXTRAS = {"ray": '"forerun[ray]"'}
"""Packages of extras, with pip's name of the extra."""
OF_NAMES = (errno.ENAMETOOLONG, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOTDIR)
"""Errors of a file system caused by user paths: too long, a loop of links, not readable."""
OF_THE_MACHINE = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)
"""Errors of a file system independent of file names."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; never raises, except for ``--debug``'s trace on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = "--debug" in arguments
    if sys.stdout is None:  # closed by the caller: files are written nevertheless
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    _forgive_narrow_encodings()
    gc.set_threshold(GARBAGE_AFTER)
    for variable in BLAS_THREADS:
        os.environ.setdefault(variable, "1")
    with escaped_streams(), signals_as_stops() as signals:
        return _answer(arguments, debug, signals)


def _answer(arguments: list[str], debug: bool, signals: Signals) -> int:
    """Run the verb and return the exit code, with one message per error."""
    try:
        code = dispatch([argument for argument in arguments if argument != "--debug"])
        sys.stdout.flush()
        return code
    except KeyboardInterrupt as interrupt:
        error = interrupt if signals.last is None else Stopped(signals.last)
        code = int(getattr(error, "exit_code", INTERRUPTED))
        _say(
            "interrupted" if code == INTERRUPTED else f"ended by {error.args[0]}" if code > 128 else str(error.args[0])
        )
        return code
    except BrokenPipeError:
        _give_up(sys.stdout)
        return READER_GONE
    except ForerunError as error:
        _trace(debug)
        _say(str(error))
        return error.exit_code
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in NOT_EVERYWHERE:
            return _internal(error, debug)
        _trace(debug)
        _say(f"this command needs {package}, which is not installed; run `pip install {EXTRAS.get(package, package)}`")
        return RequestError.exit_code
    except OSError as error:
        if error.errno in OF_NAMES and error.filename is not None:
            _trace(debug)
            _say(f"{os.fsdecode(error.filename)} cannot be used: {error.strerror}")
            return RequestError.exit_code
        if error.errno not in OF_THE_MACHINE:
            return _internal(error, debug)
        _trace(debug)
        _say(f"cannot write {error.filename or 'all of the output'}: {error.strerror}")
        try:
            sys.stdout.flush()
        except OSError:
            _give_up(sys.stdout)
        return RequestError.exit_code
    except Exception as error:
        return _internal(error, debug)


def _internal(error: Exception, debug: bool) -> int:
    _trace(debug)
    hint = "" if debug else "; run again with --debug for the trace"
    _say(f"internal error, our fault: {type(error).__name__}: {error}{hint}")
    return 1


def dispatch(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    verbs = {verb.name: verb for verb in VERBS}
    if not arguments or arguments[0].startswith("-"):
        return _without_verb(arguments)
    if arguments[0] not in verbs:
        raise unknown("verb", arguments[0], verbs)
    verb = verbs[arguments[0]]
    try:
        declared = verb.declaration
        flags = list(flags_of(declared.flags))
        parser = Words(f"forerun {verb.name}", flags, arguments[1:], user_defaults(flags))
        args = parser.parse(declared.rest)
    except HelpWanted:
        print(verb_help(verb), end="")
        return 0
    with working(verb.doing):
        return verb.run(args)


def verb_help(verb: Verb) -> str:
    """Return the help of a verb."""
    from forerun.search.cli.flags.help import help_parser

    declared = verb.declaration
    return help_parser(
        f"forerun {verb.name}",
        declared.flags,
        description=verb.summary[0].upper() + verb.summary[1:] + ".",
        epilog=declared.epilog,
        usage=declared.usage,
    ).format_help()


def _without_verb(arguments: list[str]) -> int:
    """Answer ``--help``, ``--version`` and an empty command line."""
    from forerun.search.cli.flags.help import help_parser

    width = max(len(verb.name) for verb in VERBS)
    table = "\n".join(f"  {verb.name:<{width}}  {verb.summary}" for verb in VERBS)
    version = Flag("--version", "print the version and exit", SWITCH)
    parser = help_parser(
        "forerun",
        (version,),
        usage="forerun VERB ...",
        description=DESCRIPTION,
        epilog=f"verbs (forerun VERB --help says more):\n{table}\n\n{EPILOG}",
    )
    try:
        args = Words("forerun", flags_of((version,)), arguments).parse(None)
    except HelpWanted:
        parser.print_help()
        return 0
    if args.version:
        print(f"forerun {VERSION}")
        return 0
    parser.print_help(sys.stderr)
    return RequestError.exit_code


def _say(message: str) -> None:
    lines = without_secrets(message).split("\n")
    message = "\n".join(line if len(line) <= LONGEST else line[:LONGEST] + "…" for line in lines[:MOST_LINES])
    try:
        print(f"forerun: {message}", file=sys.stderr, flush=True)
    except OSError:  # closed; the exit code has the outcome
        _give_up(sys.stderr)


def _give_up(stream: TextIO) -> None:
    """Drop the buffer of a stream, which Python would flush at exit with an error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _trace(debug: bool) -> None:
    if debug:
        import traceback

        traceback.print_exc()


def _forgive_narrow_encodings() -> None:
    """Print characters missing in the terminal's encoding as ``?`` instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="replace")
