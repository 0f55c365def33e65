"""Random requests with every switch of the software drawn anew, of models of every kind, as Hypothesis strategies."""

from dataclasses import replace

from hypothesis import strategies as st
from random_requests import contexts

from forerun.spaces.errors import RequestError
from forerun.spaces.frameworks import framework_names, load_framework
from forerun.spaces.frameworks.profile import FrameworkProfile
from forerun.spaces.frameworks.switches import all_switches, available, switched
from forerun.spaces.models import load_model
from forerun.spaces.models.model import Model
from forerun.spaces.strategies import Context
from forerun.spaces.strategies.software import can_turn_on, unsuited

MODELS = (
    "llama3-8b",
    "mixtral-8x7b",
    "deepseek-v2-lite",
    "nemotron-h-8b",
    "nemotron3-nano-30b-a3b",
    "qwen3-next-80b-a3b",
    "gemma-3-27b",
    "t5-base",
    "qwen2.5-vl-7b",
)
"""Dense, routed, latent attention, state spaces, linear attention, windows, two stacks, images."""
ENTRIES, COUNT = 6, 3
"""Of each so many entries of layers at most, each so many times."""


@st.composite
def small_models(draw: st.DrawFn) -> Model:
    """A model of the catalogue with few of its layers, of every kind that it has."""
    model = load_model(draw(st.sampled_from(MODELS)))
    if model.encoder_layers:
        return model
    kinds = list({replace(layer, count=1, name=""): layer for layer in model.layers}.values())
    kept = (*model.layers[:ENTRIES], *(layer for layer in kinds if layer not in model.layers[:ENTRIES]))
    return replace(model, layers=tuple(replace(layer, count=min(layer.count, COUNT)) for layer in kept))


@st.composite
def software(draw: st.DrawFn, model: Model) -> tuple[FrameworkProfile, dict[str, str]]:
    """A framework of the catalogue with some switches set anew, such as ``model`` can have, and those."""
    profile = load_framework(draw(st.sampled_from(framework_names())))
    settings: dict[str, str] = {}
    for name in available(profile):
        switch = all_switches()[name]
        more = ("0.25", "0.7") if switch.share else ()
        setting = draw(st.sampled_from((None, None, *switch.values, *more)))
        if setting is None or unsuited({name: setting}, model):
            continue
        try:
            profile, settings = switched(profile, settings | {name: setting}), settings | {name: setting}
        except RequestError:  # it excludes what is set already
            continue
    return profile, settings


@st.composite
def switched_contexts(draw: st.DrawFn) -> Context:
    """A whole request as a search has it: some switches set, those that it may turn on free."""
    model = draw(small_models())
    profile, settings = draw(software(model))
    context = replace(draw(contexts()), model=model, framework=profile)
    return replace(context, free_software=can_turn_on(profile, but=settings))
