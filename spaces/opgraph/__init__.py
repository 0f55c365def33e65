"""Operator graphs: convolutional, recommendation and imported models, with the shapes of every operator."""

from forerun.spaces.opgraph.catalogue import graph_model_names, is_graph_model, load_graph_model
from forerun.spaces.opgraph.model import GraphModel
from forerun.spaces.opgraph.operator import WEIGHTED, WINDOWED, Kind, Operator

__all__ = [
    "WEIGHTED",
    "WINDOWED",
    "GraphModel",
    "Kind",
    "Operator",
    "graph_model_names",
    "is_graph_model",
    "load_graph_model",
]
