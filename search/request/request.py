"""The request of a user, without defaults."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from forerun.search.request.kinds import TRANSFORMERS, kind_named
from forerun.spaces.fields import fields_from
from forerun.spaces.opgraph.batch import PerDevice, parse_batch

DEFAULT_OBJECTIVE = "throughput"
DEFAULT_TOP = 10
FRONT_TOP = 1000
"""Default number of rows of a Pareto front, large because a cut front hides choices."""
ONLY_GRAPHS = ("seconds_per_sample", "allow_generic", "optimizer", "inference")
"""Fields that only operator graphs have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A question of a user; None for fields that are not given."""

    model: str
    """Catalogue name or file (YAML, ``config.json``, .onnx, .pt2, .net)."""
    cluster: str
    """Catalogue name or file (YAML, NCCL topology XML, text of ``nvidia-smi topo -m``)."""
    global_batch: int | PerDevice
    """Sequences of a step; for operator graphs samples, or samples of each device."""
    seq_len: int | None = None
    """Tokens per sequence; None for operator graphs, which have none."""
    gpus: str | None = None
    """Devices: a count or a range (``64..512``)."""
    usd_per_hour: float | None = None
    """Most money per hour, which bounds the devices at ``usd_per_gpu_hour``."""
    usd_per_gpu_hour: float | str | None = None
    """Price of one device for one hour, in USD, or ``sky:CLOUD``: SkyPilot's price."""
    precision: str | None = None
    """Precision of matrix products (``bf16``, ``fp8``, ...)."""
    framework: str | None = None
    """Name, with ``@VERSION`` of an earlier release, or a file."""
    switches: Mapping[str, str] = field(default_factory=dict)
    """Settings of the framework that differ from the profile's defaults, by name (``{"bf16-grads": "on"}``)."""
    all_variants: bool = False
    """Whether strategies with equal degrees have separate rows."""
    tokens: float | None = None
    """Length of the whole training, in tokens."""
    train_within_s: float | None = None
    """Longest time that the training of ``tokens`` may take, in seconds."""
    train_usd: float | None = None
    """Most money that the training may cost, in USD."""
    oom_risk: float | None = None
    """Highest risk (0 to 1) of running out of memory at which a strategy counts as fitting."""
    goodput: str | None = None
    """Facts about failures and checkpoints (``failures=2e-5,recovery=10min``, empty for the defaults), under which
    strategies rank by effective throughput."""
    moe_imbalance: float | None = None
    """Tokens of the busiest expert rank over the mean, 1.0 or more."""
    lora: str | None = None
    """Adapters trained with frozen matrices (``forerun.spaces.models.tuning``)."""
    freeze: str | None = None
    """Frozen parts (``forerun.spaces.models.tuning``)."""
    documents: str | None = None
    """Documents of packed sequences: tokens of each, or a file with a length per line."""
    objective: str | None = None
    """A name, or several with commas between them for their Pareto front."""
    top: int | None = None
    """Most rows to return."""
    overrides: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """The user's choices by axis."""
    profile: str | None = None
    """File that ``forerun profile`` wrote."""
    calibration: str | None = None
    """File that ``forerun calibrate`` wrote."""
    ignored_config_fields: tuple[str, ...] = ()
    """Fields of a Hugging Face configuration that are known not to change the cost."""
    seconds_per_sample: float | None = None
    """Operator graphs: forward and backward pass of one sample as measured on one device, in seconds."""
    optimizer: str | None = None
    """Operator graphs: the optimizer, in place of the framework's."""
    allow_generic: bool = False
    """Operator graphs: imported operators without a rule are costed by their bytes and operations."""
    shapes: tuple[str, ...] = ()
    """Operator graphs: extents of inputs that an ONNX file leaves open, like ``x=3x640x640``."""
    inference: bool = False
    """Operator graphs: forward passes alone."""
    user_defaults: tuple[str, ...] = ()
    """Values from a file of user defaults, as parts of a sentence."""

    def to_json(self) -> dict[str, Any]:
        """Return the request as plain data, without empty fields (except fields of operator graphs)."""
        graph = kind_named(self.model) is not TRANSFORMERS
        kept = (*ONLY_GRAPHS, "gpus", "usd_per_gpu_hour") if graph else ()
        data = {key: value for key, value in dataclasses.asdict(self).items() if value is not None or key in kept}
        data["overrides"] = {axis: [str(value) for value in values] for axis, values in self.overrides.items()}
        if isinstance(self.global_batch, PerDevice):
            data["global_batch"] = str(self.global_batch)
        del data["user_defaults"]
        for name in ("switches", "all_variants", "allow_generic", "inference", "shapes"):
            if not data[name] and (name not in kept or name == "inference"):
                del data[name]
        return data

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Return the request of a ``to_json`` document, or of a setting's, whose further keys are ignored.

        Raises
        ------
        KeyError, TypeError, ValueError
            A value is missing, or has another form.
        """
        stated = {name: value for name, value in data.items() if value is not None}
        price = stated.get("usd_per_gpu_hour")
        return fields_from(
            cls,
            stated,
            usd_per_gpu_hour=price if price is None or isinstance(price, str) else float(price),
            global_batch=parse_batch(str(data["global_batch"])),
            overrides={str(axis): list(values) for axis, values in stated.get("overrides", {}).items()},
            switches=set_switches(data),
            user_defaults=(),
        )


def set_switches(data: Mapping[str, Any]) -> dict[str, str]:
    """Return the switches of a request or a setting as plain data, without switches turned on by the search."""
    free = {str(setting_text).partition("=")[0] for setting_text in data.get("free_switches") or ()}
    return {str(name): str(setting) for name, setting in (data.get("switches") or {}).items() if name not in free}
