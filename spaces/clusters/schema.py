"""Schema of a user's cluster document. This module imports pydantic: load it only to read such a document.

A user's cluster needs a dozen lines::

    title: Our H100 machines
    device: h100-sxm            # a catalogued device, or the keys of one
    devices_per_node: 8
    max_devices: 256
    network: {kind: roce, nics_per_node: 8, nic_rate: 400Gb/s, leaf_nodes: 16, oversubscription: 2}
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    StrictBool,
    Tag,
    field_validator,
    model_validator,
)

from forerun.spaces.clusters.device import device_names, read_entry
from forerun.spaces.errors import RequestError, unknown
from forerun.spaces.units import parse_bytes, parse_flops, parse_rate, parse_seconds, with_unit


def _quantity(parse: Callable[[str | float], float]) -> BeforeValidator:
    """Return a validator from a text with a unit to SI units; a bare number could hide a factor of 1e9."""

    def convert(value: Any) -> float:
        try:
            number = with_unit(parse, str(value))
        except RequestError as error:
            raise ValueError(str(error)) from None
        if number <= 0:
            raise ValueError(f"this must be above 0, but got {value}")
        return number

    return BeforeValidator(convert)


Bytes = Annotated[float, _quantity(parse_bytes)]
Rate = Annotated[float, _quantity(parse_rate)]
Flops = Annotated[float, _quantity(parse_flops)]
Seconds = Annotated[float, _quantity(parse_seconds)]
Share = Annotated[float, Field(ge=1e-6, le=1)]
Count = Annotated[int, Field(ge=1, le=10_000_000, strict=True)]
Index = Annotated[int, Field(ge=0, strict=True)]
Price = Annotated[float, Field(ge=1e-9, le=1e30)]


def _not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("this is blank")
    return value


Word = Annotated[str, AfterValidator(_not_blank)]


def _form(value: Any) -> str:
    """Return the form (of two) of a value, so that errors are about this form only."""
    return "a name" if isinstance(value, str) else "its keys"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class ScaleUpDocument(_Strict):
    """The links of the scale-up domain; omitted keys are derived from the device."""

    kind: Literal["nvswitch", "nvlink-mesh", "xgmi-mesh", "roce-mesh", "torus"] | None = None
    size: Count | None = None
    rate: Rate | None = None
    latency: Seconds | None = None
    in_switch: StrictBool | None = None
    mesh: (
        Annotated[
            Annotated[Literal["cube"], Tag("a name")] | Annotated[list[tuple[Index, Index, Count]], Tag("its keys")],
            Discriminator(_form),
        ]
        | None
    ) = None
    torus: list[Count] | None = None


class HostDocument(_Strict):
    """The PCIe tree of a node; ``memory``: size of host memory; ``memory_rate``: bandwidth that processors achieve."""

    rate: Rate | None = None
    sockets: Literal[1, 2] | None = None
    socket_rate: Rate | None = None
    latency: Seconds | None = None
    staged_rate: Rate | None = None
    peer_access: StrictBool | None = None
    switch_devices: Count | None = None
    switch_rate: Rate | None = None
    memory: Bytes | None = None
    memory_rate: Rate | None = None


class TierDocument(_Strict):
    """Nodes connected below further switches, and the bandwidth that leaves them."""

    nodes: Count
    oversubscription: Annotated[float, Field(ge=1, le=1000)] | None = None


class NetworkDocument(_Strict):
    """The links between nodes."""

    kind: Literal["infiniband", "roce", "efa", "slingshot", "omnipath", "ethernet"] | None = None
    nics_per_node: Count | None = None
    nic_rate: Rate | None = None
    copied_rate: Rate | None = None
    latency: Seconds | None = None
    oversubscription: Annotated[float, Field(ge=1)] | None = None
    leaf_nodes: Count | None = None
    tiers: list[TierDocument] | None = Field(default=None, max_length=8)
    direct: StrictBool | None = None


class LinkDocument(_Strict):
    """All scale-up links of one device together, in one direction."""

    kind: Literal["nvlink", "xgmi", "xelink", "roce", "ici"]
    rate: Rate
    count: Count = 1


def _known_device(value: Any) -> Any:
    if value not in device_names():
        raise ValueError(str(unknown("device", value, device_names())))
    return value


class DeviceDocument(_Strict):
    """A device with the keys of a catalogue file; omitted keys and constants are those of its ``like``."""

    name: Word
    like: Annotated[str, BeforeValidator(_known_device)] | None = None
    title: str | None = None
    vendor: str | None = None
    architecture: Word | None = None
    memory: Bytes
    memory_rate: Rate
    peak: dict[Literal["bf16", "fp16", "fp32", "tf32", "fp8", "mxfp8", "fp4", "nvfp4"], Flops] = Field(min_length=1)
    compute_units: Count
    matmul_ceiling: dict[str, Share] = Field(min_length=1)
    memory_efficiency: Share
    watts: Price | None = None
    usd_per_hour: tuple[Price, Price] | None = None
    link: LinkDocument | None = None
    host_rate: Rate
    peer_access: StrictBool | None = None
    host_speed: Annotated[float, Field(gt=0)] | None = None
    nic_rate: Rate | None = None
    notes: str | None = None
    sources: dict[str, str] | None = None

    @model_validator(mode="before")
    @classmethod
    def _inherit(cls, data: Any) -> Any:
        like = data.get("like") if isinstance(data, dict) else None
        return {**read_entry("devices", _known_device(like), "device"), **data} if isinstance(like, str) else data


Factor = Annotated[float, Field(ge=1, le=100)]


class OverlapDocument(_Strict):
    """``Overlap``; ``collective_units``: multiprocessors of a collective, in place of ``computation``."""

    computation: Factor | None = None
    collective_units: Count | None = None
    communication: Factor | None = None

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.computation is not None and self.collective_units is not None:
            raise ValueError("collective_units say how much slower computation is; give either them or computation")
        return self


class ClusterDocument(_Strict):
    """A cluster of equal nodes; ``topology``: file, relative to this one, with the wiring of a node."""

    topology: str | None = None

    name: str | None = None
    title: str | None = None
    source: str | None = None
    device: Annotated[
        Annotated[str, BeforeValidator(_known_device), Tag("a name")] | Annotated[DeviceDocument, Tag("its keys")],
        Discriminator(_form),
    ]
    devices_per_node: Count
    max_devices: Count | None = None
    scale_up: (
        Annotated[
            Annotated[Literal["none"], Tag("a name")] | Annotated[ScaleUpDocument, Tag("its keys")],
            Discriminator(_form),
        ]
        | None
    ) = None
    host: HostDocument | None = None
    network: NetworkDocument | None = None
    overlap: OverlapDocument | None = None
    collectives: bool = True
    usd_per_device_hour: Price | None = None


class GroupDocument(_Strict):
    """One group of equal nodes: a catalogued cluster, the path of its file, or its keys."""

    cluster: Annotated[
        Annotated[str, Tag("a name")] | Annotated[ClusterDocument, Tag("its keys")], Discriminator(_form)
    ]
    devices: Count
    stages: Count | None = None


class GroupsDocument(_Strict):
    """Groups of different nodes, in the order of their pipeline stages."""

    name: str | None = None
    title: str | None = None
    source: str | None = None
    groups: list[GroupDocument] = Field(max_length=64)

    @field_validator("groups")
    @classmethod
    def _differ(cls, groups: list[GroupDocument]) -> list[GroupDocument]:
        if len(groups) < 2:
            raise ValueError(f"groups are two or more, but got {len(groups)}; name the cluster of one alone")
        return groups
