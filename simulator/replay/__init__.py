"""Replay of a real run: read its traces, align their clocks, match messages, execute the graph and explain it."""

from forerun.simulator.replay.analysis import Analysis, analyse_files
from forerun.simulator.replay.clocks import align, unaligned
from forerun.simulator.replay.graph import build_graph
from forerun.simulator.replay.matching import match
from forerun.simulator.replay.readers.reading import find_traces, read_traces
from forerun.simulator.replay.replay import replay
from forerun.simulator.replay.summary import summary
from forerun.simulator.replay.timeline import write_timeline

__all__ = [
    "Analysis",
    "align",
    "analyse_files",
    "build_graph",
    "find_traces",
    "match",
    "read_traces",
    "replay",
    "summary",
    "unaligned",
    "write_timeline",
]
