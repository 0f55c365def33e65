"""How far each way to split an operator graph scales, what limits it, and what would help."""

import json
from pathlib import Path

import pytest
from graph_requests import RESNET, run, setting
from split_cases import split_rows

from forerun.search.opgraph.limits import PAYS, doubled, limits_of
from forerun.search.opgraph.what_if import congestion, doublings
from forerun.spaces.opgraph.split import Mode, parse_split


def test_congestion_is_named_where_racks_share_their_uplinks() -> None:
    here = setting(framework="chainermn", gpus="1024")
    (far,) = split_rows(here.context, [parse_split("data64 filter16 segments16")], [64 * 1024])
    (near,) = split_rows(here.context, [parse_split("data16")], [1024])
    assert congestion(here.context, near) == ()
    assert all(one.name == "congestion" for one in congestion(here.context, far))


def test_bottlenecks_cover_the_step() -> None:
    here = setting()
    for text in ("data16", "data4 filter4", "data4 spatial2x2", "pipeline4 segments8", "data4 channel2 segments2"):
        split = parse_split(text)
        (row,) = split_rows(here.context, [split], [64 * split.devices])
        found = row.graph.bottlenecks
        assert sum(one.seconds or 0.0 for one in found) == pytest.approx(row.step_time_s, rel=1e-6)
        assert row.graph.bottleneck == found[0].name
        timed = [one.seconds for one in found if one.seconds is not None]
        assert timed == sorted(timed, reverse=True)


def test_classes_name_what_a_split_suffers_from() -> None:
    here = setting(framework="chainermn", seconds_per_sample=3.119502e-3)
    expected = {"data1024": "gradient exchange", "channel16": "layer-wise collectives", "spatial4": "point-to-point"}
    for text, name in expected.items():
        split = parse_split(text)
        batch = 64 * split.replicas if split.mode is not Mode.SPATIAL else 256 * split.replicas
        assert split_rows(here.context, [split], [batch])[0].graph.bottleneck == name
    (deep,) = split_rows(here.context, [parse_split("filter64")], [64])
    assert "maximum devices" in {one.name for one in deep.graph.bottlenecks}


@pytest.mark.slow
def test_limits_mark_the_last_number_that_pays() -> None:
    limits = limits_of(setting(gpus="1..64", framework="chainermn"), (1, 2, 4, 8, 16, 32, 64))
    families = {family.family: family for family in limits.families}
    data = families["data"]
    assert [row.gpus for row in data.curve] == [1, 2, 4, 8, 16, 32, 64]
    assert data.useful_gpus == 64
    channel = families["channel"]
    before = [row for row in channel.curve if row.gpus <= channel.useful_gpus]
    after = next(row for row in channel.curve if row.gpus > channel.useful_gpus)
    share = after.throughput / before[-1].throughput - 1
    assert share < PAYS * (after.gpus / before[-1].gpus - 1)
    assert channel.stops.endswith(f"({after.graph.bottleneck})")
    assert doubled((1, 2, 3, 4, 6, 8, 12)) == (1, 2, 4, 8, 12)


def test_doubling_helps_what_it_should() -> None:
    here = setting(framework="chainermn")
    (row,) = split_rows(here.context, [parse_split("data4 channel4 segments4")], [1024])
    gains = {change.what: change.gain for change in doublings(here.context, row)}
    assert gains["bandwidth"] is not None and gains["bandwidth"] > 0.05
    assert all(gain is None or gain >= -1e-9 for gain in gains.values())


def test_limits_print_and_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    text = run(f"limits {RESNET} --gpus 1..8 --set mode=data,filter", capsys)
    assert "useful GPUs" in text and "twice the" in text
    assert max(map(len, text.splitlines())) <= 80
    document = json.loads(run(f"limits {RESNET} --gpus 1..8 --set mode=data --json", capsys))
    assert [point["gpus"] for point in document["limits"][0]["curve"]] == [1, 2, 4, 8]
    assert document["limits"][0]["largest_useful_gpus"] == 8


@pytest.mark.slow
def test_the_page_of_limits_loads_nothing_and_shows_every_family(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "limits.html"
    run(f"limits {RESNET} --gpus 1..8 --report", capsys, words=(str(page),))
    text = page.read_text()
    assert text.startswith("<!doctype html>")
    assert "default-src 'none'" in text.replace("&#x27;", "'")
    assert "<script" not in text and "http://" not in text and "https://" not in text
    assert text.count("<svg") == 3
    for family in ("data", "data+spatial", "filter", "pipeline"):
        assert f">{family}</text>" in text
    assert "nan" not in text.split("</style>")[1].replace("finance", "")
    assert "is a folder" in run(f"limits {RESNET} --gpus 1..8 --report", capsys, code=2, words=(str(tmp_path),))
