"""What can stand where on the command line, gathered from the parsers themselves, and as scripts for three shells.

The scripts hold words and no logic of forerun's: a completion does not start Python. They are as current as the
forerun that wrote them.
"""

import argparse
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module

from forerun.search.cli.parser import Parser
from forerun.search.cli.registry import VERBS


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag: its spellings, what it does, and the words that may follow (None: it takes no value; (): any file)."""

    spellings: tuple[str, ...]
    about: str
    values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Completions:
    """One verb: its summary, its flags, and the words that may stand first without a flag."""

    verb: str
    about: str
    flags: tuple[Flag, ...]
    words: tuple[str, ...]


def gather() -> tuple[Completions, ...]:
    """Return the completions of every verb."""
    names = _names()
    found = []
    for verb in VERBS:
        module = import_module(verb.module)
        parser = Parser(prog=f"forerun {verb.name}")
        module.add_arguments(parser)
        flags: list[Flag] = []
        words: tuple[str, ...] = ()
        for action in parser._actions:  # argparse has no public list of them
            if action.option_strings:
                flags.append(_flag(action, names))
            elif not words:
                words = _values(action, names)
        found.append(Completions(verb=verb.name, about=verb.summary, flags=tuple(flags), words=words))
    return tuple(found)


def _flag(action: argparse.Action, names: Mapping[str, tuple[str, ...]]) -> Flag:
    about = (action.help or "").replace("%%", "%")
    values = None if action.nargs == 0 else _values(action, names)
    return Flag(spellings=tuple(action.option_strings), about=about.split(";")[0].split(" (")[0], values=values)


def _values(action: argparse.Action, names: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    if action.choices is not None:
        return tuple(map(str, action.choices))
    return names.get(action.dest, ())


def _names() -> dict[str, tuple[str, ...]]:
    """Return the known words by the name that argparse gives an argument."""
    from forerun.search.explore.samplers import SAMPLERS
    from forerun.search.formats.table import FORMATS
    from forerun.search.order.objectives import OBJECTIVES
    from forerun.spaces.clusters import cluster_names, device_names
    from forerun.spaces.frameworks import framework_names
    from forerun.spaces.models import model_names
    from forerun.spaces.opgraph import graph_model_names

    models = (*model_names(), *graph_model_names())
    clusters, devices, frameworks = cluster_names(), device_names(), framework_names()
    return {
        "model": models,
        "cluster": tuple(clusters),
        "framework": tuple(frameworks),
        "name": (*models, *clusters, *devices, *frameworks),
        "objective": tuple(OBJECTIVES),
        "sampler": ("auto", "exhaustive", *SAMPLERS),
        "workers": ("serial", "processes", "ray"),
        "precision": ("bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "fp4", "nvfp4"),
        "format": ("all", *(item.name for item in FORMATS)),
    }


def bash_script(verbs: tuple[Completions, ...]) -> str:
    """Return the completion for bash, to be sourced."""
    cases = []
    for item in verbs:
        for flag in item.flags:
            if flag.values:
                keys = " | ".join(f"{item.verb},{spelling}" for spelling in flag.spellings)
                cases.append(f"        {keys}) words={shlex.quote(' '.join(flag.values))} ;;")
        takers = [f"{item.verb},{s}" for flag in item.flags if flag.values == () for s in flag.spellings]
        if takers:
            cases.append(f"        {' | '.join(takers)}) return ;;")
        flags = " ".join(spelling for flag in item.flags for spelling in flag.spellings)
        cases.append(f"        {item.verb},*)")
        cases.append(f"            if [[ $current == -* ]]; then words={shlex.quote(flags)}")
        cases.append(f"            elif (( COMP_CWORD == 2 )); then words={shlex.quote(' '.join(item.words))}")
        cases.append("            fi ;;")
    first = " ".join([*(item.verb for item in verbs), "--help", "--version"])
    return "\n".join(
        [
            "# bash completion for forerun; source it, or put it where bash-completion looks.",
            "# Where nothing is offered, bash completes file names.",
            "_forerun() {",
            '    local current="${COMP_WORDS[COMP_CWORD]}" previous="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            "    COMPREPLY=()",
            "    if (( COMP_CWORD == 1 )); then",
            f"        words={shlex.quote(first)}",
            '    else case "${COMP_WORDS[1]},$previous" in',
            *cases,
            "    esac; fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$current"))',
            "}",
            "complete -o default -F _forerun forerun",
            "",
        ]
    )


def zsh_script(verbs: tuple[Completions, ...]) -> str:
    """Return the completion for zsh, to be sourced or put into ``fpath`` as ``_forerun``."""
    cases = []
    for item in verbs:
        cases.append(f"        {item.verb})")
        cases.append('            case "$previous" in')
        for flag in item.flags:
            keys = " | ".join(flag.spellings)
            if flag.values:
                cases.append(f"                {keys}) compadd -- {shlex.join(flag.values)}; return ;;")
            elif flag.values is not None:
                cases.append(f"                {keys}) _files; return ;;")
        cases.append("            esac")
        described = " ".join(
            shlex.quote(f"{_colons(spelling)}:{_colons(flag.about)}")
            for flag in item.flags
            for spelling in flag.spellings
        )
        cases.append(
            f"            if [[ $current == -* ]]; then items=({described}); _describe 'flag' items; return; fi"
        )
        if item.words:
            cases.append(f"            (( CURRENT == 3 )) && compadd -- {shlex.join(item.words)}")
        cases.append("            _files ;;")
    first = " ".join(shlex.quote(f"{item.verb}:{_colons(item.about)}") for item in verbs)
    return "\n".join(
        [
            "#compdef forerun",
            "_forerun() {",
            '    local current="${words[CURRENT]}" previous="${words[CURRENT-1]}"',
            "    local -a items",
            f"    if (( CURRENT == 2 )); then items=({first}); _describe 'verb' items; return; fi",
            '    case "${words[2]}" in',
            *cases,
            "    esac",
            "}",
            "(( $+functions[compdef] )) && compdef _forerun forerun",
            "",
        ]
    )


def _colons(text: str) -> str:
    """Return a text in which zsh reads a colon as one."""
    return text.replace(":", "\\:")


def fish_script(verbs: tuple[Completions, ...]) -> str:
    """Return the completion for fish, to be sourced or put into its folder of completions."""
    lines = ["# fish completion for forerun"]
    for item in verbs:
        lines.append(f"complete -c forerun -f -n __fish_use_subcommand -a {item.verb} -d {_fish(item.about)}")
    for item in verbs:
        seen = f"-n '__fish_seen_subcommand_from {item.verb}'"
        for flag in item.flags:
            names = " ".join(f"-l {s[2:]}" if s.startswith("--") else f"-s {s[1:]}" for s in flag.spellings)
            value = "" if flag.values is None else f" -x -a {_fish(' '.join(flag.values))}" if flag.values else " -r -F"
            lines.append(f"complete -c forerun {seen} {names}{value} -d {_fish(flag.about)}")
        if item.words:
            lines.append(f"complete -c forerun {seen} -a {_fish(' '.join(item.words))}")
    return "\n".join([*lines, ""])


def _fish(text: str) -> str:
    """Return a text in single quotes as fish reads them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


WRITERS: Mapping[str, Callable[[tuple[Completions, ...]], str]] = {
    "bash": bash_script,
    "zsh": zsh_script,
    "fish": fish_script,
}
"""Shell -> what writes its script."""
