"""Models by their name on the Hugging Face hub: a cache that the test makes, and refusals in sentences."""

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from forerun.spaces.errors import RequestError
from forerun.spaces.models import hub, resolve_model

huggingface_hub = pytest.importorskip("huggingface_hub")
constants = importlib.import_module("huggingface_hub.constants")
errors = importlib.import_module("huggingface_hub.errors")
NAME, COMMIT = "meta-llama/Llama-3.1-Tiny", "0" * 40
CONFIG = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
}


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache as huggingface_hub keeps it, with one model."""
    repository = tmp_path / "hub" / f"models--{NAME.replace('/', '--')}"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (snapshot / hub.CONFIG_FILE).write_text(json.dumps(CONFIG))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


@pytest.mark.usefixtures("cache")
def test_a_model_of_the_cache_needs_no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("downloads"))
    model = resolve_model(NAME).model

    assert (model.name, sum(layer.count for layer in model.layers), model.vocab) == ("Llama-3.1-Tiny", 3, 1000)


@pytest.mark.usefixtures("cache")
def test_offline_is_obeyed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("downloads"))

    with pytest.raises(RequestError, match=r"not in the cache .*HF_HUB_OFFLINE is set.*the catalogue has llama3-8b"):
        resolve_model("meta-llama/Llama3-8b")


def _failing(error: Exception) -> Any:
    def download(*_: object, **__: object) -> str:
        raise error

    return download


def _http_error(kind: str) -> Exception:
    """Return an error of the hub without what its constructors ask for, which differs by version."""
    error = getattr(errors, kind)
    made: Exception = error.__new__(error)
    return made


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("GatedRepoError", "the model is gated: accept its licence .* `hf auth login`"),
        ("RepositoryNotFoundError", "the Hugging Face hub has no such model"),
        ("RemoteEntryNotFoundError", "has no config.json"),
        ("LocalEntryNotFoundError", "cannot be reached"),
        (ConnectionError("secret-token"), "cannot be reached .ConnectionError."),
    ],
)
def test_what_the_hub_refuses_is_a_sentence(
    error: str | Exception, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _http_error(error) if isinstance(error, str) else error
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "_reachable", lambda address: True)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", _failing(made))

    with pytest.raises(RequestError, match=message) as caught:
        resolve_model("owner/model-of-nobody")
    assert "secret-token" not in str(caught.value)


def test_without_the_extra_the_way_to_install_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda name: None)

    with pytest.raises(RequestError, match=r'pip install "forerun\[hub\]"'):
        resolve_model("owner/model-of-nobody")


@pytest.mark.usefixtures("cache")
def test_a_hub_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", lambda *_, **__: pytest.fail("downloads"))
    for proxy in hub.PROXIES:
        monkeypatch.delenv(proxy, raising=False)

    with pytest.raises(RequestError, match=r"the Hugging Face hub .http://127.0.0.1:1. cannot be reached"):
        resolve_model("owner/model-of-nobody")
