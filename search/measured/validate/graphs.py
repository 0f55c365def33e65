"""Rows about operator graphs (CNN, DLRM) -> contexts and splits, from the same columns as for transformers.

Shapes come from the catalogue, so that shape columns stay blank; ``strategy`` names the split (blank: data parallel
over all GPUs).
"""

import re
from functools import cache

from forerun.search.measured.validate.cells import Filled, Skip, integer, required
from forerun.search.measured.validate.columns import TableRow
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.clusters.cluster import Cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph import graph_model_names, load_graph_model
from forerun.spaces.opgraph.limits import check_split
from forerun.spaces.opgraph.profile import (
    DEFAULT_PROFILE,
    default_precision,
    graph_profile_names,
    load_graph_profile,
)
from forerun.spaces.opgraph.split import Split, parse_split

_VERSION = re.compile(r"(v\d+)?")
"""Text that may follow the name of a model: ResNet50 v1.5 is ResNet-50 with the stride in another place."""


def graph_named(model: str) -> str | None:
    """Return the operator graph of the catalogue that a row names; regardless of case and punctuation.

    >>> graph_named("ResNet50 V1.5"), graph_named("Inception V3"), graph_named("gpt2")
    ('resnet50', 'inception-v3', None)
    """
    bare = re.sub(r"[^a-z0-9]", "", model.lower())
    matches = [name for name in _bare_names() if bare.startswith(name)]
    longest = max(matches, key=len, default="")
    rest = bare[len(longest) :]
    return _bare_names()[longest] if longest and _VERSION.fullmatch(rest) else None


@cache
def _bare_names() -> dict[str, str]:
    return {re.sub(r"[^a-z0-9]", "", name): name for name in graph_model_names()}


def graph_context_of(row: TableRow, name: str, cluster: Cluster, filled: Filled) -> GraphContext:
    """Return model, machine and software of a row.

    Raises:
        Skip: the row names an unsupported precision or exchange of gradients.
    """
    text = f"{row['framework']} {row['switches']}".lower()
    if "server" in f"{text} {row['notes'].lower()}":
        raise Skip("gradients through parameter servers")
    words = text.replace(":", " ").split()
    profile = next((known for known in graph_profile_names() if any(known in word for word in words)), None)
    if profile is None:
        profile = DEFAULT_PROFILE if "pytorch" in text else filled.of("graph_framework", DEFAULT_PROFILE)
    try:
        precision = row["precision"].lower() or filled.of("graph_precision", default_precision(cluster.device))
        cluster.device.peak(precision)
    except RequestError as error:
        raise Skip(str(error)) from None
    return GraphContext(
        model=load_graph_model(name),
        cluster=cluster,
        profile=load_graph_profile(profile),
        precision=precision,
        global_batch=required(row, "global_batch", "strategy"),
    )


def split_of(row: TableRow, context: GraphContext) -> Split:
    """Return the split of a row.

    Raises:
        Skip: the text is not a split, breaks a law, or needs another number of GPUs than the row's.
    """
    gpus = integer(row, "gpus") or 1
    try:
        split = parse_split(row["strategy"] or f"data{gpus}")
        check_split(context.model, split, context.batch(split.devices))
    except RequestError as error:
        raise Skip(str(error)) from None
    if split.devices != gpus:
        raise Skip("gpus contradict the split")
    return split
