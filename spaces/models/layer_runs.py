"""Sequences of different layers as the shortest list of runs of equal layers."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from forerun.spaces.models.model import Layer


def windowed_layers(layer: Layer, windows: Sequence[int | None]) -> tuple[Layer, ...]:
    """Return ``layer`` once per entry of ``windows`` (None: full attention), with equal neighbours joined.

    Windowed layers are named ``<name>-window``.
    """
    return joined(
        replace(
            layer,
            name=layer.name if window is None else f"{layer.name}-window",
            count=1,
            mixer=replace(layer.attention, window=window),
        )
        for window in windows
    )


def joined(layers: Iterable[Layer]) -> tuple[Layer, ...]:
    """Join neighbours of ``layers`` that differ only in their count."""
    runs: list[Layer] = []
    for layer in layers:
        if runs and replace(runs[-1], count=1) == replace(layer, count=1):
            runs[-1] = replace(runs[-1], count=runs[-1].count + layer.count)
        else:
            runs.append(layer)
    return tuple(runs)
