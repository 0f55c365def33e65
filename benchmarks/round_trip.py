"""The ten best rows of twenty searches as launch files, and back: is what is read what was predicted?

    python benchmarks/round_trip.py [--only TEXT]

Dense models, mixtures and latent attention under seven frameworks. Every row is written in the first format of its
framework that expresses it, read back, and compared: strategy, switches of the software that have an effect, batch,
sequence, precision, devices, and no setting that the reader does not know. Prints a table in Markdown; asked: all
equal.
"""

import argparse
import dataclasses
from collections.abc import Mapping

from forerun.search import search
from forerun.search.board.rows import Row
from forerun.search.formats import import_texts
from forerun.search.formats.contract import Launch
from forerun.search.formats.exporting import express
from forerun.search.formats.launch_of import formats_of
from forerun.search.formats.software import assumed, carried
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Software
from forerun.spaces.strategies.software import running

SEARCHES: tuple[Mapping[str, object], ...] = (
    {"model": "llama3-8b", "gpus": 16, "framework": "megatron-lm"},
    {"model": "llama3-70b", "gpus": 128, "framework": "megatron-lm"},
    {"model": "gpt3-175b", "gpus": 256, "seq_len": 2048, "framework": "megatron-lm"},
    {"model": "qwen3-235b-a22b", "gpus": 128, "framework": "megatron-lm"},
    {"model": "deepseek-v2-lite", "gpus": 32, "framework": "megatron-lm"},
    {"model": "mixtral-8x7b", "gpus": 64, "framework": "megatron-lm"},
    {"model": "llama3-70b", "gpus": 64, "seq_len": 8192, "precision": "fp8", "framework": "nemo"},
    {"model": "qwen3-30b-a3b", "gpus": 32, "framework": "nemo"},
    {"model": "deepseek-v3", "gpus": 512, "framework": "nemo"},
    {"model": "llama3-8b", "gpus": 16, "seq_len": 8192, "framework": "torchtitan"},
    {"model": "llama3-70b", "gpus": 128, "framework": "torchtitan"},
    {"model": "qwen3-30b-a3b", "gpus": 32, "framework": "torchtitan"},
    {"model": "deepseek-v2-lite", "gpus": 32, "framework": "torchtitan"},
    {"model": "llama2-13b", "gpus": 32, "seq_len": 2048, "framework": "fsdp", "all_variants": True},
    {"model": "qwen3-14b", "gpus": 16, "seq_len": 2048, "framework": "fsdp", "all_variants": True},
    {"model": "llama2-13b", "gpus": 32, "framework": "deepspeed"},
    {"model": "qwen2.5-7b", "gpus": 16, "framework": "deepspeed"},
    {"model": "llama3-8b", "gpus": 32, "framework": "nanotron"},
    {"model": "llama2-70b", "gpus": 64, "framework": "nanotron"},
    {
        "model": "deepseek-v3",
        "gpus": 256,
        "cluster": "gb200-nvl72",
        "precision": "mxfp8",
        "framework": "nemo-blackwell",
    },
)
COMMON = {"cluster": "dgx-h100", "global_batch": 512, "seq_len": 4096, "top": 10}


def main() -> None:
    """Print one line per search, then how many rows came back equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="searches whose model or framework has this text")
    args = parser.parse_args()
    print("| model | framework | formats | rows | equal | first difference |\n|---|---|---|---:|---:|---|")
    rows = equal = 0
    for entry in SEARCHES:
        if args.only not in f"{entry['model']} {entry['framework']}":
            continue
        told = compared(entry)
        wrong = [text for _, text in told if text]
        formats = ", ".join(sorted({name for name, _ in told if name}))
        rows, equal = rows + len(told), equal + len(told) - len(wrong)
        cells = (entry["model"], entry["framework"], formats, len(told), len(told) - len(wrong), *(wrong or [""])[:1])
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(f"\n{equal} of {rows} rows are read back as they were predicted")


def compared(entry: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return, for every row of a search, the format and what differs ("" where nothing does)."""
    fields = {**COMMON, **entry}
    board = search(**fields)  # type: ignore[arg-type]  # values of the fields' types
    context = resolve(Request(**{**fields, "gpus": str(fields["gpus"])})).context  # type: ignore[arg-type]  # as above
    return [compare(context, row) for row in board.rows]


def compare(context: Context, row: Row) -> tuple[str, str]:
    """Return the format that a row was written in, and what of it was read otherwise."""
    launch = Launch(
        strategy=row.strategy,
        model=context.model,
        workload=context.workload,
        devices_per_node=context.cluster.devices_per_node,
    )
    refused = f"no format of {context.framework.name}"
    for item in formats_of(context.framework):
        try:
            files = express(item, launch, context)
        except RequestError as error:
            refused = str(error)
            continue
        bare = dataclasses.replace(row.strategy, software=Software.NONE)
        software = running(context, row.strategy.software).framework
        switched = dataclasses.replace(launch, strategy=bare, switches=carried(software, item.framework or "generic"))
        found = import_texts(files)
        pairs = {
            "strategy": (str(found.strategy), str(bare)),
            "switches": (dict(found.switches), assumed(switched, item.framework) if item.framework else {}),
            "unknown": (dict(found.unknown), {}),
            **{
                name: (found.workload.get(name), getattr(context.workload, name))
                for name in ("global_batch", "seq_len")
            },
            "precision": (found.workload.get("precision"), context.workload.precision),
            "gpus": (found.workload.get("gpus"), row.gpus),
        }
        wrong = [f"{name}: {read} instead of {meant}" for name, (read, meant) in pairs.items() if read != meant]
        return item.name, "; ".join(wrong)
    return "", refused


if __name__ == "__main__":
    main()
