"""Resolution of a user's operator graph: a catalogue name, or the file of a graph."""

from collections.abc import Sequence
from pathlib import Path

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.catalogue import is_graph_model, load_graph_model
from forerun.spaces.opgraph.model import GraphModel

SUFFIXES = (".net", ".onnx", ".pt2")


def names_graph_model(text: str) -> bool:
    """Check whether ``text`` is an operator graph's name or file, by the suffix; no file is opened."""
    return Path(text).suffix.lower() in SUFFIXES or is_graph_model(text)


def resolve_graph_model(
    text: str, *, allow_generic: bool = False, shapes: Sequence[str] = ()
) -> tuple[GraphModel, tuple[str, ...]]:
    """Return the model named by ``text``, and notes on its conversion for the user.

    ``allow_generic``: cost operators without a rule by their bytes and operations alone. ``shapes``: extents of inputs
    that an ONNX file leaves open.

    Raises:
        RequestError: ``text`` is neither a name nor a readable file, or the file is invalid.
    """
    path = Path(text)
    suffix = path.suffix.lower()
    if shapes and suffix != ".onnx":
        raise RequestError(f"--shape gives extents that an ONNX file leaves open, and {text} is none")
    if suffix not in SUFFIXES:
        return load_graph_model(text), ()
    if not path.is_file():
        raise RequestError(f"{text}: no such file")
    if suffix == ".net":
        from forerun.spaces.opgraph.net_file import read_net

        return read_net(path), ()
    if suffix == ".onnx":
        from forerun.spaces.opgraph.graphs.onnx_file import read_onnx

        return read_onnx(path, allow_generic=allow_generic, shapes=shapes), ()
    from forerun.spaces.opgraph.graphs.exported_file import read_exported

    return read_exported(path, allow_generic=allow_generic), ()
