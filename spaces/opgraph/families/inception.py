"""Inception-V3 (arXiv 1512.00567) with its auxiliary head for training, for 299 x 299 images."""

from forerun.spaces.opgraph.builder import Builder, Value
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import Shape


def inception_v3() -> GraphModel:
    """Inception-V3: stem, blocks A x 3, reduction, blocks C x 4, reduction, blocks E x 2."""
    b = Builder(3, 299, 299)
    x = _unit(b, b.start, 32, 3, stride=2)
    x = _unit(b, x, 32, 3)
    x = b.pool(_unit(b, x, 64, 3, padding=1), 3, stride=2)
    x = _unit(b, x, 80, 1)
    x = b.pool(_unit(b, x, 192, 3), 3, stride=2)
    for pooled in (32, 64, 64):
        x = _block_a(b, x, pooled)
    x = _first_reduction(b, x)
    for width in (128, 160, 160, 192):
        x = _block_c(b, x, width)
    auxiliary = _unit(b, _unit(b, b.pool(x, 5, stride=3), 128, 1), 768, 5)
    b.loss(b.linear(b.flatten(b.global_pool(auxiliary)), 1000))
    x = _second_reduction(b, x)
    for _ in range(2):
        x = _block_e(b, x)
    b.loss(b.linear(b.flatten(b.dropout(b.global_pool(x))), 1000))
    return b.build(
        "Inception-V3",
        "Szegedy et al., arXiv 1512.00567, with auxiliary head; counts: torchvision model table",
        parameters=27_161_264,
        macs=5.71e9,
    )


def _unit(
    b: Builder, x: Value, filters: int, kernel: int | Shape, *, stride: int = 1, padding: int | Shape = 0
) -> Value:
    return b.relu(b.batch_norm(b.conv(x, filters, kernel, stride=stride, padding=padding)))


def _row(b: Builder, x: Value, filters: int, length: int) -> Value:
    return _unit(b, x, filters, (1, length), padding=(0, length // 2))


def _column(b: Builder, x: Value, filters: int, length: int) -> Value:
    return _unit(b, x, filters, (length, 1), padding=(length // 2, 0))


def _block_a(b: Builder, x: Value, pooled: int) -> Value:
    wide = _unit(b, _unit(b, x, 48, 1), 64, 5, padding=2)
    deep = _unit(b, _unit(b, _unit(b, x, 64, 1), 96, 3, padding=1), 96, 3, padding=1)
    flat = _unit(b, b.pool(x, 3, stride=1, padding=1), pooled, 1)
    return b.concat(_unit(b, x, 64, 1), wide, deep, flat)


def _first_reduction(b: Builder, x: Value) -> Value:
    deep = _unit(b, _unit(b, _unit(b, x, 64, 1), 96, 3, padding=1), 96, 3, stride=2)
    return b.concat(_unit(b, x, 384, 3, stride=2), deep, b.pool(x, 3, stride=2))


def _block_c(b: Builder, x: Value, width: int) -> Value:
    once = _column(b, _row(b, _unit(b, x, width, 1), width, 7), 192, 7)
    twice = _column(b, _unit(b, x, width, 1), width, 7)
    twice = _row(b, _column(b, _row(b, twice, width, 7), width, 7), 192, 7)
    flat = _unit(b, b.pool(x, 3, stride=1, padding=1), 192, 1)
    return b.concat(_unit(b, x, 192, 1), once, twice, flat)


def _second_reduction(b: Builder, x: Value) -> Value:
    short = _unit(b, _unit(b, x, 192, 1), 320, 3, stride=2)
    long = _column(b, _row(b, _unit(b, x, 192, 1), 192, 7), 192, 7)
    return b.concat(short, _unit(b, long, 192, 3, stride=2), b.pool(x, 3, stride=2))


def _block_e(b: Builder, x: Value) -> Value:
    short = _unit(b, x, 384, 1)
    long = _unit(b, _unit(b, x, 448, 1), 384, 3, padding=1)
    parts = [_unit(b, x, 320, 1)]
    for half in (short, long):
        parts += [_row(b, half, 384, 3), _column(b, half, 384, 3)]
    return b.concat(*parts, _unit(b, b.pool(x, 3, stride=1, padding=1), 192, 1))
