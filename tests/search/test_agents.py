"""Tools of agents over stdio, asked by the SDK's own client; schemas come from the flags."""

import asyncio
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from forerun.search.cli.agents.server import (
    MOST_CHARACTERS,
    TOOLS,
    bounded_answer,
    command_words,
    tool_flags,
    tool_schema,
)
from forerun.spaces.errors import RequestError

JOB = {"model": "llama3-8b", "cluster": "dgx-h100", "global_batch": 64, "seq_len": "4k"}


def ask(*calls: tuple[str, dict[str, Any]], folder: Path) -> list[Any]:
    """Call tools one after the other in one session; returns the results, the listed tools first."""
    mcp = pytest.importorskip("mcp")

    async def session() -> list[Any]:
        server = mcp.StdioServerParameters(command=sys.executable, args=["-m", "forerun.search", "mcp"], cwd=folder)
        async with mcp.Client(server) as client:
            found: list[Any] = [await client.list_tools()]
            for name, arguments in calls:
                found.append(await client.call_tool(name, arguments))
            return found

    return asyncio.run(session())


def text_of(result: Any) -> str:
    (content,) = result.content
    return str(content.text)


@pytest.mark.slow
def test_an_engineer_asks_five_questions(tmp_path: Path) -> None:
    strategy = "tp2 pp1 dp8 mbs1 zero1 sp recompute=full"
    listed, found, simulated, explained, compared, exported = ask(
        ("search", {**JOB, "gpus": "16", "out": "run"}),
        ("simulate", {**JOB, "strategy": strategy}),
        ("explain", {**JOB, "strategy": strategy}),
        ("compare", {**JOB, "strategy": [strategy, "tp4 pp2 dp2 mbs1 zero1 sp recompute=full"]}),
        ("export", {"run": "run", "format": "megatron-lm", "out": "launch"}),
        folder=tmp_path,
    )

    assert [tool.name for tool in listed.tools] == list(TOOLS)
    for result in (found, simulated, explained, compared, exported):
        assert not result.is_error, text_of(result)
        assert len(text_of(result)) <= MOST_CHARACTERS
    rows = json.loads(text_of(found))["leaderboard"]
    assert [row["rank"] for row in rows] == [1, 2, 3, 4, 5] and rows[0]["gpus"] == 16
    row = json.loads(text_of(simulated))
    assert json.loads(text_of(explained))["row"]["step_time_s"] == row["step_time_s"] > rows[0]["step_time_s"]
    assert "B is " in json.loads(text_of(compared))["text"]
    assert (tmp_path / "launch" / "slurm.sbatch").exists()


@pytest.mark.slow
def test_what_is_refused_says_what_to_change(tmp_path: Path) -> None:
    _, misspelt, illegal, too_large, strange = ask(
        ("search", {**JOB, "gpu": "16"}),
        ("simulate", {**JOB, "strategy": "tp3"}),
        ("search", {**JOB, "model": "llama3-405b", "gpus": "8"}),
        ("destroy", {}),
        folder=tmp_path,
    )

    assert misspelt.is_error and "did you mean gpus" in text_of(misspelt)
    assert illegal.is_error and "32 heads are not divisible by tp=3" in text_of(illegal)
    assert not too_large.is_error and "infeasible" in text_of(too_large)
    assert strange.is_error and "unknown tool 'destroy'" in text_of(strange)


@pytest.mark.slow
def test_a_long_search_reports_progress(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    heard: list[float] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    async def session() -> Any:
        server = mcp.StdioServerParameters(command=sys.executable, args=["-c", SLOW], cwd=tmp_path)
        async with mcp.Client(server) as client:
            return await client.call_tool("search", {**JOB, "gpus": "16"}, progress_callback=listen)

    assert not asyncio.run(session()).is_error
    assert heard and heard == sorted(heard)


SLOW = "from forerun.search.cli.agents import server; server.EVERY_S = 0.05; server.serve()"


@pytest.mark.parametrize("verb", TOOLS)
def test_every_flag_of_a_tool_is_a_described_property(verb: str) -> None:
    schema, flags = tool_schema(verb), tool_flags(verb)

    assert schema["properties"].keys() == flags.keys()
    assert all(entry["description"] for entry in schema["properties"].values())
    assert set(schema["required"]) == {name for name, flag in flags.items() if flag.required}


def test_arguments_become_the_words_of_a_command() -> None:
    words = command_words("search", {**JOB, "set": ["tp=1,2", "mbs=1"], "refine": True, "all_variants": False})

    assert words[:2] == ["search", "llama3-8b"] and "--all-variants" not in words
    assert {"--set=tp=1,2", "--set=mbs=1", "--refine", "--top=5", "--seq-len=4k"} <= set(words)
    with pytest.raises(RequestError, match="begin with a dash"):
        command_words("search", {**JOB, "model": "--out=x"})


def test_answers_are_bounded() -> None:
    document = {"rows": [{"name": f"row {place}", "values": [1 / 3] * 50} for place in range(1000)], "versions": {}}
    short = json.loads(bounded_answer(json.dumps(document)))

    assert len(json.dumps(short)) <= 1.2 * MOST_CHARACTERS
    assert short["rows"][-1].endswith(" more") and short["rows"][0]["values"][0] == 0.3333 and "versions" not in short


DOCS = Path(__file__).resolve().parents[2] / "docs"


def test_the_page_for_agents_is_short_and_names_every_tool() -> None:
    page = (DOCS / "agents.md").read_text()

    assert len(page.splitlines()) <= 150
    assert all(f"`forerun {verb}" in page or f"forerun {verb} " in page for verb in TOOLS)


def test_links_of_llms_txt_exist() -> None:
    text = (DOCS / "llms.txt").read_text()
    links = re.findall(r"\]\(([^)]+)\)", text)

    assert text.startswith("# forerun\n\n> ") and len(links) > 5
    assert all((DOCS / link).is_file() for link in links)
