"""Use of the hardware by training software, for operator graphs; the profiles are catalogue data."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any

from forerun.spaces.clusters.device import Device
from forerun.spaces.documents.package_data import package_yaml
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.escaping import quoted
from forerun.spaces.units import parse_bytes, parse_rate, with_unit

DEFAULT_PROFILE = "pytorch-ddp"


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphProfile:
    """Behaviour of a framework. Times are of the host and per device unless said otherwise."""

    name: str
    source: str
    operator_host_s: float = 0.0
    """Seconds to issue one operator in one direction; the host bounds the step when kernels are shorter."""
    piece_host_s: float = 0.0
    """Seconds to join or cut one rank's piece of a gathered tensor."""
    overlap: float = 0.0
    """Share (0 to 1) of the backward pass that may hide the exchange of gradients (0: it follows the pass)."""
    bucket_bytes: float = 25 * 2.0**20
    """Bytes of gradients that close a bucket (one all-reduce)."""
    first_bucket_bytes: float | None = None
    """The same for the first bucket, at most ``bucket_bytes`` (None: like the others)."""
    strict_buckets: bool = False
    """Whether a bucket is closed before it would exceed its size."""
    jitter: float = 0.0
    """Deviation of a device's steps over their mean: all devices wait for the slowest (order statistics)."""
    blocked_share: float = 0.0
    """Share of the time of an empty all-reduce for which its launch stops overlapped computation."""
    rendezvous_s: float = 0.0
    """Seconds in which several nodes agree on an exchange and pack it (for example Horovod's coordinator)."""
    node_step_s: float = 0.0
    """Further seconds per additional node, for each group of replicas that shares its ports."""
    all_reduce_share: float = 1.0
    """Rate between nodes of a layer's all-reduces, relative to the collective rule."""
    gradient_share: float = 1.0
    """Rate of the gradients' all-reduces, likewise."""
    staged_bytes_per_s: float | None = None
    """Rate of halos, tail gathers and gradients between the parts of an image that are copied through host memory.
    Copies are sequential; None where devices exchange them directly."""
    storage_bytes_per_s: float | None = None
    """Rate at which one node reads from storage; None: never a limit."""
    shares_hybrid_weights: bool = True
    """Whether data+filter exchanges only a device's part of the weights."""
    gathers_channel_gradient: bool = True
    """Whether channel splits gather input gradients instead of summing padded ones."""
    winograd: bool = True
    """Whether fp32 convolutions use minimal filtering."""
    fuses_elementwise: bool = False
    """Whether an activation after a norm or a convolution has no pass of its own."""
    optimizer_moves: float = 5.0
    """Reads and writes per parameter of the update."""
    state_elements: float = 2.0
    """fp32 values stored per parameter in addition to it (gradient and momentum: 2)."""
    dense_tables: bool | None = None
    """Whether gradients and updates of embedding tables cover all rows (None: as the model says)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphSwitch:
    """A setting of a profile's field ``sets``: one of ``settings``, with its value, or a quantity (``example``)."""

    name: str
    sets: str
    settings: Mapping[str, float | bool] = field(default_factory=dict)
    parse: Callable[[str | float], float] = parse_bytes
    example: str = ""

    def read(self, text: str) -> str:
        """Return a setting in its stored form.

        Raises:
            RequestError: the setting does not exist.
        """
        self.value(text)
        return text

    def value(self, text: str) -> float | bool:
        """Return the value of a setting.

        Raises:
            RequestError: the setting does not exist.
        """
        if text in self.settings:
            return self.settings[text]
        if self.settings:
            raise RequestError(f"{self.name} is {' or '.join(self.settings)}, but got {quoted(text)}")
        try:
            value = with_unit(self.parse, text)
        except RequestError:
            value = 0.0
        if not value:
            raise RequestError(f"{self.name} is above 0, like {self.example}, but got {quoted(text)}")
        return value


GRAPH_SWITCHES: Mapping[str, GraphSwitch] = {
    switch.name: switch
    for switch in (
        GraphSwitch(name="gradient-overlap", sets="overlap", settings={"on": 1.0, "off": 0.0}),
        GraphSwitch(name="bucket", sets="bucket_bytes", example="50MiB"),
        GraphSwitch(name="table-gradients", sets="dense_tables", settings={"rows": False, "dense": True}),
        GraphSwitch(name="storage", sets="storage_bytes_per_s", parse=parse_rate, example="2GB/s"),
    )
}


def with_graph_switches(profile: GraphProfile, switches: Mapping[str, str]) -> GraphProfile:
    """Return a profile with other settings, by name (``GRAPH_SWITCHES``).

    Raises:
        RequestError: the switch does not exist, or does not have the setting.
    """
    for name, setting in switches.items():
        if name not in GRAPH_SWITCHES:
            raise unknown("switch", name, GRAPH_SWITCHES)
        switch = GRAPH_SWITCHES[name]
        values: dict[str, Any] = {switch.sets: switch.value(setting)}
        profile = replace(profile, **values)
    return profile


OPTIMIZERS: Mapping[str, tuple[float, float]] = {"sgd": (1.0, 3.0), "momentum": (2.0, 5.0), "adam": (3.0, 7.0)}
"""By optimizer: fp32 values stored per parameter in addition to it, and values read and written by its update. The
gradient is one of the stored values. Parameter and gradient are read, the parameter written, and each state read and
written."""


def with_optimizer(profile: GraphProfile, name: str | None) -> GraphProfile:
    """Return a profile with another optimizer; None: unchanged.

    Raises:
        RequestError: the optimizer does not exist.
    """
    if name is None:
        return profile
    if name not in OPTIMIZERS:
        raise unknown("optimizer", name, OPTIMIZERS)
    states, moves = OPTIMIZERS[name]
    return replace(profile, state_elements=states, optimizer_moves=moves)


def graph_profile_names() -> tuple[str, ...]:
    """Names of all profiles for operator graphs."""
    return tuple(sorted(_data()))


@lru_cache(maxsize=16)
def load_graph_profile(name: str) -> GraphProfile:
    """Return the profile called ``name``.

    Raises:
        RequestError: it does not exist; the text names the known ones.
    """
    data = _data()
    if name not in data:
        raise unknown("framework for operator graphs", name, data)
    known = {field.name for field in fields(GraphProfile)}
    entry = data[name]
    stray = set(entry) - known
    if stray:
        raise ValueError(f"profile {name} has keys that are not fields: {sorted(stray)}")
    return GraphProfile(name=name, **entry)


@lru_cache(maxsize=1)
def _data() -> Mapping[str, Mapping[str, Any]]:
    loaded: dict[str, dict[str, Any]] = package_yaml("forerun.spaces.opgraph", "data", "profiles.yaml")
    return loaded


def default_precision(device: Device) -> str:
    """Return the default precision of convolutions in frameworks: tf32 where the device has it, otherwise fp32.

    Raises:
        RequestError: the device has neither.
    """
    for precision in ("tf32", "fp32"):
        if precision in device.peak_flops_per_s:
            return precision
    known = ", ".join(device.peak_flops_per_s)
    raise RequestError(f"{device.title} has neither tf32 nor fp32 rates; add --precision, one of {known}")
