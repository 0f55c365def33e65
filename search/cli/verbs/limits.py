"""``forerun limits``: limits of every family of splits, and changes that raise them."""

import argparse

from forerun.search.cli.flags.declaration import JSON, Declared, Flag, Many
from forerun.search.cli.flags.kinds import OUTPUT
from forerun.search.cli.flags.shared import FORCE, MODEL, OPERATOR_GRAPHS, TRAINING, without
from forerun.spaces.errors import RequestError

EPILOG = """\
examples:
  forerun limits resnet50 --cluster abci-v100 --gpus 1..1024 --global-batch 64/gpu
  forerun limits cosmoflow-256 --cluster abci-v100 --gpus 4..256 --global-batch 64 --framework chainermn --json
  forerun limits vgg16 --cluster dgx-a100-80 --gpus 1..256 --global-batch 64/gpu --report vgg16.html

For operator graphs (models with an input shape in `forerun list models`). Useful GPUs, marked < in the curves: the
largest number whose last increase gained at least half of its ideal speed-up."""


FLAGS: Declared = (
    MODEL,
    TRAINING,
    without(OPERATOR_GRAPHS, "--inference"),
    Flag("--gpus", "numbers of GPUs to evaluate", metavar="LO..HI", required=True),
    Flag("--set", "only these kinds of split, like mode=data,filter", metavar="mode=CHOICES", many=Many.REPEATED),
    Flag("--report", "write the curves as one HTML page that opens offline", OUTPUT, "FILE"),
    FORCE,
    JSON,
)


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
