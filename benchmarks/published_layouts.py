"""Where published best layouts stand in the leaderboard of their own request, and how near their throughput is.

    python benchmarks/published_layouts.py [--gpus 64] [--batch 128]

Llama 3 70B on 64 H100 with tp4 pp8 vpp5. NVIDIA publishes 1620 to 1664 tokens per second and GPU in fp8 (NeMo). Prints
a table in Markdown; a layout counts with its best choice of the axes that its publication leaves open.
"""

import argparse

from forerun.search import search

LAYOUT = {"tp4", "pp8", "vpp5"}
DEEP = 2000
"""Rows that are looked through."""


def main() -> None:
    """Print one line per framework and precision."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    args = parser.parse_args()
    print(
        "| framework | precision | place | of feasible | share % | tokens/s/GPU | fullest of top ten, share of memory |"
    )
    print("|---|---|---:|---:|---:|---:|---:|")
    for framework, precision in (("megatron-lm", "bf16"), ("nemo", "bf16"), ("nemo", "fp8")):
        board = search(
            "llama3-70b",
            cluster="dgx-h100",
            gpus=args.gpus,
            global_batch=args.batch,
            seq_len=8192,
            framework=framework,
            precision=precision,
            top=DEEP,
        )
        found = next((row for row in board.rows if set(row.name.split()) >= LAYOUT), None)
        fullest = max(row.peak_memory_gib / row.memory_limit_gib for row in board.rows[:10])
        place = ["beyond", "", ""]
        if found is not None and found.rank is not None:
            share = 100 * found.rank / board.space.feasible
            place = [f"{found.rank}", f"{share:.1f}", f"{found.throughput_per_gpu:,.0f}"]
        cells = (framework, precision, place[0], f"{board.space.feasible:,}", *place[1:], f"{fullest:.3f}")
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
