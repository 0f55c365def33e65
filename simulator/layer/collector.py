"""Collector of one device's operators as records of seconds: products, memory-bound passes, launches, accumulation.

Each linear operator is three matrix products (forward, data gradient, weight gradient).
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from forerun.simulator.costs import (
    GemmKind,
    gemm_bytes,
    gemm_time_s,
    launched_s,
    memory_bound_time_s,
    stream_operator,
    stream_operator_time_s,
)
from forerun.simulator.layer.eight_bit import EIGHT_BIT, keeps_eight_bit, recipe_of
from forerun.simulator.layer.shard import Shard
from forerun.simulator.layer.work import Direction, OperatorTime, Work, work_of
from forerun.simulator.score_table import Floats
from forerun.spaces.models.model import Trains
from forerun.spaces.strategies import Context, Recompute

# Bytes per parameter and microbatch where gradients are accumulated separately: 16-bit ones are cleared (2), new ones
# are added to them (6), the sum is cast (6) and added to the fp32 buffer (12). DeepSpeed, bf16_optimizer.py:
# clear_lp_grads and update_hp_grads.
_SEPARATE_BYTES = 26.0

ADDING: Mapping[float, GemmKind] = {4.0: "weight_gradient", 2.0: "weight_gradient_added"}
"""Kind of product that adds to main gradients, by their bytes."""

DIRECTIONS: tuple[Direction, ...] = ("forward", "input_gradient", "weight_gradient")

Size: TypeAlias = tuple[Floats | float, Floats | float, Floats | float]
"""Rows, columns and reduction of a matrix product: m, n and k."""


class OperatorCollector:
    """Collects operators for K shards on the device of a context.

    Its sequences have ``seq_len`` tokens (default: the workload's). ``part``: part of the layer in the names of the
    next operators.
    """

    def __init__(self, context: Context, shard: Shard, seq_len: int | None = None) -> None:
        self.context, self.shard = context, shard
        self.seq_len = float(seq_len or context.workload.seq_len)
        self.of_workload = seq_len is None
        self.device, self.precision = context.cluster.device, context.workload.precision
        self.gradient_bytes = context.framework.held_gradient_bytes(self.precision)
        self.wide = 2.0 if self.precision in ("fp32", "tf32") else 1.0
        self.by_product = context.framework.selective == "products"
        self.products = 0
        self.part = ""
        self.modules = Recompute.NONE
        self.records: list[OperatorTime] = []

    @property
    def work(self) -> Work:
        """Return the sums over all operators so far."""
        return work_of(self.records, len(self.shard))

    @contextmanager
    def inside(self, module: Recompute) -> Iterator[None]:
        """Assign operators added in this block to a module that may be recomputed alone."""
        before, self.modules = self.modules, self.modules | module
        yield
        self.modules = before

    def _matrix(
        self,
        name: str,
        direction: Direction,
        size: Size,
        precision: str,
        kind: GemmKind,
        groups: float | Floats = 1.0,
        *,
        repeated: bool = False,
        speed: float = 1.0,
        together: bool = True,
    ) -> None:
        """Add ``groups`` matrix products of ``size`` (m, n, k).

        ``speed``: relative to a matrix library; ``together``: as one kernel, otherwise one kernel each, which no run
        shows to be faster.
        """
        m, n, k = size
        seconds = gemm_time_s(self.device, precision, m, n, k, groups=groups, kind=kind)
        if not together:
            alone_s = gemm_time_s(self.device, precision, m, n, k, kind=kind)
            seconds = np.maximum(seconds, groups * np.maximum(alone_s, launched_s(self.device, 1.0)))
        self.records.append(
            OperatorTime(
                name=name,
                direction=direction,
                seconds=seconds / speed,
                matrix_s=2.0 * m * n * k * groups / self.device.peak(precision),
                memory_s=gemm_bytes(precision, m, n, k, groups=groups, kind=kind) / self.device.memory_bytes_per_s,
                kind="product",
                kernels=1.0 if together else groups,
                repeated=repeated,
                modules=self.modules,
            )
        )

    def _streamed(
        self,
        name: str,
        form: str,
        elements: Floats,
        *,
        fused: bool = True,
        backward: bool = False,
        direction: Direction | None = None,
        repeated: bool = False,
    ) -> None:
        """Add one pass of a memory-bound operator over some elements."""
        one = stream_operator(form).one_pass(fused=fused, backward=backward)
        self.records.append(
            OperatorTime(
                name=name,
                direction=direction or ("input_gradient" if backward else "forward"),
                seconds=stream_operator_time_s(self.device, form, elements, fused=fused, backward=backward),
                memory_s=elements * one.bytes_per_element / self.device.memory_bytes_per_s,
                kernels=float(one.kernels),
                repeated=repeated,
                modules=self.modules,
            )
        )

    def _one_by_one(self, name: str, parts: Floats, kernels: tuple[float, float]) -> None:
        """Add kernels (forward, backward) of many small parts, limited by their launches."""
        directions: tuple[Direction, Direction] = ("forward", "input_gradient")
        for direction, each in zip(directions, kernels, strict=True):
            seconds = launched_s(self.device, parts * each)
            self.records.append(
                OperatorTime(
                    name=name, direction=direction, seconds=seconds, kernels=parts * each, modules=self.modules
                )
            )

    def linear(
        self,
        name: str,
        m: Floats,
        n: Floats,
        k: Floats,
        groups: float | Floats = 1.0,
        precision: str | None = None,
        already_cast: tuple[bool, bool] = (False, False),
        together: bool = True,
    ) -> None:
        """Add ``groups`` of ``y[m, n] = x[m, k] w[k, n]`` and their gradients.

        8-bit precisions add the casts of w, unless it is stored in 8 bit, and of x and dy, unless another kernel wrote
        them in 8 bit (``already_cast``); ``together``: see ``_matrix``.
        """
        precision = precision or self.precision
        weight: GemmKind = "weight_gradient_half"
        if self.context.framework.fused_accumulation:
            weight = ADDING.get(self.gradient_bytes, weight)
        self.products += 1
        again = self.by_product and self.products % 2 == 0
        self._matrix(name, "forward", (m, n, k), precision, "forward", groups, repeated=again, together=together)
        self._matrix(name, "input_gradient", (m, k, n), precision, "data_gradient", groups, together=together)
        self._matrix(name, "weight_gradient", (n, k, m), precision, weight, groups, together=together)
        recipe = recipe_of(self.context) if precision in EIGHT_BIT else None
        if recipe is not None:
            cast = recipe.cast
            if not keeps_eight_bit(self.context):
                self._streamed(f"cast weights to {precision}", cast, groups * n * k, repeated=again)
            if not already_cast[0]:
                self._streamed(f"cast to {precision}", cast, groups * m * k, repeated=again)
            if not already_cast[1]:
                self._streamed(f"cast to {precision}", cast, groups * m * n, backward=True)

    def stream(self, form: str, elements: Floats, name: str = "") -> None:
        """Add a memory-bound operator over ``elements`` elements, as one kernel or eagerly according to the profile."""
        fused, elements = form not in self.context.eager, elements * self.wide
        name = name or form.replace("_", " ")
        self._streamed(name, form, elements, fused=fused, repeated=self.by_product)
        self._streamed(name, form, elements, fused=fused, backward=True)

    def half_precision(self) -> str:
        """Precision of tensors that 8-bit training keeps in half precision."""
        return "bf16" if self.precision in EIGHT_BIT else self.precision

    def accumulation(self, parameters: Floats) -> None:
        """Add the accumulation of new gradients of ``parameters`` [K], where no matrix product accumulates."""
        if not self.context.framework.fused_accumulation:
            moved = parameters * self._added_bytes()
            self.records.append(
                OperatorTime(
                    name="gradient accumulation",
                    direction="weight_gradient",
                    seconds=memory_bound_time_s(self.device, moved),
                    memory_s=moved / self.device.memory_bytes_per_s,
                )
            )

    def exclude_last_product(self) -> None:
        """Exclude the latest product from full recomputation: the backward pass does not need its output."""
        products = (place for place, one in enumerate(self.records) if one.direction == "forward")
        last = max(place for place in products if self.records[place].kind == "product")
        self.records[last] = replace(self.records[last], not_recomputed=True)

    def keep_trained(self, trains: Trains) -> None:
        """Drop the gradients that a partly trained layer does not have."""
        wanted = {"all": DIRECTIONS, "adapters": DIRECTIONS[:2], "inputs": DIRECTIONS[:2], "nothing": DIRECTIONS[:1]}
        self.records = [one for one in self.records if one.direction in wanted[trains]]

    def _added_bytes(self) -> Floats:
        """Bytes per parameter moved by the accumulation of a new weight gradient."""
        return np.where(self.shard.separate_fp32, _SEPARATE_BYTES, 2.0 + 2.0 * self.gradient_bytes)
