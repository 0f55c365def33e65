"""One node of a Chakra execution trace (MLCommons schema et_def.proto) as a Protobuf message."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from forerun.spaces import protobuf as pb
from forerun.spaces.files import write_text, written

VERSION = "0.0.4"
"""Version of the schema, as its own generator writes it."""
MOST_DEVICES = 4096
"""Limit of devices for files; more would be gigabytes."""
COMPUTE, SEND_NODE, RECEIVE_NODE, COLLECTIVE = 4, 5, 6, 7
"""Kinds of nodes."""
COLLECTIVES = {
    "all_reduce": 0,
    "all_gather": 2,
    "all_to_all": 6,
    "reduce_scatter": 7,
}
"""Numbers of collectives in the schema."""


def encoded(
    number: int,
    name: str,
    kind: int,
    before: Iterable[int],
    *,
    start_s: float,
    end_s: float,
    micros: int = 0,
    size_bytes: int = 0,
    collective: int = 0,
    group: int = 0,
    ends: tuple[int, int] = (0, 0),
    tag: int = 0,
) -> bytes:
    """Return a node as a message; ``ends``: sending and receiving device, ``group``: number of its group."""
    attributes = [
        _attribute("is_cpu_op", 27, 0),
        _seconds("forerun_start_s", start_s),
        _seconds("forerun_s", end_s - start_s),
    ]
    if kind != COMPUTE:
        attributes.append(_attribute("comm_size", 13, size_bytes))
    if kind == COLLECTIVE:
        attributes.append(_attribute("comm_type", 9, collective))
        attributes.append(pb.text(1, "pg_name") + pb.text(29, str(group)))
    elif kind in (SEND_NODE, RECEIVE_NODE):
        attributes.append(_attribute("comm_src", 11, ends[0]))
        attributes.append(_attribute("comm_dst", 11, ends[1]))
        attributes.append(_attribute("comm_tag", 11, tag))
    return b"".join(
        (
            pb.number(1, number),
            pb.text(2, name),
            pb.number(3, kind),
            pb.numbers(5, tuple(before)),
            pb.number(7, micros),
            *(pb.message(10, attribute) for attribute in attributes),
        )
    )


def write_device(folder: Path, device: int, nodes: Iterable[bytes]) -> None:
    """Write the trace of a device.

    Raises:
        RequestError: the file cannot be written.
    """
    with written(folder / f"forerun.{device}.et") as file:
        file.write(pb.delimited(pb.text(1, VERSION)))
        file.writelines(map(pb.delimited, nodes))


def write_groups(folder: Path, groups: Mapping[tuple[int, ...], int]) -> None:
    """Write the devices of every group by its number.

    Raises:
        RequestError: the file cannot be written.
    """
    named = {str(number): list(devices) for devices, number in groups.items()}
    write_text(folder / "forerun.groups.json", json.dumps(named, indent=1) + "\n")


def group_of(groups: dict[tuple[int, ...], int], members: Sequence[int]) -> int:
    """Return the number of a group, a new one for new members: ASTRA-sim reserves 0 for all devices."""
    return groups.setdefault(tuple(members), len(groups) + 1)


def _attribute(name: str, field: int, value: int) -> bytes:
    return pb.text(1, name) + pb.number(field, value, always=True)


def _seconds(name: str, value: float) -> bytes:
    return pb.text(1, name) + pb.double(3, value)
