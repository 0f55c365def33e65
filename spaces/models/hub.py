"""Configurations of models by their name on the Hugging Face hub, from its cache or its server."""

import os
import socket
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.models.catalogue import model_names

CONFIG_FILE = "config.json"
PROXIES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")
SECONDS = 10.0
"""Longest wait for the hub in seconds."""
WITHOUT_EXTRA = 'run `pip install "forerun[hub]"` to read names of the hub, or name its config.json'


def is_hub_name(text: str) -> bool:
    """Check whether a text may be the name of a repository, like ``meta-llama/Llama-3.1-8B``."""
    document = text.lower().endswith((".json", ".yaml", ".yml"))
    return text.count("/") == 1 and not text.startswith((".", "/", "~")) and not document


def hub_config(name: str) -> Path:
    """Return the configuration of a model of the hub, which is downloaded unless the cache has it.

    Parameters
    ----------
    name
        ``OWNER/MODEL``.

    Raises
    ------
    RequestError
        huggingface_hub is not installed, or the hub has no such model, refuses it to this user, or cannot be reached.
    """
    near = nearest(name.rpartition("/")[2].lower(), model_names())
    known = f"; the catalogue has {', '.join(near)}" if near else ""
    if find_spec("huggingface_hub") is None:
        raise RequestError(f"{name}: no such file; {WITHOUT_EXTRA}{known}")
    from huggingface_hub import constants, hf_hub_download, try_to_load_from_cache

    try:
        cached = try_to_load_from_cache(name, CONFIG_FILE)
    except ValueError:
        raise RequestError(f"{name} is neither a file nor a name of the Hugging Face hub{known}") from None
    if isinstance(cached, str):
        return Path(cached)
    if constants.HF_HUB_OFFLINE:
        raise RequestError(
            f"{name} is not in the cache of Hugging Face ({constants.HF_HUB_CACHE}), and HF_HUB_OFFLINE is set; unset "
            f"it, or name a {CONFIG_FILE}{known}"
        )
    if not _reachable(constants.ENDPOINT):  # the library would try for half a minute
        raise RequestError(
            f"{name} is not a file, and the Hugging Face hub ({constants.ENDPOINT}) cannot be reached; name a "
            f"{CONFIG_FILE}{known}"
        )
    try:
        return Path(hf_hub_download(name, CONFIG_FILE, etag_timeout=SECONDS))
    except Exception as error:  # of the hub, HTTP or the network: a dozen classes
        raise RequestError(f"{name}: {_reason(error)}{known}") from None


def _reachable(address: str) -> bool:
    """Check whether a server accepts connections; behind a proxy only a download shows it."""
    if any(map(os.environ.get, PROXIES)):
        return True
    parts = urlsplit(address)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), timeout=SECONDS):
            return True
    except OSError:
        return False


def _reason(error: Exception) -> str:
    """Return the reason of a failed download, and its fix."""
    from huggingface_hub import errors

    if isinstance(error, errors.GatedRepoError):
        return (
            "the model is gated: accept its licence on huggingface.co and log in with `hf auth login`, or name a "
            f"{CONFIG_FILE}"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return "the Hugging Face hub has no such model, or it is private and `hf auth login` is needed"
    if isinstance(error, errors.EntryNotFoundError) and not isinstance(error, errors.LocalEntryNotFoundError):
        return f"the repository on the Hugging Face hub has no {CONFIG_FILE}"
    return f"the Hugging Face hub cannot be reached ({type(error).__name__}); name a {CONFIG_FILE} instead"
