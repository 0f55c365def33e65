"""Models by name: one YAML file each in ``data/``, read only on demand."""

from pathlib import Path

from forerun.spaces.documents import read_document, validate
from forerun.spaces.documents.package_data import package_names, package_yaml
from forerun.spaces.errors import unknown
from forerun.spaces.models.building import model_from_mapping
from forerun.spaces.models.model import Model


def model_names() -> tuple[str, ...]:
    """Return the names of all models of the catalogue, sorted; no file is opened."""
    return package_names("forerun.spaces.models", "data")


def load_model(name: str) -> Model:
    """Return the model called ``name`` (upper case, and ``_`` for ``-``, are accepted).

    Raises:
        RequestError: no model has that name; the text names the nearest ones.
    """
    key = name.lower().replace("_", "-")
    # Names are matched against the listing, so that no text can point outside the folder.
    known = model_names()
    if key not in known:
        raise unknown("model", name, known)
    return model_from_mapping(package_yaml("forerun.spaces.models", "data", f"{key}.yaml"), name=key)


def load_model_file(path: Path) -> Model:
    """Return the model in the YAML file at ``path``, in the form of ``forerun.spaces.models.schema``.

    Raises:
        RequestError: the file cannot be read or breaks the schema; the text names file, line and key.
    """
    from forerun.spaces.models.schema import ConfigDocument, ModelDocument  # pydantic: the catalogue needs none

    document = read_document(path)
    configured = isinstance(document.data, dict) and "config" in document.data
    checked = validate(document, ConfigDocument if configured else ModelDocument)
    return model_from_mapping(checked.model_dump(exclude_unset=True), name=path.stem)
