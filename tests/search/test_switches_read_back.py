"""Every setting of every switch is written and read back the same, or refused by its name."""

import dataclasses
from collections.abc import Iterator

import pytest
from export_cases import CASES, CLUSTERS

from forerun.search.formats import Format, import_texts, writable
from forerun.search.formats.express import express, launch_in
from forerun.search.formats.software import has_effect
from forerun.spaces.clusters import load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import all_switches, load_framework, switched
from forerun.spaces.frameworks.recipes import implied
from forerun.spaces.models import load_model
from forerun.spaces.strategies import Context, parse_strategy
from forerun.spaces.workload import Workload

MIXTURES = {
    "megatron-lm": "tp2 pp2 dp4 ep4 mbs1 zero1 sp recompute=full",
    "megatron-bridge": "tp2 pp2 dp4 ep4 mbs1 zero1 sp recompute=full",
    "torchtitan": "tp2 pp2 dp4 ep4 mbs1 zero2 sp recompute=full",
    "torchtitan-0.3": "tp2 pp2 dp4 ep4 mbs1 zero2 sp recompute=full",
    "torchtitan-toml": "tp2 pp2 dp4 ep4 mbs1 zero2 sp recompute=full",
    "deepspeed": "tp1 pp1 dp16 ep4 mbs1 zero3 recompute=full",
    "nanotron": "tp2 pp2 dp4 ep4 mbs1 zero1 sp split=by-cost",
}
"""Strategies in which most switches have an effect, of a model with experts."""
OWN = ("megatron-lm", "torchtitan", "fsdp", "deepspeed", "nanotron", "nemo")
FORMATS = [item for item in writable() if item.framework or item.also or item.name == "forerun"]
SHARE = "0.25"


def contexts(item: Format, framework: str) -> Iterator[tuple[Context, str]]:
    """Yield requests with a strategy: a dense model, one in eight bit, a mixture."""
    dense = CASES[item.name].strategy if item.name in CASES else "tp2 pp2 dp4 mbs1 zero1 sp"
    mixture = MIXTURES.get(item.name if item.name in CASES else "megatron-lm")
    for model, text, precision in (
        ("llama2-7b", dense, "bf16"),
        ("llama2-7b", dense, "fp8"),
        ("mixtral-8x7b", mixture, "bf16"),
    ):
        if text is None:
            continue
        workload = Workload(global_batch=64, seq_len=4096, precision=precision)
        cluster, profile = load_cluster(CLUSTERS.get(framework, "dgx-h100")), load_framework(framework)
        yield Context(model=load_model(model), cluster=cluster, workload=workload, framework=profile), text


def _pairs() -> Iterator[tuple[Format, str]]:
    for item in FORMATS:
        for framework in OWN if item.name == "forerun" else (item.framework or item.also[0],):
            yield item, framework


@pytest.mark.slow
@pytest.mark.parametrize(("item", "framework"), [*_pairs()], ids=lambda one: getattr(one, "name", one))
def test_a_setting_is_written_and_read_back_or_refused(item: Format, framework: str) -> None:
    checked = 0
    for context, text in contexts(item, framework):
        strategy, precision = parse_strategy(text), context.workload.precision
        mixture = context.model.name.startswith("mixtral")
        for name, usual in context.framework.switches:
            switch = all_switches()[name]
            for setting in {*switch.values, *((SHARE,) if switch.share else ())} - {usual}:
                try:
                    chosen = switched(context.framework, {name: setting})
                except RequestError:
                    continue  # it needs another switch, too
                settings = dict(chosen.switches)
                if not has_effect(switch, strategy, settings, mixture=mixture, precision=precision):
                    continue
                asked = dataclasses.replace(context, framework=chosen)
                try:
                    files = express(item, launch_in(asked, strategy, name="x"), asked)
                except RequestError as error:
                    assert item.title in str(error) or name in str(error)
                    continue
                checked += 1
                found = import_texts(files)
                assert (name, found.switches.get(name)) == (name, implied(precision).get(name) or setting)
                assert found.strategy == strategy
    assert checked or item.writes is not None


def test_a_refused_switch_names_the_search_that_would_do() -> None:
    item = next(item for item in FORMATS if item.name == "deepspeed")
    context, text = next(contexts(item, "deepspeed"))
    asked = dataclasses.replace(context, framework=switched(context.framework, {"attention": "unfused"}))

    with pytest.raises(RequestError, match=r"no flag for attention=unfused, .*--with attention=flash2, or export"):
        express(item, launch_in(asked, parse_strategy(text), name="x"), asked)
