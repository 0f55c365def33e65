"""``forerun limits``: how far every way of splitting goes, and what would take it further."""

import argparse

from forerun.search.cli.arguments import add_json, add_training
from forerun.search.cli.parser import OutputFile, Parser, add_force
from forerun.spaces.errors import RequestError

EPILOG = """\
examples:
  forerun limits resnet50 --cluster abci-v100 --gpus 1..1024 --global-batch 64/gpu
  forerun limits cosmoflow-256 --cluster abci-v100 --gpus 4..256 --global-batch 64 --framework chainermn --json
  forerun limits vgg16 --cluster dgx-a100-80 --gpus 1..256 --global-batch 64/gpu --report vgg16.html

For operator graphs (models with an input shape in `forerun list models`). Useful GPUs, marked < in the curves: the
largest number whose last increase gained at least half of its ideal speed-up."""


def add_arguments(parser: Parser) -> None:
    """Add the flags of the verb."""
    add_training(parser)
    parser.add_argument("--gpus", required=True, metavar="LO..HI", help="numbers of GPUs to evaluate")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="mode=CHOICES",
        help="only these kinds of split, like mode=data,filter",
    )
    parser.add_argument(
        "--report", action=OutputFile, metavar="FILE", help="write the curves as one HTML page that opens offline"
    )
    add_force(parser)
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Find the limits and print.

    Raises:
        RequestError: the model is a transformer.
    """
    from forerun.search.cli.opgraph import is_graph_model, run_limits

    if not is_graph_model(args):
        raise RequestError(
            f"limits are for operator graphs, but got {args.model}; "
            f"for a transformer use `forerun search --gpus LO..HI`"
        )
    return run_limits(args)
