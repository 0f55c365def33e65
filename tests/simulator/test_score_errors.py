"""What the core cannot cost is refused by name, never costed as nothing."""

from dataclasses import replace

import pytest
from forerun_examples import moe_model, request

from forerun.simulator import score
from forerun.spaces.clusters import Cluster, load_cluster
from forerun.spaces.errors import RequestError
from forerun.spaces.strategies import Context, Strategy, table_of
from forerun.spaces.workload import Workload

TABLE = table_of([Strategy(tp=2, dp=2, pp=2)])


def test_bf16_on_v100_says_use_fp16() -> None:
    context = request(cluster=load_cluster("dgx1-v100"))

    with pytest.raises(RequestError, match=r"V100.* no bf16 matrix units; use fp16"):
        score(context, TABLE)
    score(replace(context, workload=replace(context.workload, precision="fp16")), TABLE)


def test_a_precision_that_the_device_lacks_names_those_it_has() -> None:
    context = request(cluster=load_cluster("dgx-a100-80"))

    with pytest.raises(RequestError, match=r"no fp8 matrix units; it has .*bf16"):
        score(replace(context, workload=replace(context.workload, precision="fp8")), TABLE)


def test_an_unknown_precision_names_the_known_ones() -> None:
    with pytest.raises(RequestError, match=r"unknown precision 'bf61'; known: bf16, fp16"):
        Workload(global_batch=8, seq_len=128, precision="bf61")


def test_an_unknown_attention_kernel_names_the_nearest() -> None:
    context = request()
    context = replace(context, framework=replace(context.framework, attention="flash3"))

    with pytest.raises(RequestError, match=r"unknown attention kernel 'flash3'; did you mean flash"):
        score(context, TABLE)


def test_an_unknown_kind_of_link_names_the_known_ones() -> None:
    context = request()
    inside, across = context.cluster.levels
    levels = (replace(inside, kind="rope"), across)

    with pytest.raises(RequestError, match=r"unknown kind of link 'rope'"):
        score(_on(context, replace(context.cluster, levels=levels)), TABLE)


def test_devices_without_links_cannot_exchange_anything() -> None:
    alone = replace(request().cluster, levels=())

    with pytest.raises(RequestError, match=r"needs links; this cluster is one device"):
        score(_on(request(), alone), TABLE)


def test_one_device_needs_no_links() -> None:
    alone = replace(request().cluster, levels=())

    assert score(_on(request(), alone), table_of([Strategy()])).step_time_s[0] > 0


def test_illegal_candidates_are_scored_like_any_other() -> None:
    """Legality is the space's business: the core gives numbers for strategies that no framework runs."""
    scores = score(request(moe_model()), table_of([Strategy(pp=5, dp=3, ep=7, zero=3)]))

    assert scores.step_time_s[0] > 0


def test_an_empty_table_has_an_empty_score() -> None:
    scores = score(request(), TABLE.take(slice(0, 0)))

    assert len(scores) == 0
    assert all(len(values) == 0 for values in (*scores.time_s.values(), *scores.memory_bytes.values()))


def _on(context: Context, cluster: Cluster) -> Context:
    return replace(context, cluster=cluster)


def test_a_time_that_is_no_number_never_leaves_a_ranking_in_silence() -> None:
    context = request()
    table = table_of([Strategy(tp=2, dp=4), Strategy(dp=8)])
    levels = tuple(replace(level, bytes_per_s=float("nan")) for level in context.cluster.levels)
    odd = replace(context, cluster=replace(context.cluster, levels=levels))
    with pytest.raises(RequestError, match=r"predictions for .* are not finite numbers"):
        score(odd, table)
