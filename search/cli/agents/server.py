"""The server of ``forerun mcp``: every call runs one command in a separate process."""

import asyncio
import contextlib
import sys
import time
from collections import deque
from typing import Any

import mcp_types as types
from mcp.server import Server, ServerRequestContext
from mcp.server.stdio import stdio_server

from forerun.search.cli.agents.tools import TOOLS, bounded_answer, command_words, tool_description, tool_schema
from forerun.search.files.release import VERSION
from forerun.spaces.errors import InfeasibleError, RequestError

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
