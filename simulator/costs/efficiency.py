"""Achieved share of a device's peaks: constants fitted to published micro-benchmarks.

The numbers are in ``data/compute.yaml``, written by ``benchmarks/fit/compute.py``; this file loads the numbers and
selects a device's. A device without measurements uses those of its architecture, scaled by the ratio of the largest
achieved shares of peak in any matrix product (``Device.matmul_ceiling``).
"""

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from forerun.spaces.clusters.device import Device, load_device
from forerun.spaces.documents.package_data import package_yaml

_OTHER = "other"
_UNCALIBRATED = "uncalibrated"
"""Prefix of the provenance of constants without a fitted micro-benchmark."""

# Tile shapes (rows, columns) of common kernels, in the order of ``tile_shares``; each also runs transposed.
TILE_CLASSES = (((256, 128), (128, 256)), ((128, 128),), ((128, 64), (64, 128)), ((64, 64),))


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmEfficiency:
    """Efficiency of matrix products of one input width on a device."""

    peak_share: float
    """Share of the dense peak that the inner loop of the largest tile reaches in a short burst."""
    tiles: tuple[tuple[int, int, float], ...]
    """``(rows, columns, share)``, the share relative to the largest tile."""
    wave_hardness: float
    """1 when a partly filled last wave costs an entire one, 0 when the work spreads evenly."""
    k_ramp: float
    """Cost of filling and draining a tile, in elements of the reduction."""
    memory_share: float
    """Share of the memory bandwidth."""
    fixed_s: float
    """Start and end of a kernel on the device."""
    data_gradient_share: float
    """Speed of the gradient of inputs relative to one forward product."""
    weight_gradient_share: float
    """Speed of the gradient of weights, likewise."""
    grouped_share: float
    """Speed of the experts' products in one grouped kernel, likewise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionEfficiency:
    """Efficiency of one pass (forward or backward) of fused attention on a device."""

    peak_share: float
    """Share of the dense peak of a long loop over keys."""
    head_dim_ramp: float
    """Cost of the exponentials of one score, in elements of the head dimension."""
    block_rows: int
    """Queries of one block."""
    key_ramp: float
    """Cost of starting a block, in keys."""
    wave_hardness: float
    """See matrix products."""
    fixed_s: float
    """Start and end of a kernel on the device."""
    flash2_share: float
    """Speed of FlashAttention 2 relative to the best kernel on this device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEfficiency:
    """Efficiency of memory-bound kernels."""

    memory_share: float
    """Share of the memory bandwidth."""
    elements_per_unit_s: float
    """erf-GELU evaluations per second of one compute unit, for arithmetic-bound kernels."""
    fixed_s: float
    """Start and end of a kernel on the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeEfficiency:
    """All compute constants of one device."""

    sustained_clock: Mapping[str, float]
    """Speed under the load of training relative to the bursts of the benchmarks, keyed as ``gemm``."""
    gemm: Mapping[str, GemmEfficiency]
    """By width of the inputs: ``half`` (fp16, bf16; also tf32 and fp32) and ``fp8`` (also fp4)."""
    attention_forward: AttentionEfficiency
    attention_backward: AttentionEfficiency
    stream: StreamEfficiency
    provenance: str
    """Data behind the fit."""


def device_efficiency(device: Device) -> ComputeEfficiency:
    """Return the constants of ``device``: its own, or those of its architecture scaled to its measured ceiling."""
    fitted, lender = _lender(device)
    entry = _entry(lender)
    power = _power_ratio(device, lender)
    if fitted:
        return entry if power == 1.0 else replace(entry, sustained_clock=_slowed(entry.sustained_clock, power))
    scale, memory_scale = _ceiling_ratio(device, lender), _memory_ratio(device, lender)
    gemm = {key: replace(value, peak_share=min(1.0, value.peak_share * scale)) for key, value in entry.gemm.items()}
    return replace(
        entry,
        sustained_clock=_slowed(_borrowed_clock(device) or entry.sustained_clock, power),
        gemm=gemm,
        attention_forward=_scaled(entry.attention_forward, scale),
        attention_backward=_scaled(entry.attention_backward, scale),
        stream=replace(
            entry.stream,
            memory_share=min(1.0, entry.stream.memory_share * memory_scale),
            elements_per_unit_s=entry.stream.elements_per_unit_s * _vector_ratio(device, lender),
        ),
        provenance=compute_provenance(device),
    )


def _borrowed_clock(device: Device) -> Mapping[str, float] | None:
    """Return the known sustained clock of a device without own constants, or of its architecture."""
    clocks: Mapping[str, Mapping[str, float]] = _data()["sustained_clocks"]
    spelled = device.architecture.lower()
    known = [key for key in clocks if key == device.fitted_name or spelled.startswith(key)]
    return clocks[max(known, key=len)] if known else None


def compute_provenance(device: Device) -> str:
    """Return the source of the compute constants of ``device``, for outputs that distinguish fitted from borrowed."""
    fitted, lender = _lender(device)
    if fitted:
        return _entry(lender).provenance
    return f"{_UNCALIBRATED}: borrowed from {lender}, scaled by {_ceiling_ratio(device, lender):.2f}"


def constants_from(device: Device) -> str:
    """Return the kind of a device's compute constants.

    "own": fitted to its micro-benchmarks; "lent": by a device of its architecture; "foreign": no device of its
    architecture was fitted.
    """
    fitted, lender = _lender(device)
    spelled = device.architecture.lower()
    known = any(spelled.startswith(key) for key in _data()["architectures"])
    if not known or _entry(lender).provenance.startswith(_UNCALIBRATED):
        return "foreign"
    return "own" if fitted else "lent"


def _scaled(value: AttentionEfficiency, scale: float) -> AttentionEfficiency:
    return replace(value, peak_share=min(1.0, value.peak_share * scale))


def _lender(device: Device) -> tuple[bool, str]:
    """Return whether ``device`` has constants of its own, and the device with its constants."""
    data = _data()
    if device.fitted_name in data["devices"]:
        return True, device.fitted_name
    architectures: dict[str, str] = data["architectures"]
    spelled = device.architecture.lower()
    matching = [key for key in architectures if spelled.startswith(key)]
    return False, architectures[max(matching, key=len, default=_OTHER)]


# Ceilings are those of one best shape, found by search. The highest that a fitted surface confirms is A100's.
_TRUSTED_CEILING = 0.87


def _ceiling_ratio(device: Device, lender: str) -> float:
    """Return the ceiling of ``device`` (of fp32 if it has no other) relative to ``lender``; 1 if unknown."""
    ceiling = device.matmul_ceiling.get("bf16", device.matmul_ceiling.get("fp32"))
    lent = float(_data()["devices"][lender]["matmul_ceiling"])
    return min(ceiling, _TRUSTED_CEILING) / lent if ceiling else 1.0


# Clock under load against the power limit where this limits the clock: power falls with the square of the clock and
# faster (voltage follows it). H100 of 500 W against 700 W: published runs of torchtitan fit 0.83, one table.
_POWER_EXPONENT = 0.5


def _power_ratio(device: Device, lender: str) -> float:
    """Return the clock under load relative to ``lender``: below 1 for the same part with a lower power limit."""
    usual = _catalogued(lender)
    same = device.compute_units == usual.compute_units and device.peak_flops_per_s == usual.peak_flops_per_s
    if not same or device.watts is None or usual.watts is None:
        return 1.0
    return float(min(device.watts / usual.watts, 1.0) ** _POWER_EXPONENT)


def _vector_ratio(device: Device, lender: str) -> float:
    """Return the arithmetic of a unit of ``device`` relative to ``lender``."""
    # Units of other vendors are a few matrix engines: their vector units are assumed to have the lender's total rate.
    usual = _catalogued(lender)
    same = device.vendor == usual.vendor
    return 1.0 if same else max(usual.compute_units / device.compute_units, 1.0)


@functools.cache
def _catalogued(name: str) -> Device:
    return load_device(name)


def _slowed(clocks: Mapping[str, float], ratio: float) -> Mapping[str, float]:
    return {width: clock * ratio for width, clock in clocks.items()}


def _memory_ratio(device: Device, lender: str) -> float:
    """Return the streaming share of ``device`` relative to ``lender``."""
    return device.memory_efficiency / float(_data()["devices"][lender]["memory_efficiency"])


@functools.cache
def _data() -> dict[str, Any]:
    loaded: dict[str, Any] = package_yaml("forerun.simulator.costs", "data", "compute.yaml")
    return loaded


@functools.cache
def _entry(name: str) -> ComputeEfficiency:
    raw = _data()["devices"][name]
    return ComputeEfficiency(
        sustained_clock=raw["sustained_clock"],
        gemm={key: _gemm(value) for key, value in raw["gemm"].items()},
        attention_forward=_attention(raw["attention_forward"]),
        attention_backward=_attention(raw["attention_backward"]),
        stream=StreamEfficiency(**{f.name: raw["stream"][f.name] for f in fields(StreamEfficiency)}),
        provenance=raw["provenance"],
    )


def tiles_of(shares: Iterable[float]) -> tuple[tuple[int, int, float], ...]:
    """Return tiles with the speed of their class."""
    pairs = zip(shares, TILE_CLASSES, strict=True)
    return tuple((rows, columns, float(share)) for share, shapes in pairs for rows, columns in shapes)


def _gemm(raw: Mapping[str, Any]) -> GemmEfficiency:
    values = {f.name: raw[f.name] for f in fields(GemmEfficiency) if f.name != "tiles"}
    return GemmEfficiency(tiles=tiles_of(raw["tile_shares"]), **values)


def _attention(raw: Mapping[str, Any]) -> AttentionEfficiency:
    return AttentionEfficiency(**{f.name: raw[f.name] for f in fields(AttentionEfficiency)})
