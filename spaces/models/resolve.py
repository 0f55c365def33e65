"""Resolution of a user's model: a catalogue name, a YAML file, or a Hugging Face configuration."""

from dataclasses import dataclass
from pathlib import Path

from forerun.spaces.documents import read_document
from forerun.spaces.errors import RequestError
from forerun.spaces.files import exists
from forerun.spaces.models.catalogue import load_model, load_model_file, model_names
from forerun.spaces.models.hub import CONFIG_FILE, hub_config, is_hub_name
from forerun.spaces.models.model import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModel:
    """A model, and one-sentence notes on its conversion."""

    model: Model
    notes: tuple[str, ...] = ()


def resolve_model(text: str, *, ignore: frozenset[str] = frozenset()) -> ResolvedModel:
    """Resolve the model that ``text`` names.

    ``text`` is a catalogue name or the path of a YAML file, of a ``config.json`` or of a directory with one.
    ``ignore``: configuration fields to treat as absent.

    Raises
    ------
    RequestError
        ``text`` is neither a name nor a readable file, or the file is invalid.
    """
    if text.lower().replace("_", "-") in model_names():
        return ResolvedModel(model=load_model(text))
    path = Path(text)
    if _looks_like_a_path(text) or (text and exists(path)):
        return _from_path(path, ignore)
    return ResolvedModel(model=load_model(text))


def _from_path(path: Path, ignore: frozenset[str]) -> ResolvedModel:
    if exists(path) and path.is_dir():
        if not (path / CONFIG_FILE).exists():
            raise RequestError(f"{path} has no {CONFIG_FILE}; name a model, a YAML file or a {CONFIG_FILE}")
        path = path / CONFIG_FILE
    elif not exists(path):
        if is_hub_name(str(path)):
            return _from_config(hub_config(str(path)), path.name, ignore)
        raise RequestError(f"{path}: no such file")
    if path.suffix.lower() != ".json":
        return ResolvedModel(model=load_model_file(path))
    return _from_config(path, path.resolve().parent.name if path.name == CONFIG_FILE else path.stem, ignore)


def _from_config(path: Path, name: str, ignore: frozenset[str]) -> ResolvedModel:
    """Return the model of a Hugging Face configuration, called ``name``."""
    from forerun.spaces.models.huggingface import convert_config  # here: 30 modules that few models need

    document = read_document(path, infinite=True)
    conversion = convert_config(document.data, name, ignore=ignore, source=document.source)
    notes = []
    if conversion.guessed is not None:
        notes.append(
            f"model_type {conversion.guessed} is not known; all fields of {document.source} are, and it is read as a "
            "Llama-like decoder (RMSNorm, gated feed-forward)"
        )
    if conversion.left_out:
        notes.append(f"only the language model is modelled; left out: {', '.join(conversion.left_out)}")
    if conversion.filled_in:
        shown = ", ".join(f"{key}={value}" for key, value in sorted(conversion.filled_in.items()))
        notes.append(f"filled in for missing fields of {document.source}: {shown}")
    if conversion.ignored:
        notes.append(f"fields of {document.source} that do not change cost: {', '.join(conversion.ignored)}")
    return ResolvedModel(model=conversion.model, notes=tuple(notes))


def _looks_like_a_path(text: str) -> bool:
    return "/" in text or "\\" in text or text.lower().endswith((".json", ".yaml", ".yml"))
