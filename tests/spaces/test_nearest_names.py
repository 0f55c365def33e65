"""A name that is not known is answered with what was probably meant, or with all there is; never with a guess."""

import pytest

from forerun.spaces.clusters import cluster_names, load_cluster
from forerun.spaces.errors import RequestError, nearest
from forerun.spaces.models import resolve_model


@pytest.mark.parametrize(
    ("name", "first"),
    [("h100", "dgx-h100"), ("hgx-h800", "h800"), ("DGX_H100", "dgx-h100"), ("dgx-h10", "dgx-h100"), ("h20", "hgx-h20")],
)
def test_a_cluster_is_found_by_its_device_and_by_its_spelling(name: str, first: str) -> None:
    assert first in nearest(name, cluster_names())
    with pytest.raises(RequestError, match=f"did you mean .*{first}"):
        load_cluster(name)


def test_a_device_in_place_of_a_cluster_is_answered_with_its_clusters() -> None:
    with pytest.raises(RequestError, match=r"h100-sxm is a device; clusters of it: .*dgx-h100"):
        load_cluster("h100-sxm")
    assert load_cluster("gb200-nvl72").device.name == "gb200-nvl72"


@pytest.mark.parametrize(("name", "first"), [("hgx-h100", "dgx-h100"), ("hgx-b200", "dgx-b200")])
def test_a_name_with_the_same_numbered_part_is_nearest(name: str, first: str) -> None:
    assert nearest(name, cluster_names())[0] == first


def test_a_slip_of_the_pen_goes_before_a_part() -> None:
    assert nearest("device_per_node", ["device", "devices_per_node", "name"])[0] == "devices_per_node"


def test_other_case_and_punctuation_alone_need_no_further_offers() -> None:
    assert nearest("MegatronLM", ["megatron-lm", "megatron-deepspeed"]) == ["megatron-lm"]


@pytest.mark.parametrize("name", ["bandwidth", "zzz", ""])
def test_what_is_like_nothing_gets_no_guess(name: str) -> None:
    assert nearest(name, ["in_switch", "kind", "latency", "mesh", "rate", "size", "torus"]) == []


@pytest.mark.parametrize(
    ("name", "known"), [("meta-llama/Llama-3.1-8B", "llama3-8b"), ("deepseek-ai/DeepSeek-V3", "deepseek-v3")]
)
def test_a_name_of_the_hub_is_told_from_a_path(name: str, known: str) -> None:
    with pytest.raises(RequestError, match=f"the catalogue has .*{known}"):
        resolve_model(name)
