"""Several jobs on one cluster: nodes dealt so that the goal is reached best, links shared fairly."""

import itertools
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.search.cli import main
from forerun.search.scale.jobs import shares
from forerun.simulator.modes.shared_link import SharedJob, SharedMessage, steps_together

GAINS = st.lists(st.lists(st.floats(0.1, 10.0), min_size=1, max_size=5), min_size=1, max_size=3)
JOB = SharedJob(step_s=1.0, passes_s=0.6, messages=(SharedMessage(ready_s=0.5, alone_s=0.4, sent_bytes=4e9),))


@given(GAINS, st.integers(1, 8), st.booleans())
def test_nodes_are_dealt_as_well_as_trying_all_ways_does(gains: list[list[float]], nodes: int, least: bool) -> None:
    by_count = [dict(enumerate(own, start=1)) for own in gains]
    found = shares(by_count, nodes, least=least)
    ways = [way for way in itertools.product(*by_count) if sum(way) <= nodes]
    if not ways:
        assert found is None
        return

    def worth(way: tuple[int, ...]) -> float:
        own = [gain[count] for gain, count in zip(by_count, way, strict=True)]
        return min(own) if least else sum(own)

    assert found in ways
    assert worth(found) == pytest.approx(max(map(worth, ways)))


def test_links_with_room_slow_nobody() -> None:
    assert steps_together([JOB, JOB], None) == [1.0, 1.0]
    assert steps_together([JOB, JOB], 20e9) == pytest.approx([1.0, 1.0])
    assert steps_together([JOB, SharedJob(step_s=2.0, passes_s=2.0)], 1e9)[1] == 2.0


def test_a_full_link_is_shared_fairly() -> None:
    # 8e9 bytes a round over 4e9 bytes per second: each sends for half of the time, in turns or at once.
    slowed = steps_together([JOB, JOB], 4e9)
    assert slowed[0] == pytest.approx(slowed[1])
    assert 2.0 <= slowed[0] <= 2.6
    unlike = steps_together([JOB, SharedJob(step_s=1.0, passes_s=0.9)], 4e9)
    assert unlike[0] == pytest.approx(0.5 + 1.0 + 0.1)
    assert unlike[1] == 1.0


def test_a_document_of_jobs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "jobs.yaml"
    text = "{cluster: dgx1-v100, nodes: 4, jobs: [{model: resnet50}, {name: two, model: alexnet, nodes: 2}]}"
    path.write_text(text, encoding="utf-8")
    assert main(["scale", str(path), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [(job["name"], job["nodes"]) for job in document["jobs"]] == [("resnet50", 2), ("two", 2)]
    assert all(job["slower_by"] == 0 and job["speed_up"] > 1 for job in document["jobs"])
    path.write_text(text.replace("nodes: 4", "nodes: 4, shared: 2GB/s"), encoding="utf-8")
    assert main(["scale", str(path), "--json"]) == 0
    slowed = json.loads(capsys.readouterr().out)["jobs"]
    assert all(job["slower_by"] > 0.05 for job in slowed)
    assert main(["scale", str(path)]) == 0
    assert "4 of 4 nodes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "flags", "words"),
    [
        ("{cluster: dgx1-v100, nodes: 1, jobs: [{model: vgg16}, {model: vgg16}]}", [], "do not find the nodes"),
        ("{cluster: dgx1-v100, nodes: 999, jobs: [{model: vgg16}]}", [], "has at most"),
        ("{cluster: dgx1-v100, nodes: 2, jobs: [{model: vgg16, nodes: many}]}", [], "nodes are a number"),
        ("{cluster: dgx1-v100, nodes: 2, jobs: [{model: vgg16, nodes: 3..99999999999}]}", [], "nodes are a number"),
        ("{cluster: dgx1-v100, nodes: 2, jobs: [{model: vgg16}]}", ["--batch", "8"], "is for one model"),
    ],
)
def test_wrong_documents(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, flags: list[str], words: str
) -> None:
    path = tmp_path / "jobs.yaml"
    path.write_text(text, encoding="utf-8")
    assert main(["scale", str(path), *flags]) == 2
    assert words in capsys.readouterr().err
