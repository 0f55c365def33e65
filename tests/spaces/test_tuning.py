"""Fine-tuned models: adapters, frozen parts, and what of a model has gradients."""

import pytest

from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model, train_flops_per_sequence
from forerun.spaces.models.tuning import adapter_parameters, tuned


def adapters(model_name: str, lora: str) -> int:
    model = tuned(load_model(model_name), lora, ())
    return sum(layer.count * sum(adapter_parameters(layer, model.hidden)) for layer in model.layers)


@pytest.mark.parametrize(
    ("model", "lora", "published"), [("llama3-8b", "16", 41_943_040), ("llama2-7b", "8:attention", 8_388_608)]
)
def test_adapters_have_as_many_parameters_as_peft_prints(model: str, lora: str, published: int) -> None:
    assert adapters(model, lora) == published


def test_adapters_of_routed_experts_are_as_many_as_experts() -> None:
    model = tuned(load_model("mixtral-8x7b"), "4:experts", ())
    (layer,) = model.layers
    assert adapter_parameters(layer, model.hidden) == (0, 8 * 4 * 3 * (4096 + 14336))


def test_products_with_adapters_have_two_thirds_of_the_work() -> None:
    model = load_model("llama3-8b")
    whole, part = (train_flops_per_sequence(made, 4096) for made in (model, tuned(model, "1", ())))
    assert part == pytest.approx(whole * 2 / 3, rel=2e-3)


def test_a_frozen_encoder_only_runs_forward() -> None:
    model = load_model("qwen2.5-vl-7b")
    frozen = tuned(model, None, ("image",))
    assert [layer.trains for layer in frozen.layers] == ["nothing", "all"]


def test_a_frozen_language_model_passes_gradients_to_the_encoder() -> None:
    frozen = tuned(load_model("qwen2.5-vl-7b"), None, ("dense", "embedding", "head"))
    assert [layer.trains for layer in frozen.layers] == ["all", "inputs"]
    assert frozen.frozen_ends == ("embedding", "head")


def test_nothing_asked_for_changes_nothing() -> None:
    model = load_model("llama3-8b")
    assert tuned(model, None, ()) is model


@pytest.mark.parametrize(
    ("lora", "frozen", "told"),
    [
        ("0", (), "with a rank of 1 to 4096"),
        ("16:heads", (), "can be added to attention, mlp, experts, but got 'heads'"),
        ("16:", (), "adapters are written RANK or RANK:PRODUCTS"),
        (None, ("vision",), "unknown part of qwen2.5-vl-7b to freeze 'vision'"),
        (None, ("image", "dense", "embedding", "head"), "nothing of qwen2.5-vl-7b is left to train"),
    ],
)
def test_wrong_parts_are_refused(lora: str | None, frozen: tuple[str, ...], told: str) -> None:
    with pytest.raises(RequestError, match=told):
        tuned(load_model("qwen2.5-vl-7b"), lora, frozen)


def test_one_table_is_frozen_whole() -> None:
    with pytest.raises(RequestError, match="freeze both or neither"):
        tuned(load_model("qwen3-4b"), None, ("head",))
