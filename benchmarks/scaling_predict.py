"""Predicts rows of data-parallel scaling tables: what one GPU takes, and what a group of them loses.

A step of N workers is the slowest of them, plus what of the exchange the backward pass does not hide, plus what the
software adds. Three constants say the last; none belongs to a source or a model.
"""

import csv
import re
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from scaling_rows import Skipped, Software, described, machine, profile_of, software

from forerun.simulator.modes import GradientProfile, NicNetwork, TrainingMode
from forerun.simulator.modes.analytic import exposed_all_reduce_s
from forerun.simulator.modes.events import event_prediction
from forerun.simulator.modes.network import HOST_BYTES_PER_S, ClusterNetwork
from forerun.simulator.opgraph.messages import rendezvous_s, straggler_wait_s
from forerun.spaces.clusters import Cluster
from forerun.spaces.opgraph.profile import GraphProfile, load_graph_profile

STEPS = 4
"""Steps of an event-level run: synchronous ones without jitter are all alike."""
FILES = ("dp_dlperf", "dp_scaling", "dp_lambda_tf", "paradl")
USUAL_BATCH = {"fp32": 128.0, "tf32": 256.0, "fp16": 256.0}
"""Samples per GPU where a table does not say them (NVIDIA's ResNet-50 scripts)."""
PRECISIONS = {"fp32": "fp32", "tf32": "tf32", "fp16": "fp16", "amp": "fp16", "mixed fp16": "fp16"}


@dataclass(frozen=True, kw_only=True)
class Constants:
    """``jitter``: deviation of a GPU's steps over their mean. ``blocked_share``: share of an empty all-reduce that the
    backward pass waits for each. ``ddp_rendezvous_s``, ``horovod_rendezvous_s``: rendezvous of several nodes, per step.
    ``token_jitter``: jitter where a batch is counted in tokens, so that its sentences differ in length.

    All but the last are those of the profiles, where their origin stands; that is fitted here. ChainerMN has its own
    (benchmarks/fit/chainermn.py).
    """

    jitter: float = load_graph_profile("pytorch-ddp").jitter
    blocked_share: float = load_graph_profile("pytorch-ddp").blocked_share
    ddp_rendezvous_s: float = load_graph_profile("pytorch-ddp").rendezvous_s
    horovod_rendezvous_s: float = load_graph_profile("horovod").rendezvous_s
    token_jitter: float = 0.12

    def of(self, rules: GraphProfile) -> GraphProfile:
        """Return the profile of a row's software with these constants."""
        if rules.name == "chainermn":
            return rules
        rendezvous_s = self.horovod_rendezvous_s if rules.name == "horovod" else self.ddp_rendezvous_s
        return replace(rules, jitter=self.jitter, blocked_share=self.blocked_share, rendezvous_s=rendezvous_s)


@dataclass(frozen=True, kw_only=True)
class Case:
    """A measured row of several GPUs. ``efficiency``: throughput per GPU over that of one. The rest is what its
    prediction is made of: ``one_s`` a measured step of one GPU (``one_rate``: its samples per second), ``known_s`` the
    same predicted (None: the device or the model is not described well enough); ``shown_s``: exchange that a step
    shows, by blocked share."""

    file: str
    source: str
    hardware: str
    model: str
    framework: str
    precision: str
    gpus: int
    nodes: int
    server: bool
    tokens: bool
    efficiency: float
    one_s: float
    one_rate: float
    known_s: float | None
    compute_share: float
    rules: GraphProfile
    shown_s: Callable[[float], float]

    def predicted(self, constants: Constants, *, one_s: float | None = None) -> float:
        """Return the predicted efficiency: one GPU's step over that of all."""
        step_s = self.one_s if one_s is None else one_s
        rules = constants.of(self.rules)
        if self.tokens:
            rules = replace(rules, jitter=constants.token_jitter)
        lost_s = self.shown_s(rules.blocked_share)
        lost_s += float(straggler_wait_s(rules, step_s * self.compute_share, self.gpus))
        if not self.server:
            lost_s += float(rendezvous_s(rules, self.nodes))
        return step_s / (step_s + lost_s)

    def error(self, constants: Constants) -> float:
        """Relative error of the efficiency, one GPU's step being given."""
        return self.predicted(constants) / self.efficiency - 1

    def blind_error(self, constants: Constants) -> float | None:
        """Relative error of the efficiency, nothing being given; None where one GPU cannot be predicted."""
        if self.known_s is None:
            return None
        return self.predicted(constants, one_s=self.known_s) / self.efficiency - 1

    def absolute(self, constants: Constants) -> float | None:
        """Relative error of the throughput, nothing being given; None where one GPU cannot be predicted."""
        if self.known_s is None:
            return None
        rate = self.predicted(constants, one_s=self.known_s) / self.known_s
        return rate / (self.efficiency / self.one_s) - 1


class Remembered:
    """A cluster's network that remembers its all-reduces: tables ask for the same ones over and over."""

    ring = False

    def __init__(self, cluster: Cluster, rules: GraphProfile) -> None:
        self.real = ClusterNetwork(cluster=cluster, rules=rules)
        self.worker_bytes_per_s, self.server_bytes_per_s = self.real.worker_bytes_per_s, self.real.server_bytes_per_s
        self.latency_s = self.real.latency_s
        self.known: dict[tuple[float, int], float] = {}
        self.blocked_share = rules.blocked_share

    def all_reduce_s(self, size_bytes: float, workers: int) -> float:
        """As the cluster's."""
        key = (size_bytes, workers)
        if key not in self.known:
            self.known[key] = self.real.all_reduce_s(size_bytes, workers)
        return self.known[key]

    def blocked_s(self, workers: int) -> float:
        """As the cluster's, with the share that is asked for."""
        return self.blocked_share * self.all_reduce_s(1.0, workers)

    def rendezvous_s(self, workers: int) -> float:
        """As the cluster's."""
        return self.real.rendezvous_s(workers)


_NETWORKS: dict[tuple[str, int, str], Remembered] = {}


def network(cluster: Cluster, rules: GraphProfile) -> Remembered:
    """Return the one network of a cluster and a software."""
    return _NETWORKS.setdefault((cluster.name, cluster.max_devices, rules.name), Remembered(cluster, rules))


def read(folder: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of all tables that are there, with the table's name."""
    for name in FILES:
        path = folder / f"{name}.csv"
        if path.exists():
            with path.open(newline="", encoding="utf-8") as file:
                yield from ({**row, "file": name} for row in csv.DictReader(file))


def cases(rows: Iterable[Mapping[str, str]], skipped: dict[str, int]) -> list[Case]:
    """Return all rows of several GPUs that can be compared with one GPU; counts the others by reason."""
    groups: dict[tuple[str, ...], list[Mapping[str, str]]] = {}
    found: list[Case] = []
    for row in rows:
        if row["file"] == "paradl":
            found += _paradl(row, skipped)
        else:
            groups.setdefault(_key(row), []).append(row)
    for members in groups.values():
        one = [float(row["throughput_samples_per_s"]) for row in members if row["gpus"] == "1"]
        for row in members:
            if row["gpus"] == "1":
                continue
            try:
                if not one:
                    raise Skipped("no row of one GPU to compare with")
                found.append(_case(row, statistics.median(one)))
            except Skipped as reason:
                skipped[str(reason)] = skipped.get(str(reason), 0) + 1
    return found


def _key(row: Mapping[str, str]) -> tuple[str, ...]:
    """Return what rows of one scaling curve share. Servers may grow with the workers."""
    update = (row["variable_update"].split() or [""])[0]
    return (
        *(row[name] for name in ("file", "source", "hardware", "model_name", "framework", "precision")),
        row["batch_per_gpu"],
        update,
        row.get("data", ""),
    )


def _case(row: Mapping[str, str], one: float) -> Case:
    precision = PRECISIONS.get(row["precision"].lower(), "fp32")
    gpus, nodes = int(row["gpus"]), int(row["nodes"] or 1)
    cluster = machine(row["hardware"], nodes, row["inter_link"])
    how = software(row["framework"], row["precision"], row["variable_update"])
    first = re.match(r"\s*([\d.]+)", row["batch_per_gpu"])
    batch = float(first[1]) if first else USUAL_BATCH[precision]
    profile, exact = profile_of(row["model_name"], batch, cluster, precision, fused=how.fused)
    known_s = profile.step_s if exact and described(row["hardware"], cluster) else None
    one_s = batch / one
    sent = _on_the_wire(profile.lasting(one_s), how.wire_bytes)
    servers = int(float(row.get("parameter_servers") or 1))
    shown_s = _servers(sent, cluster, how, gpus, nodes, servers) if how.server else _reduced(sent, cluster, how, gpus)
    return Case(
        file=row["file"],
        source=row["source"].removeprefix("NVIDIA DeepLearningExamples/").removesuffix("/README.md"),
        hardware=row["hardware"],
        model=row["model_name"],
        framework=row["framework"],
        precision=precision,
        gpus=gpus,
        nodes=nodes,
        server=how.server,
        tokens="Translation" in row["source"],
        efficiency=float(row["throughput_samples_per_s"]) / gpus / one,
        one_s=one_s,
        one_rate=one,
        known_s=known_s,
        compute_share=sent.compute_s / sent.step_s,
        rules=how.rules,
        shown_s=shown_s,
    )


def _paradl(row: Mapping[str, str], skipped: dict[str, int]) -> list[Case]:
    """Return a data-parallel row of ParaDL: its one-GPU step is the compute part that it reports."""
    part = re.search(r"measured compute part ([\d.]+) ms", row["notes"])
    if "_data_" not in row["case_id"] or part is None or not row["measured_iter_ms"]:
        skipped["not data parallel, or without its compute part"] = (
            skipped.get("not data parallel, or without its compute part", 0) + 1
        )
        return []
    gpus, one_s = int(row["gpus"]), float(part[1]) / 1e3
    cluster = machine(row["hardware"] + " abci", 1, "")
    how = software(row["framework"], row["precision"], "")
    profile, _ = profile_of(row["model_name"], float(row["micro_batch"]), cluster, "fp32", fused=how.fused)
    sent = profile.lasting(one_s)
    return [
        Case(
            file="paradl",
            source="paraDL tech report",
            hardware="ABCI V100",
            model=row["model_name"],
            framework=row["framework"],
            precision="fp32",
            gpus=gpus,
            nodes=-(-gpus // int(row["gpus_per_node"])),
            server=False,
            tokens=False,
            efficiency=one_s / (float(row["measured_iter_ms"]) / 1e3),
            one_s=one_s,
            one_rate=float(row["micro_batch"]) / one_s,
            known_s=profile.step_s,
            compute_share=1.0,
            rules=how.rules,
            shown_s=_reduced(sent, cluster, how, gpus),
        )
    ]


def _on_the_wire(profile: GradientProfile, wire_bytes: float) -> GradientProfile:
    """Return the profile with gradients of so many bytes per parameter."""
    layers = tuple(replace(layer, parameter_bytes=layer.parameter_bytes * wire_bytes / 4) for layer in profile.layers)
    return replace(profile, layers=layers)


def _reduced(profile: GradientProfile, cluster: Cluster, how: Software, gpus: int) -> Callable[[float], float]:
    """Return what a step shows of its all-reduces, for a blocked share."""
    rules = how.rules
    mode = TrainingMode(
        workers=gpus,
        bucket_bytes=rules.bucket_bytes,
        first_bucket_bytes=rules.first_bucket_bytes,
        strict_buckets=rules.strict_buckets,
        overlap=rules.overlap > 0,
    )
    links = network(cluster, rules)

    @cache
    def shown_s(blocked_share: float) -> float:
        links.blocked_share = blocked_share
        return exposed_all_reduce_s(profile, mode, links)

    return shown_s


def _servers(
    profile: GradientProfile, cluster: Cluster, how: Software, gpus: int, nodes: int, servers: int
) -> Callable[[float], float]:
    """Return what synchronous servers cost. In one node they are the host; else nodes are workers, whose GPUs have
    added up their gradients, and servers run on nodes like theirs."""
    if nodes == 1:
        rate = cluster.device.host_bytes_per_s
        links = NicNetwork(worker_bytes_per_s=rate, server_bytes_per_s=HOST_BYTES_PER_S)
        seconds = _more_than_one(profile, links, gpus, 1)
        return lambda blocked_share: seconds
    inner = network(cluster, how.rules)
    rate = inner.worker_bytes_per_s * cluster.devices_per_node
    links = NicNetwork(worker_bytes_per_s=rate, server_bytes_per_s=rate)
    mode = TrainingMode(exchange="parameter-server", workers=nodes, shards=servers, policy="fifo")
    step_s = event_prediction(profile, mode, links, steps=STEPS).step_s
    inner.blocked_share = 0.0
    inside_s = exposed_all_reduce_s(profile, TrainingMode(workers=gpus // nodes, bucket_bytes=1.0), inner)
    return lambda blocked_share: step_s - profile.step_s + inside_s


def _more_than_one(profile: GradientProfile, links: NicNetwork, workers: int, shards: int) -> float:
    """Return what a step of all takes beyond that of one worker, which has the same servers, event by event."""
    mode = TrainingMode(exchange="parameter-server", workers=workers, shards=shards, policy="fifo")
    alone, together = (
        event_prediction(profile, replace(mode, workers=count), links, steps=STEPS) for count in (1, workers)
    )
    return together.step_s - alone.step_s
