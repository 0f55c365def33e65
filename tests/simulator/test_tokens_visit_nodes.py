"""To how many nodes a token goes, against tokens that are routed one by one."""

from pathlib import Path

import numpy as np
import pytest

from forerun.search import Request
from forerun.search.api import simulate_setting
from forerun.search.request.resolve import resolve
from forerun.simulator.layer.communication import domains_visited
from forerun.spaces.errors import RequestError
from forerun.spaces.models import load_model
from forerun.spaces.models.model import MixtureOfExperts
from forerun.spaces.models.resolve import resolve_model

TOKENS = 4000


def mixture(groups: int, top_groups: int) -> MixtureOfExperts:
    return MixtureOfExperts(experts=256, top_k=8, expert_hidden=2048, gated=True, groups=groups, top_groups=top_groups)


def counted(mlp: MixtureOfExperts, domains: int) -> float:
    """Route tokens to random experts of random groups, and count the domains that each of them meets."""
    draw, size = np.random.default_rng(7), mlp.experts // mlp.groups
    found = 0
    for _ in range(TOKENS):
        groups = draw.permutation(mlp.groups)[: mlp.top_groups]
        within = np.concatenate([np.arange(size) + group * size for group in groups])
        experts = draw.permutation(within)[: mlp.top_k]
        found += len(set((experts * domains // mlp.experts).tolist()))
    return found / TOKENS


@pytest.mark.parametrize(("groups", "top_groups"), [(1, 1), (8, 4), (8, 8), (8, 1)])
@pytest.mark.parametrize("domains", [2, 4, 8, 16])
@pytest.mark.slow
def test_domains_are_those_of_random_tokens(groups: int, top_groups: int, domains: int) -> None:
    mlp = mixture(groups, top_groups)
    visited = float(domains_visited(mlp, np.array([float(domains)]))[0])
    assert visited == pytest.approx(counted(mlp, domains), rel=0.07)


def test_deepseek_v3_meets_at_most_four_of_eight_nodes() -> None:
    """Its paper, section 2.1.2: "each token will be sent to at most M nodes", with M = 4."""
    mlp = load_model("deepseek-v3").layers[-1].mlp
    assert isinstance(mlp, MixtureOfExperts)
    eight, sixteen = (float(domains_visited(mlp, np.array([n]))[0]) for n in (8.0, 16.0))
    assert 3.0 < eight <= 4.0
    assert eight < sixteen <= 8.0


@pytest.mark.parametrize(
    ("change", "words"), [("groups: 3", "equal groups"), ("groups: 4, top_groups: 5", "top_groups <= groups"),
                          ("groups: 8, top_groups: 1", "top_k <= top_groups")]
)  # fmt: skip
def test_groups_that_cannot_hold_the_experts_are_refused(tmp_path: Path, change: str, words: str) -> None:
    path = tmp_path / "model.yaml"
    path.write_text(
        "source: test\nhidden: 1024\nvocab: 32000\nlayers:\n  - count: 2\n    attention: {heads: 16}\n"
        f"    mixture: {{experts: 16, top_k: 4, expert_hidden: 512, gated: true, {change}}}\n"
    )
    with pytest.raises(RequestError, match=words):
        resolve_model(str(path))


def test_tokens_that_leave_a_rack_are_copied_within_the_other_all_the_same() -> None:
    """One copy of a token goes to each rack; NVLink carries one per expert there: a wider group is no faster."""
    request = Request(
        model="kimi-k2", cluster="gb300-nvl72", gpus="576", global_batch=576, seq_len=4096, framework="nemo-blackwell"
    )
    setting = resolve(request)
    inside, across = (
        simulate_setting(setting, f"tp1 pp1 dp576 ep{ep} mbs1 zero1 recompute=layernorm+moe_act+mla_up_proj")
        for ep in (64, 96)
    )
    assert inside.breakdown_s["expert"] <= across.breakdown_s["expert"]
