"""The frameworks' own parsers accept what forerun writes, twenty strategies and more in each format.

A test runs where its framework is installed and is skipped elsewhere: none of them is a dependency, torch alone has
gigabytes. ``make test-frameworks`` installs them into an environment of their own; docs/formats.md has the versions.
"""

import itertools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarks.frameworks.readers import READERS
from forerun.search.formats import Launch, format_named
from forerun.spaces.models import load_model, resolve_model
from forerun.spaces.strategies import parse_strategy
from forerun.spaces.workload import Workload

pytestmark = pytest.mark.filterwarnings("default")

STRATEGIES = (
    "tp1 pp1 dp1 mbs1",
    "tp1 pp1 dp8 mbs2",
    "tp1 pp1 dp8 mbs1 zero1",
    "tp1 pp1 dp16 mbs2 zero2",
    "tp1 pp1 dp16 mbs1 zero3 recompute=full",
    "tp2 pp1 dp8 mbs1 zero3 sp recompute=full",
    "tp4 pp1 dp4 cp2 mbs1 zero3 sp recompute=full",
    "tp4 pp1 dp4 cp2 mbs1 zero2 recompute=full",
    "tp8 pp1 dp4 mbs1 zero1 sp recompute=full",
    "tp4 pp4 dp2 mbs1 zero1 sp recompute=full",
    "tp4 pp4 dp2 mbs1 vpp5 zero1 sp schedule=interleaved",
    "tp4 pp8 dp2 mbs1 vpp2 zero1 sp recompute=full schedule=interleaved placement=tp-cp-ep-pp-dp",
    "tp2 pp4 dp2 mbs2 zero1 sp layers=17,21,21,21",
    "tp2 pp8 dp2 mbs1 vpp4 zero1 sp schedule=interleaved split=balanced",
    "tp2 pp9 dp2 mbs1 zero1 sp split=light-last recompute=full",
    "tp2 pp2 dp4 mbs2 zero2 sp schedule=gpipe recompute=full",
    "tp2 pp4 dp4 mbs1 vpp2 zero3 sp schedule=zb-v",
    "tp2 pp4 dp4 mbs1 vpp4 zero2 sp recompute=selective schedule=interleaved",
    "tp2 pp4 dp4 mbs1 zero1 sp recompute=full split=by-cost",
    "tp2 pp4 dp4 mbs1 zero1 sp recompute=full schedule=gpipe split=by-cost",
)
"""Twenty of many kinds, which a format either expresses or names the nearest of."""
VARIED = tuple(
    f"tp{tp} dp{dp} mbs{mbs} zero{zero} recompute={recompute}"
    for zero, dp, mbs in itertools.product((1, 2, 3, 0), (4, 8, 16), (1, 2))
    for tp, recompute in ((1, "none"), (2, "full"))
)
"""What fills up to twenty where a format has few ways to split."""
MIXTURES = ("tp2 pp1 dp8 ep8 mbs1 zero2 sp", "tp2 pp4 dp4 ep4 mbs1 zero1 sp")
HYBRIDS = (
    ("nemotron-h-8b", "tp2 pp4 dp4 mbs1 zero1 sp layers=10,14,14,14"),
    ("nemotron3-nano-30b-a3b", "tp2 pp2 dp8 ep4 mbs1 vpp6 zero1 sp schedule=interleaved split=balanced"),
    ("qwen3-next-80b-a3b", "tp2 pp4 dp8 ep8 mbs1 zero1 sp"),
)
TWENTY = 20


def expressed(name: str) -> Iterator[tuple[Launch, Mapping[str, str]]]:
    """Yield different launches of a dense and a mixture model that a format expresses, with their files."""
    item = format_named(name)
    texts = [("qwen3-30b-a3b", text) for text in MIXTURES]
    texts += [("llama3-70b", text) for text in (*STRATEGIES, *VARIED)]
    found: set[tuple[str, str]] = set()
    for model, text in texts:
        launch = item.nearest(
            Launch(
                strategy=parse_strategy(text),
                model=load_model(model),
                workload=Workload(global_batch=64, seq_len=4096),
                devices_per_node=8,
            )
        )
        if launch is None or len(found) == TWENTY + len(MIXTURES) or (model, str(launch.strategy)) in found:
            continue
        found.add((model, str(launch.strategy)))
        yield launch, item.express(launch)
    assert len(found) >= TWENTY


def the(name: str) -> Any:
    """Return a module, or skip the test where its package is not installed."""
    return pytest.importorskip(name, exc_type=ImportError)


@pytest.mark.parametrize("name", READERS)
def test_a_framework_reads_what_is_written(name: str, tmp_path: Path) -> None:
    for launch, files in expressed(name):
        try:
            READERS[name](launch, files, tmp_path)
        except ImportError as error:
            pytest.skip(str(error))


@pytest.mark.parametrize(("model", "text"), HYBRIDS)
@pytest.mark.parametrize("name", ["megatron-lm", "megatron-bridge"])
def test_hybrid_models_are_read(name: str, model: str, text: str, tmp_path: Path) -> None:
    workload, item = Workload(global_batch=64, seq_len=4096), format_named(name)
    strategy = parse_strategy(text)
    launch = item.nearest(Launch(strategy=strategy, model=load_model(model), workload=workload, devices_per_node=8))
    assert launch is not None
    try:
        READERS[name](launch, item.express(launch), tmp_path)
    except ImportError as error:
        pytest.skip(str(error))


def test_torchtitan_toml_deals_the_same_stages() -> None:
    pipeline = the("torchtitan.distributed.pipeline_parallel")
    deal = getattr(pipeline, "generate_llm_fqn_per_model_part", None)
    if deal is None:
        pytest.skip("this version deals stages elsewhere")
    from forerun.search.formats.titan_keys import dealt

    for layers, stages, first, last in ((80, 8, 0, 0), (126, 16, 1, 1), (79, 8, 0, 1), (61, 7, 1, 2)):
        parts = deal(stages, layers, first, last)
        counts = tuple(sum(name.startswith("layers.") for name in part) for part in parts)
        assert counts == dealt(layers, stages, first, last)


MODELS = ("LlamaConfig", "MistralConfig", "MixtralConfig", "Qwen2Config", "Qwen3Config", "Qwen3MoeConfig", "GPT2Config")


@pytest.mark.parametrize("name", (*MODELS, "GPTNeoXConfig", "DeepseekV3Config", "Gemma2Config", "Phi3Config"))
def test_transformers_configs_are_models(name: str, tmp_path: Path) -> None:
    config = getattr(the("transformers"), name)(architectures=[name.replace("Config", "ForCausalLM")])
    path = tmp_path / "config.json"
    config.to_json_file(str(path), use_diff=False)
    model = resolve_model(str(path)).model
    assert model.layer_count == config.num_hidden_layers and model.hidden == config.hidden_size
    assert model.vocab == config.vocab_size
