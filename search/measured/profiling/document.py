"""A profile as a file with measured operators and collectives of one machine, and its use.

Rows have the shape (arguments of the cost rule), ``seconds`` (median), ``spread`` (half the quartiles' distance over
the median) and ``fitted``, the seconds of the catalogue's surface: the ratio of both scales the surface at unmeasured
shapes.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import yaml

from forerun.search.files.row_yaml import RowDumper
from forerun.search.measured.profiling.links import Short, with_measured_steps
from forerun.simulator.costs import Collective, collective_time_s
from forerun.simulator.costs.measured import MeasuredCosts, Samples
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.documents import Document, read_document, validate
from forerun.spaces.errors import RequestError
from forerun.spaces.files import write_text
from forerun.spaces.strategies import Context

C = TypeVar("C", bound=Context | GraphContext)

SCHEMA = 1
LARGEST = 16 << 20
_TAIL = 3
"""Columns after the shape: seconds, spread, fitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One measurement: ``name`` and ``shape`` as arguments of cost rules."""

    name: str
    shape: tuple[float, ...]
    seconds: float
    spread: float
    fitted_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Measurements of one machine.

    ``device``: the measured device; ``made``: method and place; ``skipped``: numbers of unmeasurable operators by
    reason.
    """

    source: str
    device: str
    made: Mapping[str, Any]
    operators: tuple[Line, ...]
    collectives: tuple[Line, ...]
    skipped: Mapping[str, int]

    def applied(self, context: C) -> tuple[C, tuple[str, ...]]:
        """Return the context with measurements in place of the catalogue, and notes.

        Raises:
            RequestError: the profile is of another device, or the nodes of the cluster differ.
        """
        cluster = context.cluster
        if cluster.groups:
            raise RequestError(
                f"{self.source} is a profile of one device, but the nodes of {cluster.name} differ; name a cluster of "
                "equal nodes, or leave --profile out"
            )
        if cluster.device.name != self.device:
            raise RequestError(
                f"{self.source} is a profile of {self.device}, but {cluster.name} has {cluster.device.name}; "
                "name a cluster of that device, or profile this one"
            )
        if self.collectives:
            cluster = _measured_links(cluster, self.collectives)
        if self.operators:
            cluster = replace(cluster, device=replace(cluster.device, measured=_costs(self.operators)))
        note = f"profile {self.source}: {len(self.operators)} operators and {len(self.collectives)} messages measured"
        return replace(context, cluster=cluster), (note,)


_WEIGHTS = (1.0, 0.3, 0.05)
"""Weights of size, ranks and stride in distances between messages; the rule covers ranks and stride itself."""


def _measured_links(cluster: Cluster, lines: Sequence[Line]) -> Cluster:
    """Return a cluster with measured latencies of steps, and measured ratios of messages to these."""
    for place in ("node", "network"):
        of_place = [line for line in lines if line.name.endswith(place)]
        shorts = [Short(kind=one.name.split()[0], shape=_three(one), seconds=one.seconds) for one in of_place]
        cluster = with_measured_steps(cluster, shorts, place)
    refitted = [
        replace(one, fitted_s=float(collective_time_s(cluster, cast(Collective, one.name.split()[0]), *one.shape)))
        for one in lines
    ]
    return replace(cluster, measured=_costs(refitted, _WEIGHTS))


def _three(line: Line) -> tuple[float, float, float]:
    size, ranks, stride = line.shape
    return size, ranks, stride


def _costs(lines: Iterable[Line], weights: tuple[float, ...] | None = None) -> MeasuredCosts:
    by_name: dict[str, list[Line]] = {}
    for line in lines:
        by_name.setdefault(line.name, []).append(line)
    return MeasuredCosts(
        {
            name: Samples(
                np.array([one.shape for one in of_operator]),
                np.array([one.seconds for one in of_operator]),
                np.array([one.fitted_s for one in of_operator]),
            )
            for name, of_operator in by_name.items()
        },
        weights,
    )


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile.

    Raises:
        RequestError: the file cannot be written.
    """
    document = {
        "profile": SCHEMA,
        "device": profile.device,
        "made": dict(profile.made),
        "skipped": dict(profile.skipped),
        "operators": _tables(profile.operators),
        "collectives": _tables(profile.collectives),
    }
    text = yaml.dump(document, Dumper=RowDumper, sort_keys=False, allow_unicode=True, width=200)
    write_text(path, text)


def _tables(lines: Iterable[Line]) -> dict[str, list[list[float]]]:
    tables: dict[str, list[list[float]]] = {}
    for one in sorted(lines, key=lambda line: (line.name, line.shape)):
        tail = [float(f"{value:.5g}") for value in (one.seconds, one.spread, one.fitted_s)]
        shape = [int(value) if value == int(value) else float(f"{value:.7g}") for value in one.shape]
        tables.setdefault(one.name, []).append([*shape, *tail])
    return tables


SECONDS, LARGEST_EXTENT = (1e-12, 1e6), 1e18
"""Largest seconds of a measurement, and largest number in a shape (bytes, rows, ranks)."""


def read_profile(path: Path) -> Profile:
    """Read a profile that ``forerun profile`` wrote.

    Raises:
        RequestError: the file cannot be read or is not a profile.
    """
    from pydantic import BaseModel, ConfigDict

    class ProfileDocument(BaseModel):
        """A complete profile file."""

        model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
        profile: int
        device: str
        made: dict[str, Any]
        skipped: dict[str, int]
        operators: dict[str, list[list[int | float]]]
        collectives: dict[str, list[list[int | float]]]

    document = read_document(path, max_bytes=LARGEST, own=True)
    data = validate(document, ProfileDocument)
    if data.profile != SCHEMA:
        raise RequestError(f"{path}: profile {data.profile} is unknown; this version reads {SCHEMA}")
    return Profile(
        source=path.name,
        device=data.device,
        made=data.made,
        skipped=data.skipped,
        operators=tuple(_lines(document, "operators", data.operators)),
        collectives=tuple(_lines(document, "collectives", data.collectives)),
    )


def _in(value: float, within: tuple[float, float]) -> bool:
    return within[0] <= value <= within[1]


def _lines(document: Document, part: str, tables: Mapping[str, list[list[float]]]) -> Iterable[Line]:
    for name, rows in tables.items():
        for place, row in enumerate(rows):
            where = document.where((part, name, place))
            if len(row) <= _TAIL or len(row) != len(rows[0]):
                raise RequestError(f"{where}: a row has a shape, seconds, spread and fitted seconds, as the others")
            *shape, seconds, spread, fitted = row
            if part == "collectives" and (len(shape) != 3 or not name.endswith((" node", " network"))):
                raise RequestError(
                    f"{where}: a message has bytes, ranks and stride, and ran in a node or over the network"
                )
            if not (_in(seconds, SECONDS) and _in(fitted, SECONDS) and 0 <= spread <= 1e6):
                raise RequestError(
                    f"{where}: seconds must be between {SECONDS[0]:g} and {SECONDS[1]:g}, and spread above 0"
                )
            least = 0 if part == "operators" else 1
            if not all(least <= value <= LARGEST_EXTENT for value in shape):
                raise RequestError(f"{where}: numbers of a shape must be between {least} and {LARGEST_EXTENT:g}")
            yield Line(
                name=name,
                shape=tuple(map(float, shape)),
                seconds=float(seconds),
                spread=float(spread),
                fitted_s=float(fitted),
            )
