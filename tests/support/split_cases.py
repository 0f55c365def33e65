"""Rows of operator graphs for tests: splits at the batches that a test names."""

from collections.abc import Sequence
from dataclasses import replace

from forerun.search.board.rows import Row, rows_of
from forerun.search.request.request import Request
from forerun.search.request.resolve import resolve
from forerun.search.request.setting import Setting
from forerun.simulator.opgraph import GraphContext
from forerun.spaces.opgraph.batch import PerDevice
from forerun.spaces.opgraph.split import Split


def graph_setting(
    model: str, cluster: str, global_batch: int | PerDevice, gpus: str | None = None
) -> Setting[GraphContext]:
    """Return what a request for an operator graph means."""
    return resolve(Request(model=model, cluster=cluster, global_batch=global_batch, gpus=gpus))


def split_rows(context: GraphContext, splits: Sequence[Split], batches: Sequence[int]) -> list[Row[Split]]:
    """Return the row of every split at its own global batch."""
    rows = []
    for split, batch in zip(splits, batches, strict=True):
        rows += rows_of(replace(context, global_batch=batch), [split])
    return rows
