"""The generated parts of README.md: the answer of its command, and the figures of the newest measurements.

Each part stands between ``<!-- NAME -->`` and ``<!-- /NAME -->``. ``make readme`` writes them again;
``tests/test_documentation.py`` compares them with what forerun answers and with the results in ``benchmarks/results/``.
"""

import importlib.util
import json
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"

DEMO = "forerun search llama3-70b --cluster dgx-h100 --gpus 512 --global-batch 1024 --seq-len 8192"
WIDTH = "98"
ROWS, LINE = 5, 120
QUIET = "0.55 s; --verbose"
"""What a quiet machine printed (one of two shared cores): a busy one's time is no property of forerun."""
SPEED = re.compile(r"\d+\.\d+ s;\s+--verbose")
SOURCES = {
    "hf_ultrascale": "Ultrascale Playbook (Llama shapes, 8 to 512 H100)",
    "aleph_alpha_layouts": "Aleph Alpha layouts (A100)",
    "llm_foundry": "llm-foundry (FSDP, A100 and H100)",
    "torchtitan": "torchtitan (FSDP2, A100 and H100)",
    "lucie": "Lucie (A100, Omni-Path)",
    "bigscience": "BigScience (V100 and A100, Omni-Path)",
    "vtrain_multi": "vTrain (GPT shapes, 64 and 512 A100)",
    "internevo": "InternEvo (7B to 65B, 8 to 1,024 A100)",
    "amp": "AMP (16 T4 on 50 Gbit/s)",
    "mlperf_llm": "MLPerf training (8 to 10,752 GPUs, H100 to B300)",
    "simumax_b200": "SimuMax (B200)",
    "megatron_bridge": "Megatron-Bridge (dense and experts, H100 and GB200)",
    "mcore_functional_tests": "NVIDIA's functional tests (8 GPUs, small models)",
}


def _hooks() -> Any:
    spec = importlib.util.spec_from_file_location("forerun_docs_hooks", ROOT / "docs" / "hooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def newest(name: str) -> dict[str, Any]:
    """Read the newest result called ``name``."""
    paths = sorted((ROOT / "benchmarks" / "results").glob(f"*-{name}.json"))
    document: dict[str, Any] = json.loads(paths[-1].read_text(encoding="utf-8"))
    return document


def demo() -> str:
    """Run the command of the README; rows after the fifth are left out."""
    lines = _hooks().run(DEMO, ROOT, width=WIDTH).rstrip("\n").split("\n")
    start = next(i for i, line in enumerate(lines) if re.match(rf" +{ROWS + 1} ", line))
    end = next(i for i in range(start, len(lines)) if not lines[i].strip())
    return timeless("\n".join(["```text", *lines[:start], *lines[end:], "```"]))


def accuracy() -> str:
    """Tabulate the newest errors of each source of measured runs."""
    document = newest("accuracy")
    sources = document["sources"]
    rows = [
        "| runs of | rows | median error | tau | pairs | memory, median error | OOM predicted / false alarms |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(_row(title, sources[name]) for name, title in SOURCES.items() if name in sources),
        _row(f"all {len(sources)} sources", document["overall"]),
    ]
    overall = document["overall"]
    regret = textwrap.fill(
        "On average the strategy ranked first is "
        f"{overall['regret1_pct']:.0f} % slower than the best run of its group, "
        f"and {overall['regret1_median_pct']:.0f} % in the median. Measured on {document['date']}.",
        LINE,
    )
    return "\n".join([*rows, "", regret])


def _row(title: str, figures: Mapping[str, Any]) -> str:
    def percent(name: str, digits: int = 1) -> str:
        return f"{figures[name]:.{digits}f} %" if figures.get(name) is not None else ""

    ordered = figures.get("groups") and figures.get("kendall_tau") is not None
    out_of_memory = figures.get("oom_rows") and figures.get("oom_specificity_pct") is not None
    cells = [
        title,
        f"{figures['rows']:,}",
        percent("median_ape_pct"),
        f"{figures['kendall_tau']:.2f}" if ordered else "",
        percent("wide_pair_order_pct") if ordered else "",
        percent("memory_median_ape_pct"),
        f"{percent('oom_recall_pct', 0)} / {100 - figures['oom_specificity_pct']:.0f} %" if out_of_memory else "",
    ]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def speed() -> str:
    """State the newest times of commands and of the core."""
    document = newest("speed")
    seconds = {one["command"]: one["median_s"] for one in document["commands"]}
    rates = [one["core_candidates_per_s"] / 1e6 for one in document["candidates"] if one["core_rows"] > 50_000]
    largest = document["candidates"][-1]
    text = (
        f"On one of {document['hardware']['cores']} cores ({document['date']}): the command above takes "
        f"{seconds[DEMO]:.1f} s with the start of Python, `forerun --help` {seconds['forerun --help']:.2f} s. "
        f"{largest['legal'] / 1e6:.0f} million legal candidates, among {largest['enumerated']:.1e}, take "
        f"{largest['search_s']:.0f} s. The core scores {min(rates):.1f} to {max(rates):.1f} million a second."
    )
    return textwrap.fill(text, LINE)


PARTS: dict[str, Callable[[], str]] = {"demo": demo, "accuracy": accuracy, "speed": speed}


def part(name: str, text: str) -> str:
    """Cut the generated part called ``name`` out of the README."""
    (generated,) = re.findall(rf"<!-- {name} -->\n(.*?)\n<!-- /{name} -->", text, re.DOTALL)
    return str(generated)


def timeless(text: str) -> str:
    """Replace the seconds and the rate of a search, which differ from run to run."""
    return SPEED.sub(QUIET, text)


def main() -> None:
    """Write every part."""
    text = README.read_text(encoding="utf-8")
    for name, make in PARTS.items():
        text = text.replace(f"<!-- {name} -->\n{part(name, text)}\n", f"<!-- {name} -->\n{make()}\n")
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
