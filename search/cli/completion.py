"""Completion scripts of three shells, and the man page, from declared flags.

The scripts contain words and do not start Python, so they are as current as the forerun that wrote them.
"""

import argparse
from collections.abc import Iterator, Mapping

from forerun.search.cli.flags.declaration import Flag, flags_of
from forerun.search.cli.flags.help import add_flags
from forerun.search.cli.registry import VERBS

SHELLS = ("bash", "zsh", "fish")


def completion_script(shell: str) -> str:
    """Return the script that completes verbs, flags and names of the catalogue in a shell."""
    import shtab

    top, names = argparse.ArgumentParser(prog="forerun"), _names()
    top.add_argument("--version", action="store_true", help="print the version and exit")
    verbs = top.add_subparsers()
    for verb in VERBS:
        parser = verbs.add_parser(verb.name, help=_brief(verb.summary))
        add_flags(parser, verb.declaration.flags)
        for action in parser._actions:  # argparse has no public list of them
            action.help = _brief(action.help or "")
            choices = names.get(action.dest)
            if action.nargs != 0 and action.choices is None:
                if choices:
                    action.choices = choices
                else:
                    action.complete = shtab.FILE  # type: ignore[attr-defined]  # read by shtab
    return str(shtab.complete(top, shell))


def _brief(text: str) -> str:
    return text.split(";")[0].split(" (")[0]


def _names() -> Mapping[str, tuple[str, ...]]:
    """Return the known words by the name of a parsed argument."""
    from forerun.search.explore.samplers import SAMPLERS
    from forerun.search.formats.registry import ENTRIES
    from forerun.search.order.objectives import OBJECTIVES
    from forerun.search.workers import KINDS
    from forerun.spaces.clusters import cluster_names, device_names
    from forerun.spaces.frameworks import framework_names
    from forerun.spaces.models import model_names
    from forerun.spaces.opgraph import graph_model_names
    from forerun.spaces.workload import PRECISIONS

    models = (*model_names(), *graph_model_names())
    clusters, devices, frameworks = cluster_names(), device_names(), framework_names()
    return {
        "model": models,
        "cluster": tuple(clusters),
        "framework": tuple(frameworks),
        "name": (*models, *clusters, *devices, *frameworks),
        "objective": tuple(OBJECTIVES),
        "sampler": ("auto", "exhaustive", *SAMPLERS),
        "workers": KINDS,
        "precision": PRECISIONS,
        "format": ("all", *(entry.name for entry in ENTRIES)),
    }


def man_page() -> str:
    """Return the man page: every verb with its flags and their effects."""
    from forerun.search.cli.program import DESCRIPTION, EPILOG
    from forerun.search.files.release import VERSION

    lines = [f'.TH FORERUN 1 "" "forerun {VERSION}"', ".SH NAME", f"forerun \\- {_roff(DESCRIPTION)}"]
    lines += [".SH SYNOPSIS", ".B forerun", "VERB ...", ".SH VERBS"]
    for verb in VERBS:
        declared = verb.declaration
        lines += [f".SS forerun {_roff(verb.name)}", _roff(verb.summary[0].upper() + verb.summary[1:] + ".")]
        lines += _described(flags_of(declared.flags))
        lines += [".PP", ".nf", *map(_roff, declared.epilog.splitlines()), ".fi"]
    return "\n".join([*lines, ".SH EXAMPLES AND EXIT CODES", ".nf", *map(_roff, EPILOG.splitlines()), ".fi", ""])


def _described(flags: Iterator[Flag]) -> Iterator[str]:
    for flag in flags:
        value = "" if flag.is_switch or flag.is_argument else f" \\fI{_roff(flag.metavar or flag.dest)}\\fR"
        spelled = ", ".join(f"\\fB{_roff(name)}\\fR" for name in flag.spellings or (flag.label,))
        unit = f" ({flag.unit})" if flag.unit else ""
        yield from (".TP", spelled + value, _roff(flag.help + unit))


def _roff(text: str) -> str:
    """Return text that roff prints unchanged."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
