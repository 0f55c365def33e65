"""The ten best rows of some twenty searches as launch files, and back: is what is read what was predicted?

    python benchmarks/round_trip.py [--only TEXT] [--with]

Dense models, mixtures, latent attention and state spaces under seven frameworks. Every row is written in every format
of its framework that expresses it, read back, and compared: strategy, switches of the software that have an effect,
batch, sequence, precision, devices, and no setting that the reader does not know. Prints a table in Markdown; asked:
all equal, and no row without a format.
"""

import argparse
import dataclasses
from collections.abc import Mapping

from forerun.search import search
from forerun.search.board.rows import Row
from forerun.search.formats import import_texts
from forerun.search.formats.contract import Files, Format, Launch
from forerun.search.formats.express import express
from forerun.search.formats.registry import formats_of
from forerun.search.formats.software import assumed, carried
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import settings_text
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
    {"model": "nemotron-h-8b", "gpus": 64, "seq_len": 8192, "framework": "megatron-lm"},
    {"model": "nemotron3-nano-30b-a3b", "gpus": 64, "seq_len": 8192, "framework": "nemo"},
    {"model": "qwen3-next-80b-a3b", "gpus": 128, "framework": "megatron-lm"},
)
SWITCHED: tuple[Mapping[str, str], ...] = (
    {"bf16-grads": "on", "overlap-param-gather": "off", "moments": "bf16", "master-weights": "remainders"},
    {"tp-comm-overlap": "off", "cross-entropy-fusion": "on", "expandable-segments": "off", "cuda-graphs": "on"},
    {"grad-accumulation-fusion": "off", "attention": "unfused", "overlap-p2p": "off", "optimizer-offload": "0.5"},
    {"dispatcher": "alltoall", "grouped-gemm": "off", "moe-overlap": "off", "cuda-graphs": "router"},
    {"dispatcher": "hybridep", "cuda-graphs": "full", "optimizer": "muon"},
    {"dispatcher": "allgather", "overlap-grad-reduce": "off", "overlap-param-gather": "off", "cuda-graphs": "attn"},
    {"bf16-grads": "off", "cuda-graphs": "mlp", "fp8-recipe": "block", "master-weights": "remainders"},
    {"dispatcher": "hybridep", "optimizer-offload": "0.25", "offload-overlap": "off", "overlap-param-gather": "off"},
    {"moe-overlap": "off", "dispatcher": "alltoall", "cross-entropy-fusion": "off", "shared-expert-overlap": "on"},
    {"compile": "off"},
    {"tp-comm-overlap": "off"},
    {"dispatcher": "hybridep", "compile": "off"},
    {"dispatcher": "deepep"},
    {},
    {},
    {"overlap-grad-reduce": "off"},
    {"optimizer-offload": "on"},
    {"bf16-grads": "on"},
    {"bf16-grads": "off"},
    {"cuda-graphs": "off", "moe-overlap": "off", "fused-experts": "off", "bf16-grads": "off"},
    {"optimizer-offload": "0.5", "moments": "fp32", "cuda-graphs": "attn"},
    {"bf16-grads": "off", "dispatcher": "alltoall", "shared-expert-overlap": "on"},
    {"dispatcher": "hybridep", "moments": "bf16", "master-weights": "remainders", "activation-offload": "on"},
)
"""Settings that are asked for in a second pass over the searches (``--with``), one per search."""
COMMON = {"cluster": "dgx-h100", "global_batch": 512, "seq_len": 4096, "top": 10}


def main() -> None:
    """Print one line per search, then how many rows came back equal."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="searches whose model or framework has this text")
    parser.add_argument("--with", dest="switched", action="store_true", help="once more with other switches each")
    args = parser.parse_args()
    print("| model | framework | formats | files | equal | first difference |\n|---|---|---|---:|---:|---|")
    rows = equal = 0
    asked = [{**entry, "switches": chosen} for entry, chosen in zip(SEARCHES, SWITCHED, strict=True)]
    for entry in (*SEARCHES, *(asked if args.switched else ())):
        if args.only not in f"{entry['model']} {entry['framework']}":
            continue
        told = compared(entry)
        wrong = [text for _, text in told if text]
        formats = ", ".join(sorted({name for name, _ in told if name}))
        rows, equal = rows + len(told), equal + len(told) - len(wrong)
        chosen = settings_text(entry.get("switches", {}))  # type: ignore[arg-type]  # as given above
        named, first = f"{entry['framework']} {chosen}".strip(), next(iter(wrong), "")
        cells = (entry["model"], named, formats, len(told), len(told) - len(wrong), first)
        print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(f"\n{equal} of {rows} files are read back as they were predicted")


def compared(entry: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return, for every row of a search, the format and what differs ("" where nothing does)."""
    fields = {**COMMON, **entry}
    board = search(**fields)  # type: ignore[arg-type]  # values of the fields' types
    context = resolve(Request(**{**fields, "gpus": str(fields["gpus"])})).context  # type: ignore[arg-type]  # as above
    return [told for row in board.rows for told in compare(context, row)]


def compare(context: Context, row: Row) -> list[tuple[str, str]]:
    """Return the formats that a row was written in, each with what of it was read otherwise."""
    launch = Launch(
        strategy=row.strategy,
        model=context.model,
        workload=context.workload,
        devices_per_node=context.cluster.devices_per_node,
    )
    refused, found = f"no format of {context.framework.name}", list[tuple[str, str]]()
    for item in formats_of(context.framework):
        try:
            files = express(item, launch, context)
        except RequestError as error:
            refused = str(error)
            continue
        found.append((item.name, "; ".join(_differences(context, row, launch, item, files))))
    return found or [("", refused)]


def _differences(context: Context, row: Row, launch: Launch, item: Format, files: Files) -> list[str]:
    """Return what of a row's files is read otherwise than it was predicted."""
    bare = dataclasses.replace(row.strategy, software=Software.NONE)
    software = running(context, row.strategy.software).framework
    words = item.framework or item.also[0]
    switched = dataclasses.replace(launch, strategy=bare, switches=carried(software, words))
    found = import_texts(files)
    pairs = {
        "strategy": (str(found.strategy), str(bare)),
        "switches": (dict(found.switches), assumed(switched, words)),
        "unknown": (dict(found.unknown), {}),
        **{name: (found.workload.get(name), getattr(context.workload, name)) for name in ("global_batch", "seq_len")},
        "precision": (found.workload.get("precision"), context.workload.precision),
        "gpus": (found.workload.get("gpus"), row.gpus),
    }
    return [f"{name}: {read} instead of {meant}" for name, (read, meant) in pairs.items() if read != meant]


if __name__ == "__main__":
    main()
