"""Words that engineers type: lengths with a suffix, batches in tokens, files of defaults."""

import json
from pathlib import Path

import pytest
from forerun_cli import cli

from forerun.search.cli import settings
from forerun.search.request.quantities import batch_of, token_count
from forerun.spaces.errors import RequestError
from forerun.spaces.opgraph.batch import PerDevice

SEARCH = "search llama3-8b --gpus 64 --top 1"


@pytest.mark.parametrize(
    ("text", "tokens"), [("8k", 8192), ("128K", 131072), ("4M", 4 << 20), ("1_024", 1024), (2048, 2048)]
)
def test_suffixes_of_tokens_are_powers_of_two(text: str | int, tokens: int) -> None:
    assert token_count(text) == tokens


@pytest.mark.parametrize("text", ["8q", "0", "-8k", "8.5k", "", "k"])
def test_other_words_are_no_length(text: str) -> None:
    with pytest.raises(RequestError, match="whole number of at least 1"):
        token_count(text)


def test_a_batch_is_sequences_samples_per_gpu_or_tokens() -> None:
    assert batch_of(64) == batch_of("64") == 64
    assert batch_of("64/gpu") == PerDevice(64)
    assert batch_of("4M tokens", 8192) == 512
    with pytest.raises(RequestError, match="nearest: 4,194,000 tokens, which are 1,398 sequences"):
        batch_of("4M tokens", 3000)
    with pytest.raises(RequestError, match="needs a sequence length"):
        batch_of("4M tokens")


@pytest.mark.parametrize("batch", ["512", "4M tokens"])
def test_a_batch_in_tokens_is_searched_as_sequences(batch: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = cli(capsys, f"{SEARCH} --cluster dgx-h100 --seq-len 8k --json --global-batch {batch}")
    request = json.loads(out)["request"]

    assert (code, request["global_batch"], request["seq_len"]) == (0, 512, 8192)


def test_a_count_with_a_suffix_alone_is_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = cli(capsys, f"{SEARCH} --cluster dgx-h100 --seq-len 8k --global-batch 4M")

    assert code == 2 and "for tokens write '4M tokens'" in err


def test_an_unknown_model_is_said_before_missing_flags(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = cli(capsys, "search llama3-80b --cluster dgx-h100")

    assert code == 2 and "unknown model 'llama3-80b'; did you mean llama3-8b" in err


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a user with defaults of their own, in a project with others."""
    monkeypatch.setattr("platformdirs.user_config_path", lambda name: tmp_path / "home" / name)
    (tmp_path / "home" / "forerun").mkdir(parents=True)
    (tmp_path / "home" / "forerun" / settings.NAME).write_text('cluster = "dgx-a100-80"\nusd-per-gpu-hour = 2\n')
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / settings.NAME).write_text('cluster = "dgx-h100"\nverbosity = "quiet"\n')
    monkeypatch.chdir(tmp_path / "job")
    return tmp_path / "job"


@pytest.mark.usefixtures("configured")
@pytest.mark.slow
def test_the_defaults_of_a_folder_count_before_those_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    words = f"{SEARCH} --global-batch 512 --seq-len 8192"
    document = json.loads(cli(capsys, f"{words} --json")[1])

    assert document["request"]["cluster"] == "dgx-h100"
    assert document["leaderboard"][0]["cost_usd_per_hour"] == 128
    filled = [text for text in document["request"]["defaults"] if text.endswith(".toml)")]
    assert "cluster dgx-h100 (from forerun.toml)" in filled and len(filled) == 2
    assert "note:" not in cli(capsys, words)[1]
    assert "defaults used: " in cli(capsys, f"{words} --verbose")[1]
    given = json.loads(cli(capsys, f"{words} --cluster dgx-b200 --json")[1])
    assert given["request"]["cluster"] == "dgx-b200"


@pytest.mark.usefixtures("configured")
def test_a_default_framework_is_for_transformers(configured: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (configured / settings.NAME).write_text('framework = "torchtitan"\n')
    code, out, err = cli(capsys, "search resnet50 --cluster dgx-a100-80 --gpus 8 --global-batch 64/gpu --json")

    assert code == 0, err
    assert json.loads(out)["request"]["framework"] != "torchtitan"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('clster = "dgx-h100"', "forerun.toml: unknown default 'clster'; did you mean cluster"),
        ("usd-per-gpu-hour = -1", "usd-per-gpu-hour must be a number above 0"),
        ('verbosity = "loud"', "unknown verbosity 'loud'"),
        ("cluster = [1]", "cluster takes one value"),
        ("cluster = ", "forerun.toml: "),
    ],
)
def test_a_wrong_file_of_defaults_is_named(
    text: str, message: str, configured: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (configured / settings.NAME).write_text(text)
    code, _, err = cli(capsys, f"{SEARCH} --global-batch 512 --seq-len 8192")

    assert code == 2 and message in err


def test_doctor_names_versions_and_optional_parts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    document = json.loads(cli(capsys, "doctor --json")[1])

    assert all(document["required"].values()) and document["optional"]["torch"]["needed_for"]
    assert document["ray"] == {"address": "127.0.0.1:1", "answers": False}
    assert "Ray cluster: 127.0.0.1:1 does not answer" in cli(capsys, "doctor")[1]
