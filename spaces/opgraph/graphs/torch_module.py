"""PyTorch modules of the calling program, through ``torch.export``; unlike exported files they need torch."""

import io
import json
import zipfile
from typing import Any

from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.graphs.convert import model_of_graph
from forerun.spaces.opgraph.graphs.exported_file import GRAPHS, RULES, SKIPPED, graph_of_document
from forerun.spaces.opgraph.model import GraphModel


def model_of_module(
    module: Any, inputs: tuple[Any, ...], *, name: str | None = None, allow_generic: bool = False
) -> GraphModel:
    """Return the model of ``module`` on ``inputs`` (first axis: batch). The module is traced, not run.

    Raises:
        RequestError: torch is missing, the module cannot be exported, a shape is dynamic, or an operator has no rule
            and ``allow_generic`` is not set.
    """
    try:
        import torch
    except ImportError:
        raise RequestError("modules need torch; pip install 'forerun[graphs]'") from None
    title = name or type(module).__name__
    try:
        program = torch.export.export(module, inputs)
        buffer = io.BytesIO()
        torch.export.save(program, buffer)
    except Exception as error:  # export raises its own error classes for anything that it cannot trace
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise RequestError(f"{title} cannot be exported by torch.export: {lines[0][:200]}") from None
    with zipfile.ZipFile(buffer) as archive:
        entry = next(entry for entry in archive.namelist() if entry.endswith(GRAPHS))
        document = json.loads(archive.read(entry))
    graph = graph_of_document(document, name=title, source=title)
    return model_of_graph(graph, RULES, allow_generic=allow_generic, skipped=SKIPPED)
