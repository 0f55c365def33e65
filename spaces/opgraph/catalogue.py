"""Operator graphs by name, each built by a generator on demand."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial

from forerun.spaces.errors import unknown
from forerun.spaces.opgraph.families.amoeba import amoebanet_d
from forerun.spaces.opgraph.families.attention import CONVNEXT, VISION, convnext, vision_transformer
from forerun.spaces.opgraph.families.convolutional import alexnet, cosmoflow, resnet, unet, vgg
from forerun.spaces.opgraph.families.inception import inception_v3
from forerun.spaces.opgraph.families.mobile import EFFICIENT_SCALES, efficientnet, mobilenet_v2
from forerun.spaces.opgraph.families.recommendation import dlrm_516m
from forerun.spaces.opgraph.model import GraphModel

GENERATORS: Mapping[str, Callable[[], GraphModel]] = {
    "alexnet": alexnet,
    "amoebanet-d-18-208": amoebanet_d,
    "amoebanet-d-18-416": partial(amoebanet_d, 18, 416),
    "amoebanet-d-36-544": partial(amoebanet_d, 36, 544),
    "cosmoflow-128": partial(cosmoflow, 128),
    "cosmoflow-256": partial(cosmoflow, 256),
    "cosmoflow-512": partial(cosmoflow, 512),
    **{f"convnext-{size}": partial(convnext, size) for size in CONVNEXT},
    "dlrm-516m": dlrm_516m,
    **{f"efficientnet-{size}": partial(efficientnet, size) for size in EFFICIENT_SCALES},
    "inception-v3": inception_v3,
    "mobilenet-v2": mobilenet_v2,
    "resnet50": partial(resnet, "resnet50"),
    "resnet101": partial(resnet, "resnet101"),
    "resnet152": partial(resnet, "resnet152"),
    "unet": unet,
    "vgg16": partial(vgg, "vgg16"),
    "vgg19": partial(vgg, "vgg19"),
    **{f"vit-{size}": partial(vision_transformer, size) for size in VISION},
}


def graph_model_names() -> tuple[str, ...]:
    """Names of all operator graphs of the catalogue, sorted; none is built."""
    return tuple(sorted(GENERATORS))


def is_graph_model(name: str) -> bool:
    """Check whether the catalogue has an operator graph of this name; ``ResNet-50`` means ``resnet50``."""
    return _key(name) is not None


@lru_cache(maxsize=32)
def load_graph_model(name: str) -> GraphModel:
    """Return the model called ``name``; upper case, ``-`` and ``_`` are accepted.

    Raises:
        RequestError: no model has that name; the text names the nearest ones.
    """
    key = _key(name)
    if key is None:
        raise unknown("model", name, graph_model_names())
    return GENERATORS[key]()


def _key(name: str) -> str | None:
    bare = _bare(name)
    return next((key for key in GENERATORS if _bare(key) == bare), None)


def _bare(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")
