"""``forerun export``: launch files of a row of the leaderboard."""

import argparse
import sys
from pathlib import Path

from forerun.search.cli.arguments import add_json
from forerun.search.cli.parser import Parser, whole

EPILOG = """\
examples:
  forerun search llama3-70b --cluster dgx-h100 --gpus 64 --global-batch 256 --seq-len 8192 --out run
  forerun export run --rank 1 --format megatron-lm --out launch
  forerun export run --format all --out launch

Formats: megatron-lm, megatron-bridge, torchtitan (main), torchtitan-0.3, torchtitan-toml (up to 0.2.2), deepspeed,
accelerate-fsdp, accelerate-megatron, nanotron, forerun. `all` writes a folder for every format that can express the
strategy, and says why the others cannot. Files: the configuration, launch.sh (torchrun) and slurm.sbatch."""


def add_arguments(parser: Parser) -> None:
    """Add the flags of the verb."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder that `forerun search --out` wrote")
    parser.add_argument("--rank", type=whole, default=1, metavar="K", help="row of the leaderboard (default 1)")
    parser.add_argument("--format", required=True, metavar="F", help="name of a format, or all")
    parser.add_argument("--out", required=True, type=Path, metavar="DIR", help="folder to write to")
    parser.add_argument("--force", action="store_true", help="let --out overwrite existing files")
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Write the files and name them."""
    from forerun.search.board.folder import check_folder
    from forerun.search.files.documents import SCHEMA, dump_json, versions
    from forerun.search.formats.exporting import ALL, describe, export, load_launch
    from forerun.spaces.errors import RequestError
    from forerun.spaces.files import write_text

    launch, context = load_launch(args.run, args.rank)
    result = export(launch, context, args.format)
    if not result.files:
        raise RequestError("\n".join(result.refused.values()))
    check_folder(args.out, force=args.force)
    written: dict[str, list[str]] = {}
    for name, files in result.files.items():
        folder = args.out / name if args.format == ALL else args.out
        folder.mkdir(exist_ok=True)
        for file, text in files.items():
            write_text(folder / file, text)
        written[name] = [str(folder / file) for file in files]
    if args.json:
        facts = {"rank": args.rank, "launch": describe(launch), "files": written, "refused": result.refused}
        print(dump_json({"schema": SCHEMA, **facts, "versions": versions()}))
        return 0
    print(f"{launch.strategy}  ({launch.strategy.devices} GPUs on {launch.nodes} nodes)")
    for name, paths in written.items():
        print(f"{name}: {' '.join(paths)}")
    for reason in result.refused.values():
        print(f"forerun: {reason}", file=sys.stderr)
    return 0
