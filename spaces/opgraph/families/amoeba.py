"""AmoebaNet-D (arXiv 1802.01548) by depth and width, in the form trained by GPipe (arXiv 1811.06965).

A cell reads the two preceding cells, builds five sums of two operations each, and concatenates some of its states. The
normal cell concatenates states 0, 3, 4 and 6 like the reference implementation: states 4, 5, 6 of the publication do
not give the parameter counts of GPipe's table 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import Shape

PUBLISHED = {(18, 208): 82e6, (18, 416): 318e6, (18, 544): 542e6, (36, 544): 1.05e9, (72, 512): 1.8e9}
"""Parameters by (layers, filters): GPipe, table 1."""

Operation = Callable[[Builder, Value, int, int], Value]


def _unit(b: Builder, x: Value, filters: int, kernel: int | Shape, stride: int | Shape = 1) -> Value:
    window = (kernel, kernel) if isinstance(kernel, int) else kernel
    padding = tuple(size // 2 for size in window)
    return b.batch_norm(b.conv(b.relu(x), filters, window, stride=stride, padding=padding))


def _identity(b: Builder, x: Value, channels: int, stride: int) -> Value:
    return x if stride == 1 else _halved(b, x, channels)


def _halved(b: Builder, x: Value, channels: int) -> Value:
    """Two 1x1 convolutions of stride 2, the second shifted by one pixel, concatenated."""
    x = b.relu(x)
    return b.batch_norm(b.concat(*(b.conv(x, channels // 2, 1, stride=2) for _ in range(2))))


def _pool3(b: Builder, x: Value, channels: int, stride: int) -> Value:
    return b.pool(x, 3, stride=stride, padding=1)


def _pool2(b: Builder, x: Value, channels: int, stride: int) -> Value:
    # A window of two without padding loses a row at stride 1; the reduction cell uses it at stride 1 on its second
    # input only after that input has been halved, whereas the reference pads as needed.
    return b.pool(x, 2, stride=stride, ceil=True) if stride > 1 else b.pool(x, 3, stride=1, padding=1)


def _one(b: Builder, x: Value, channels: int, stride: int) -> Value:
    return _unit(b, x, channels, 1, stride)


def _three(b: Builder, x: Value, channels: int, stride: int) -> Value:
    inner = _unit(b, x, channels // 4, 1)
    return _unit(b, _unit(b, inner, channels // 4, 3, stride), channels, 1)


def _seven(b: Builder, x: Value, channels: int, stride: int) -> Value:
    inner = _unit(b, x, channels // 4, 1)
    inner = _unit(b, inner, channels // 4, (1, 7), (1, stride))
    return _unit(b, _unit(b, inner, channels // 4, (7, 1), (stride, 1)), channels, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """Pairs of (state, operation) whose sums are new states, and the states in the output."""

    pairs: tuple[tuple[tuple[int, Operation], tuple[int, Operation]], ...]
    leaving: tuple[int, ...]


NORMAL = _Cell(
    pairs=(
        ((1, _one), (1, _pool3)),
        ((1, _identity), (0, _seven)),
        ((0, _one), (0, _seven)),
        ((2, _pool3), (2, _identity)),
        ((1, _pool3), (5, _one)),
    ),
    leaving=(0, 3, 4, 6),
)
REDUCTION = _Cell(
    pairs=(
        ((0, _pool2), (0, _pool3)),
        ((2, _identity), (1, _three)),
        ((2, _seven), (2, _pool3)),
        ((3, _identity), (1, _pool2)),
        ((2, _pool3), (3, _one)),
    ),
    leaving=(4, 5, 6),
)


class _Network:
    """The chain of cells during its construction."""

    def __init__(self, channels: int) -> None:
        self.builder, self.channels = Builder(3, 224, 224), channels
        b = self.builder
        self.last = self.before = b.batch_norm(b.conv(b.relu(b.start), channels, 3, stride=2, padding=1))
        self.reduced = False

    def cell(self, form: _Cell) -> None:
        """Append one cell; a reduction doubles the channels and halves the extents."""
        b, reduction = self.builder, form is REDUCTION
        self.channels *= 2 if reduction else 1
        width = self.channels
        one = _unit(b, self.last, width, 1)
        two = self.before
        if self.reduced:
            two = _halved(b, two, width)
        elif two.shape[0] != width:
            two = _unit(b, two, width, 1)
        states = [one, two]
        for left, right in form.pairs:
            # Only the two inputs of a reduction cell have the large extents.
            halves = [
                operation(b, states[state], width, 2 if reduction and state < 2 else 1)
                for state, operation in (left, right)
            ]
            states.append(b.add(*halves))
        self.before, self.last = self.last, b.concat(*(states[number] for number in form.leaving))
        self.reduced = reduction


def amoebanet_d(layers: int = 18, filters: int = 208) -> GraphModel:
    """AmoebaNet-D (``layers``, ``filters``) for 224 x 224 images.

    The network has normal cells in three groups, a reduction cell before the second and third group, and two reduction
    cells in the stem.
    """
    network = _Network(filters // 4)
    for _ in range(2):
        network.cell(REDUCTION)
    for group in range(3):
        if group:
            network.cell(REDUCTION)
        for _ in range(layers // 3):
            network.cell(NORMAL)
    b = network.builder
    b.loss(b.linear(b.flatten(b.global_pool(network.last)), 1000))
    return b.build(
        f"AmoebaNet-D ({layers}, {filters})",
        "Real et al., arXiv 1802.01548; parameters: Huang et al. (GPipe), arXiv 1811.06965, table 1",
        parameters=PUBLISHED.get((layers, filters)),
    )
