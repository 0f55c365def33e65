"""Deep learning recommendation models (DLRM, arXiv 1906.00091): tables, two perceptrons and pairwise products."""

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel


def dlrm(
    *,
    name: str,
    source: str,
    tables: int,
    rows: int,
    width: int,
    lookups: int,
    bottom: tuple[int, ...],
    top: tuple[int, ...],
    dense_features: int,
    parameters: float | None = None,
) -> GraphModel:
    """A DLRM of ``tables`` equal tables of ``rows`` rows of ``width``; ``bottom`` ends with ``width``."""
    b = Builder(dense_features)
    dense = _perceptron(b, b.start, bottom)
    vectors = [b.table(rows, width, lookups) for _ in range(tables)]
    joined = b.interaction([dense, *vectors], dense)
    b.loss(_perceptron(b, joined, top, last_linear=True))
    return b.build(name, source, parameters=parameters, sample="sample")


def dlrm_516m() -> GraphModel:
    """The 516M-parameter DLRM of the Proteus evaluation: eight tables of a million rows of 64."""
    return dlrm(
        name="DLRM 516M",
        source="Naumov et al., arXiv 1906.00091; sizes and parameter count: Proteus, arXiv 2306.02267",
        tables=8,
        rows=1_000_000,
        width=64,
        lookups=100,
        bottom=(512, 512, 512, 64),
        top=(1024, 1024, 1024, 1024, 1),
        dense_features=128,
        parameters=516e6,
    )


def _perceptron(b: Builder, x: Value, widths: tuple[int, ...], *, last_linear: bool = False) -> Value:
    for number, width in enumerate(widths):
        x = b.linear(x, width)
        if not (last_linear and number == len(widths) - 1):
            x = b.relu(x)
    return x
