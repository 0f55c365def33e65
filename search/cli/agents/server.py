"""The server of ``forerun mcp``: verbs as tools, every call of which runs one command in a separate process."""

import asyncio
import contextlib
import json
import sys
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from forerun.search.cli.flags.declaration import Flag, Many, flags_of, json_schema
from forerun.search.cli.registry import VERBS
from forerun.search.files.release import VERSION
from forerun.spaces.errors import InfeasibleError, RequestError, unknown

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
    """Return the words of the command of a call."""
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


INSTRUCTIONS = """\
forerun predicts how fast a model trains on accelerators and which parallel strategy is fastest, without the hardware.
Begin with search; explain or simulate one of its strategies; compare two; export launch files of a search that was
written with `out`. Figures are predictions: quote the 80 % range and the notes with them."""
EVERY_S = 2.0
"""Seconds between reports of progress."""
LAST_LINES = 20
"""Most lines of messages repeated in an answer."""


async def list_tools(
    _: "ServerRequestContext[Any]", __: "types.PaginatedRequestParams | None"
) -> types.ListToolsResult:
    """Return all tools with their schemas."""
    tools = [
        types.Tool(name=verb, description=tool_description(verb), input_schema=tool_schema(verb)) for verb in TOOLS
    ]
    return types.ListToolsResult(tools=tools)


async def call_tool(context: "ServerRequestContext[Any]", params: types.CallToolRequestParams) -> types.CallToolResult:
    """Run a command and return its bounded answer; a refusal is an answer with the needed change."""
    try:
        words = command_words(params.name, params.arguments or {})
    except RequestError as error:
        return _result(str(error), failed=True)
    code, out, messages = await _run(context, words)
    answer = bounded_answer(out) if out.strip() else ""
    failed = code not in (0, InfeasibleError.exit_code)
    return _result("\n".join(filter(None, (answer, messages if code else ""))), failed=failed)


def _result(text: str, *, failed: bool) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(text=text)], is_error=failed)


async def _run(context: "ServerRequestContext[Any]", words: list[str]) -> tuple[int, str, str]:
    """Return exit code, answer and last messages of a command; the command ends with the call."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "forerun.search", *words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    lines: deque[str] = deque(maxlen=LAST_LINES)
    reading = asyncio.create_task(_keep(process.stderr, lines))
    reporting = asyncio.create_task(_report(context, words[0], lines))
    try:
        out = (await process.stdout.read()).decode("utf-8", "replace")
        await reading
        return await process.wait(), out, "\n".join(lines)
    finally:
        reporting.cancel()
        if process.returncode is None:
            process.kill()
            with contextlib.suppress(asyncio.CancelledError):
                await process.wait()


async def _keep(stream: asyncio.StreamReader, lines: deque[str]) -> None:
    async for line in stream:
        lines.append(line.decode("utf-8", "replace").rstrip().removeprefix("forerun: "))


async def _report(context: "ServerRequestContext[Any]", verb: str, lines: deque[str]) -> None:
    """Report seconds and last message of a command to a client that requested progress."""
    begin_s = time.monotonic()
    while True:
        await asyncio.sleep(EVERY_S)
        elapsed_s = time.monotonic() - begin_s
        last = f": {lines[-1]}" if lines else ""
        await context.session.report_progress(elapsed_s, None, f"{verb} has run for {elapsed_s:.0f} s{last}")


def serve() -> None:
    """Answer a client over standard input and output until the client disconnects."""
    server: Server[Any] = Server(
        "forerun",
        version=VERSION,
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )

    async def run() -> None:
        async with stdio_server() as (reading, writing):
            await server.run(reading, writing, server.create_initialization_options())

    asyncio.run(run())
