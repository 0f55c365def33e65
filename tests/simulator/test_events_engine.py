"""The executor on tiny graphs whose whole log is known."""

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import tries

from forerun.simulator.events.engine import sharing
from forerun.simulator.events.engine.engine import Execution, execute
from forerun.simulator.events.engine.graph import TaskGraph
from forerun.spaces.errors import RequestError


def log(graph: TaskGraph, run: Execution) -> list[tuple[str, float, float]]:
    return [(str(graph.tag[t][0]), run.start_s[t], run.end_s[t]) for t in range(len(graph))]


def test_an_ordered_stream_keeps_its_order_and_another_takes_what_is_ready() -> None:
    graph = TaskGraph(["work"])
    for name, ordered in (("ordered", True), ("free", False)):
        stream = graph.add_stream(name, device=0, ordered=ordered)
        late = graph.add(0, 2.0, tag=(f"{name} input",))
        graph.add(0, 1.0, stream, [late], tag=(f"{name} first",))
        graph.add(0, 3.0, stream, tag=(f"{name} second",))

    assert log(graph, execute(graph)) == [
        ("ordered input", 0.0, 2.0),
        ("ordered first", 2.0, 3.0),
        ("ordered second", 3.0, 6.0),
        ("free input", 0.0, 2.0),
        ("free first", 3.0, 4.0),
        ("free second", 0.0, 3.0),
    ]


def test_of_tasks_that_wait_the_lowest_priority_and_then_the_first_added_goes_first() -> None:
    graph = TaskGraph(["work"])
    stream = graph.add_stream("s", device=0, ordered=False)
    gate = graph.add(0, 1.0, stream, tag=("gate",))
    for name, priority in (("a", 1), ("b", 0), ("c", 0), ("d", -1)):
        graph.add(0, 1.0, stream, [gate], tag=(name,), priority=priority)
    run = execute(graph)

    assert sorted("abcd", key=lambda name: [s for n, s, _ in log(graph, run) if n == name]) == ["d", "b", "c", "a"]


def test_what_becomes_ready_as_a_stream_becomes_free_competes_for_it() -> None:
    """Whatever the order in which the two ends of the same instant are handled."""
    for swapped in (False, True):
        graph = TaskGraph(["work"])
        stream = graph.add_stream("s", device=0, ordered=False)
        first = [graph.add(0, 1.0, tag=("gate",))] if swapped else []
        graph.add(0, 1.0, stream, tag=("running",))
        gate = first[0] if swapped else graph.add(0, 1.0, tag=("gate",))
        graph.add(0, 1.0, stream, tag=("waiting",), priority=2)
        urgent = graph.add(0, 1.0, stream, [gate], tag=("urgent",), priority=1)

        assert execute(graph).start_s[urgent] == 1.0


def test_a_collective_starts_when_all_its_members_have_come() -> None:
    graph = TaskGraph(["work", "all-reduce"])
    streams = [graph.add_stream(f"d{device}", device=device) for device in range(3)]
    for device, seconds in enumerate((1.0, 4.0, 2.0)):
        graph.add(0, seconds, streams[device], tag=(f"work {device}",))
    graph.add_collective(1, 1.0, streams, tag=("sum",))
    graph.add(0, 1.0, streams[0], tag=("after",))

    assert log(graph, execute(graph))[3:] == [("sum", 4.0, 5.0), ("after", 5.0, 6.0)]


def test_a_collective_waits_at_the_head_of_every_free_queue() -> None:
    graph = TaskGraph(["work", "all-reduce"])
    a, b = (graph.add_stream(name, device=0, ordered=False) for name in "ab")
    graph.add(0, 3.0, a, tag=("busy a",))
    graph.add_collective(1, 1.0, (a, b), tag=("both",))
    graph.add(0, 1.0, b, tag=("behind",))

    assert log(graph, execute(graph))[1:] == [("both", 3.0, 4.0), ("behind", 4.0, 5.0)]


def test_two_transfers_on_one_link_get_half_of_it_each() -> None:
    """10 bytes each at half of 10 B/s until t = 2; then the longer one has the link alone for its other 20 bytes."""
    graph = TaskGraph(["send"])
    link = graph.add_link("link", 10.0)
    graph.add_transfer(0, 10.0, [link], tag=("short",))
    graph.add_transfer(0, 30.0, [link], tag=("long",))

    assert log(graph, execute(graph)) == [("short", 0.0, 2.0), ("long", 0.0, 4.0)]


def test_a_transfer_that_comes_later_slows_the_first_from_then_on() -> None:
    graph = TaskGraph(["work", "send"])
    link = graph.add_link("link", 10.0)
    wait = graph.add(0, 1.0, tag=("wait",))
    graph.add_transfer(1, 20.0, [link], tag=("first",))
    graph.add_transfer(1, 5.0, [link], after=[wait], tag=("second",), latency_s=0.5)

    # 15 bytes of the first until t = 1.5, then 5 B/s each: both end 1 s later.
    assert log(graph, execute(graph))[1:] == [("first", 0.0, 2.5), ("second", 1.0, 2.5)]


def test_rates_are_max_min_fair() -> None:
    """Bertsekas and Gallager's line: three flows share a link of 12, one of them goes on over a link of 2 and leaves
    the rest to the others: 2, 5 and 5."""
    graph = TaskGraph(["send"])
    wide, narrow = graph.add_link("wide", 12.0), graph.add_link("narrow", 2.0)
    graph.add_transfer(0, 2.0, [wide, narrow], tag=("far",))
    graph.add_transfer(0, 5.0, [wide], tag=("near",))
    graph.add_transfer(0, 5.0, [wide], tag=("near too",))

    assert [end for _, _, end in log(graph, execute(graph))] == pytest.approx([1.0, 1.0, 1.0], rel=1e-12)


@settings(max_examples=tries(60))
@given(st.data())
def test_sharing_matches_a_step_by_step_simulation(data: st.DataObject) -> None:
    links = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=4))
    routes = st.lists(st.sampled_from(range(len(links))), min_size=1, max_size=3, unique=True)
    flows = data.draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 20), routes), min_size=1, max_size=7))
    graph = TaskGraph(["send"])
    for number, capacity in enumerate(links):
        graph.add_link(f"link {number}", float(capacity))
    for begin, size, route in flows:
        graph.add_transfer(0, float(size), route, latency_s=float(begin))

    assert execute(graph).end_s == pytest.approx(slowly(links, flows), rel=1e-9)


@pytest.mark.parametrize("most", [1, sharing.MOST_REMEMBERED])
@pytest.mark.parametrize("seed", range(6))
def test_sharing_on_many_links_is_fair(seed: int, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rates that are remembered, and rates that are set region by region; uplinks of every four ports, some wide and
    some narrow."""
    monkeypatch.setattr(sharing, "MOST_REMEMBERED", most)
    draw = random.Random(seed)
    ports, uplinks = [draw.randint(1, 4) for _ in range(24)], [draw.choice((3, 40)) for _ in range(6)]
    flows = []
    for _ in range(60):
        source, target = draw.sample(range(24), 2)
        across = [24 + source // 4, 24 + target // 4] if source // 4 != target // 4 else []
        flows.append((draw.randint(0, 8), draw.randint(1, 20), [source, *across, target]))
    graph = TaskGraph(["send"])
    for number, capacity in enumerate(ports + uplinks):
        graph.add_link(f"link {number}", float(capacity))
    for begin, size, route in flows:
        graph.add_transfer(0, float(size), route, latency_s=float(begin))

    assert execute(graph).end_s == pytest.approx(slowly(ports + uplinks, flows), rel=1e-9)


@pytest.mark.parametrize("uplink", [2, 5, 9])
@pytest.mark.parametrize("seed", range(4))
def test_one_clock_for_all_and_one_for_each_give_the_same(seed: int, uplink: int) -> None:
    """Three ports under an uplink, twice, which learn from each other: with many transfers the uplink decides for all,
    with few the ports, and a component goes from one to the other and back."""
    draw = random.Random(seed)
    links = [3, 3, 2, uplink] * 2
    flows = []
    for _ in range(50):
        half = 4 * draw.randint(0, 1)
        flows.append((draw.randint(0, 40), draw.randint(1, 12), [half + draw.randint(0, 2), half + 3]))
    graph = TaskGraph(["send"])
    for number, capacity in enumerate(links):
        graph.add_link(f"link {number}", float(capacity))
    for begin, size, route in flows:
        graph.add_transfer(0, float(size), route, latency_s=float(begin))

    assert execute(graph).end_s == pytest.approx(slowly(links, flows), rel=1e-9)


def slowly(links: list[int], flows: list[tuple[int, int, list[int]]]) -> list[float]:
    """Return ends of flows: every rate anew at every event."""
    left = {number: float(size) for number, (_, size, _) in enumerate(flows)}
    ends, now = [0.0] * len(flows), 0.0
    while left:
        active = [number for number in left if flows[number][0] <= now]
        rate = fair(links, {number: flows[number][2] for number in active})
        steps = [left[number] / rate[number] for number in active]
        steps += [flows[number][0] - now for number in left if flows[number][0] > now]
        step = min(steps)
        now += step
        for number in active:
            left[number] -= rate[number] * step
            if left[number] < 1e-9:
                ends[number] = now
                del left[number]
    return ends


def fair(links: list[int], routes: dict[int, list[int]]) -> dict[int, float]:
    """Return max-min fair rates by raising all open ones until a link is full."""
    rate = {number: 0.0 for number in routes}
    room, still = [float(capacity) for capacity in links], set(routes)
    while still:
        users = [sum(link in routes[number] for number in still) for link in range(len(links))]
        rise = min(room[link] / users[link] for link in range(len(links)) if users[link])
        full = [link for link in range(len(links)) if users[link] and room[link] / users[link] <= rise * (1 + 1e-12)]
        for number in still:
            rate[number] += rise
        room = [room[link] - rise * users[link] for link in range(len(links))]
        still = {number for number in still if not set(full) & set(routes[number])}
    return rate


def two_sided(work_s: float, sent_s: float) -> TaskGraph:
    """Return work that takes twice as long beside communication, and communication 1.5 times as long beside work."""
    graph = TaskGraph(["work", "send"])
    compute = graph.add_stream("compute", device=0)
    network = graph.add_stream("network", device=0, ordered=False)
    graph.slow(compute, 2.0, [network])
    graph.slow(network, 1.5, [compute])
    graph.add(0, work_s, compute, tag=("work",))
    graph.add(1, sent_s, network, tag=("send",))
    return graph


def test_computation_slows_the_communication_it_overlaps_and_the_reverse() -> None:
    """4 s beside 4 s: sent after 6, when 3 of the work are done and the last one runs alone. 2 s beside 4 s: worked
    after 4, when 8/3 are sent and the other 4/3 run alone."""
    assert log(*_ran(two_sided(4.0, 4.0))) == [("work", 0.0, 7.0), ("send", 0.0, 6.0)]
    work, send = log(*_ran(two_sided(2.0, 4.0)))
    assert work == ("work", 0.0, 4.0)
    assert send == ("send", 0.0, pytest.approx(4.0 + 4.0 / 3.0))


def test_a_collective_goes_by_its_slowest_member_and_does_not_slow_itself() -> None:
    """3 s of two devices, of which one computes for 2 s and the other for 1 s behind a second of rest: at half speed
    for 2 s. A collective that occupies the compute stream itself runs at full speed."""
    graph = TaskGraph(["work", "reduce"])
    streams = [graph.add_stream(name, device=n // 2, ordered=n % 2 == 0) for n, name in enumerate("acbd")]
    for compute, network in (streams[:2], streams[2:]):
        graph.slow(compute, 2.0, [network])
        graph.slow(network, 2.0, [compute])
    gate = graph.add(0, 1.0, tag=("rest",))
    graph.add(0, 1.0, streams[0], tag=("long",))
    graph.add(0, 0.5, streams[2], [gate], tag=("short",))
    graph.add_collective(1, 3.0, (streams[1], streams[3]), tag=("reduce",))
    run = execute(graph)

    # Beside the collective 1 s of work takes 2 s, and 0.5 s of it 1 s: both end after 2 s, with 1 s reduced.
    assert log(graph, run) == [("rest", 0.0, 1.0), ("long", 0.0, 2.0), ("short", 1.0, 2.0), ("reduce", 0.0, 4.0)]
    alone = TaskGraph(["reduce"])
    compute, network = alone.add_stream("compute", device=0), alone.add_stream("network", device=0, ordered=False)
    alone.slow(compute, 2.0, [network])
    alone.slow(network, 2.0, [compute])
    alone.add_collective(0, 3.0, (compute, network), tag=("reduce",))
    assert log(*_ran(alone)) == [("reduce", 0.0, 3.0)]


def _ran(graph: TaskGraph) -> tuple[TaskGraph, Execution]:
    return graph, execute(graph)


def test_communication_slows_the_computation_it_overlaps() -> None:
    """2 s of work at full speed, 3 s under communication count for 2 of the 6, the last 2 again at full speed."""
    graph = TaskGraph(["work", "send"])
    compute, network = graph.add_stream("compute", device=0), graph.add_stream("network", device=0)
    graph.slow(compute, 1.5, [network])
    gate = graph.add(0, 2.0, tag=("gate",))
    graph.add(0, 6.0, compute, tag=("work",))
    graph.add(1, 3.0, network, [gate], tag=("send",))

    assert log(graph, execute(graph))[1:] == [("work", 0.0, 7.0), ("send", 2.0, 5.0)]


@settings(max_examples=tries(40))
@given(st.data())
def test_a_run_depends_on_nothing_but_the_graph(data: st.DataObject) -> None:
    """Twice the same; no stream ever runs two tasks at once; nothing starts before what it needs."""
    count = data.draw(st.integers(1, 25))
    graph = TaskGraph(["work"])
    streams = [graph.add_stream(f"s{i}", device=0, ordered=data.draw(st.booleans())) for i in range(3)]
    edges = []
    for task in range(count):
        after = data.draw(st.lists(st.integers(0, task - 1), max_size=3, unique=True)) if task else []
        edges += [(before, task) for before in after]
        members = data.draw(st.lists(st.sampled_from(streams), min_size=1, max_size=2, unique=True))
        seconds = float(data.draw(st.integers(0, 3)))
        graph.add_collective(0, seconds, members, after, priority=data.draw(st.integers(0, 2)))
    run = execute(graph)

    assert run == execute(graph)
    assert all(run.end_s[before] <= run.start_s[after] for before, after in edges)
    assert all(run.end_s[t] - run.start_s[t] == graph.duration_s[t] for t in range(count))
    for stream in streams:
        on = [t for t in range(count) if stream in graph.members_of.get(t, (graph.stream[t],)) and graph.duration_s[t]]
        spans = sorted((run.start_s[t], run.end_s[t]) for t in on)
        assert all(first[1] <= second[0] for first, second in itertools.pairwise(spans))


def test_a_circle_is_named() -> None:
    graph = TaskGraph(["send", "receive"])
    a, b = (graph.add_stream(name, device=0) for name in ("device 0", "device 1"))
    first, last = graph.add(1, 1.0, a, tag=("x",)), graph.add(1, 1.0, b, tag=("y",))
    graph.need(first, graph.add(0, 1.0, b, tag=("x",)))
    graph.need(last, graph.add(0, 1.0, a, tag=("y",)))

    law = (
        r"must have no cycle .* but 4 of 4 tasks never start: "
        r".*receive x on device 0 -> send y on device 0 -> receive y on device 1 -> send x on device 1"
    )
    with pytest.raises(RequestError, match=law):
        execute(graph)


def test_a_task_that_never_ends_is_named() -> None:
    graph = TaskGraph(["send", "receive"])
    stream = graph.add_stream("device 0", device=0)
    graph.add(0, 1.0, stream, tag=("x",))
    graph.need(graph.add(0, math.inf, stream, tag=("y",)), graph.add(1, 1.0, stream, tag=("z",)))
    with pytest.raises(RequestError, match=r"finite times, but send y on device 0 takes inf s"):
        execute(graph)


def test_graphs_refuse_what_has_no_meaning() -> None:
    graph = TaskGraph(["send"])
    stream = graph.add_stream("s", device=0)
    link = graph.add_link("nic", 1.0)
    with pytest.raises(RequestError, match="capacity of link cable must be more than 0"):
        graph.add_link("cable", 0.0)
    with pytest.raises(RequestError, match=r"crosses one or more links, each once, but got \['nic', 'nic'\]"):
        graph.add_transfer(0, 1.0, [link, link])
    with pytest.raises(RequestError, match=r"factor of at least 1, but got 0\.5"):
        graph.slow(stream, 0.5, [])


def test_an_empty_graph_takes_no_time() -> None:
    assert execute(TaskGraph([])).makespan_s == 0.0
