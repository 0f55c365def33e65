"""Models by name: one YAML file each beside this module, read only when asked for."""

from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from pathlib import Path

from forerun.spaces.documents import read_document, validate
from forerun.spaces.errors import unknown
from forerun.spaces.models.model import Model


def model_names() -> tuple[str, ...]:
    """Names of all models of the catalogue, sorted; no file is opened."""
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in _folder().iterdir() if _is_model(entry)))


def load_model(name: str) -> Model:
    """The model called ``name`` (upper case and ``_`` for ``-`` are forgiven).

    Raises:
        RequestError: no model has that name; the text names the nearest ones.
    """
    key = name.lower().replace("_", "-")
    # Names are matched against the listing, so that no text can point outside the folder.
    known = model_names()
    if key not in known:
        raise unknown("model", name, known)
    with as_file(_folder() / f"{key}.yaml") as path:
        return load_model_file(path)


def load_model_file(path: Path) -> Model:
    """The model that the YAML file at ``path`` describes; its form is ``forerun.spaces.models.schema``.

    Raises:
        RequestError: the file cannot be read or breaks the schema; the text names file, line and key.
    """
    # Here: importing pydantic costs more than reading a file.
    from forerun.spaces.models.schema import ConfigDocument, ModelDocument

    document = read_document(path)
    if isinstance(document.data, dict) and "config" in document.data:
        return validate(document, ConfigDocument).build(path.stem)
    return validate(document, ModelDocument).build(path.stem)


def _folder() -> Traversable:
    return files("forerun.spaces.models") / "data"


def _is_model(entry: Traversable) -> bool:
    return entry.name.endswith(".yaml")
