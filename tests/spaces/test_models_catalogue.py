"""Every catalogue entry counts as many parameters as its source states."""

import pytest

from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model, model_names, parameter_count

NEEDED = """
    gpt3-1.3b gpt3-6.7b gpt3-13b gpt3-39b gpt3-175b megatron-22b megatron-530b megatron-1t llama2-7b llama2-13b
    llama2-70b llama3-8b llama3-70b llama3-405b qwen3-0.6b qwen3-1.7b qwen3-4b qwen3-8b qwen3-14b qwen3-32b
    qwen3-30b-a3b qwen3-235b-a22b mixtral-8x7b mixtral-8x22b deepseek-v2 deepseek-v2-lite deepseek-v3 bert-large
    t5-large t5-3b t5-11b vit-l-16 vit-h-14
""".split()


def test_parameters_match_the_published_count() -> None:
    for name in model_names():
        model = load_model(name)

        assert model.name == name, name
        assert model.source, name
        assert model.published_parameters is not None, name
        assert parameter_count(model, mtp=False) == pytest.approx(model.published_parameters, rel=0.005), name


# Exact counts of released checkpoints, so that a slip of a bias or a norm shows.
@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("llama3-70b", 70_553_706_496),
        ("qwen3-235b-a22b", 235_093_634_560),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v2-lite", 15_706_484_224),
        ("bert-large", 336_226_108),
        ("t5-11b", 11_307_321_344),
        ("vit-h-14", 632_045_800),
        ("gemma-2-9b", 9_241_705_984),
    ],
)
def test_checkpoints_are_counted_to_the_last_parameter(name: str, count: int) -> None:
    assert parameter_count(load_model(name)) == count


def test_the_mtp_block_of_deepseek_v3_has_its_published_unique_parameters() -> None:
    # README_WEIGHTS.md of the checkpoint: 11.5 B unique parameters next to 671 B of the main model.
    model = load_model("deepseek-v3")

    assert parameter_count(model) - parameter_count(model, mtp=False) == pytest.approx(11.5e9, rel=0.01)
    # The checkpoint's 685 B repeat embedding and head.
    repeated = 2 * model.vocab * model.hidden
    assert parameter_count(model) + repeated == pytest.approx(685e9, rel=0.005)


def test_the_catalogue_has_what_was_promised() -> None:
    assert set(NEEDED) <= set(model_names())


def test_case_and_underscores_are_forgiven() -> None:
    assert load_model("Llama3_70B") == load_model("llama3-70b")


def test_alternating_windows_become_runs_in_execution_order() -> None:
    windows = [layer.attention.window for layer in load_model("gemma-3-27b").layers]
    counts = [layer.count for layer in load_model("gemma-3-27b").layers]

    assert windows[:4] == [1024, None, 1024, None]
    assert counts[:4] == [5, 1, 5, 1]
    assert sum(counts) == 62


@pytest.mark.parametrize("name", ["../model", "", "data/llama3-70b", "/etc/passwd", "llama3-70b.yaml"])
def test_paths_are_not_names(name: str) -> None:
    with pytest.raises(RequestError, match="unknown model"):
        load_model(name)
