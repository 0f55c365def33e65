"""Tools of agents: schemas from declared flags, words of a command from arguments, answers of bounded size."""

import json
from collections.abc import Mapping
from typing import Any

from forerun.search.cli.flags.declaration import Flag, Many, flags_of, json_schema
from forerun.search.cli.registry import VERBS
from forerun.spaces.errors import RequestError, unknown

TOOLS = ("search", "simulate", "explain", "compare", "import", "export")
"""Verbs available to agents."""
NOT_FOR_AGENTS = ("debug", "json", "quiet", "verbose", "report", "trace", "timeline", "storage", "address")
"""Flags about terminals, pages and machines of the user."""
ROWS = 5
"""Default rows of a leaderboard for agents."""
MOST_CHARACTERS = 12_000
"""Most characters of an answer: some 4,000 tokens."""
DIGITS = 4
LENGTHS = (20, 10, 5, 3, 2, 1)
"""Lengths to which lists are cut, tried in order until an answer is short enough."""
OMITTED = {"versions", "variants", "candidates_per_s", "elapsed_s", "request_id"}
"""Keys without influence on decisions."""


def tool_flags(verb: str) -> dict[str, Flag]:
    """Return the flags of a verb that agents may set, by property name."""
    (item,) = (item for item in VERBS if item.name == verb)
    flags = (flag for flag in flags_of(item.declaration.flags) if flag.property_name not in NOT_FOR_AGENTS)
    return {flag.property_name: flag for flag in flags}


def tool_schema(verb: str) -> dict[str, Any]:
    """Return the JSON schema of a tool's arguments."""
    return json_schema(tool_flags(verb).values())


def tool_description(verb: str) -> str:
    """Return the summary of a verb and its examples as commands, with flags equal to the tool's properties."""
    (item,) = (item for item in VERBS if item.name == verb)
    return f"{item.summary[0].upper()}{item.summary[1:]}.\n\n{item.declaration.epilog}"


def command_words(verb: str, arguments: Mapping[str, Any]) -> list[str]:
    """Return the words of the command of a call.

    Raises
    ------
    RequestError
        The tool or an argument is unknown.
    """
    if verb not in TOOLS:
        raise unknown("tool", verb, TOOLS)
    flags, placed, named = tool_flags(verb), list[str](), list[str]()
    for name, value in arguments.items():
        if name not in flags:
            raise unknown("argument", name, flags)
        flag = flags[name]
        if value is None or value is False:
            continue
        values = value if isinstance(value, list) else [value]
        if flag.is_argument:
            placed += map(str, values)
        elif value is True:
            named.append(flag.name)
        elif flag.is_list and flag.many is not Many.REPEATED:  # several words after one flag
            named += [flag.name, *map(str, values)]
        else:
            named += [f"{flag.name}={one}" for one in values]
    if verb == "search" and not arguments.get("top"):
        named.append(f"--top={ROWS}")
    if any(word.startswith("-") for word in placed):
        raise RequestError(f"the words {' '.join(placed)} begin with a dash; name a model, file or folder")
    return [verb, *placed, *named, "--json"]


def bounded_answer(text: str) -> str:
    """Return the JSON document of a verb in at most ``MOST_CHARACTERS``: few digits, lists cut with a remark."""
    try:
        document = json.loads(text)
    except ValueError:
        return text[:MOST_CHARACTERS]
    for length in LENGTHS:
        short = json.dumps(_shortened(document, length), separators=(",", ":"), ensure_ascii=False)
        if len(short) <= MOST_CHARACTERS:
            return short
    return short[:MOST_CHARACTERS]


def _shortened(value: Any, length: int) -> Any:
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: _shortened(item, length) for key, item in value.items() if key not in OMITTED and item is not None}
    if isinstance(value, list):
        kept = [_shortened(item, length) for item in value[:length]]
        return kept if len(value) <= length else [*kept, f"and {len(value) - length} more"]
    return value
