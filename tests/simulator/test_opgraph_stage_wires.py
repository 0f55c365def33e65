"""Messages between stages on the ports of their nodes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.simulator.costs import point_to_point_time_s
from forerun.simulator.opgraph.stage_wires import SentMessages, port_seconds
from forerun.spaces.clusters import load_cluster

STAGES = 8
"""One pipeline over two nodes; a node of abci-v100 has four devices and two NICs, one of aws-p3 eight devices and one
NIC for every four of them."""
Messages = list[tuple[int, int]]
MESSAGES = st.lists(
    st.tuples(st.integers(0, STAGES - 1), st.integers(0, STAGES - 1)).filter(lambda ends: ends[0] != ends[1]),
    min_size=1,
    max_size=12,
)


def seconds(messages: Messages, cluster: str = "abci-v100", factor: float = 1.0) -> list[float]:
    """Return the seconds on the fullest ports of messages of 100 MB, with levels ``factor`` times as fast."""
    links = load_cluster(cluster)
    stages, readers = np.array(messages).T
    sent = SentMessages(
        parts_P=np.array([STAGES]),
        places_P=np.array([1]),
        ports_P=np.array([1]),
        row_M=np.zeros(len(messages), dtype=np.int64),
        stage_M=stages,
        reader_M=readers,
        bytes_M=np.full(len(messages), 1e8),
    )
    levels = tuple(
        replace(level, bytes_per_s=factor * level.bytes_per_s, port_bytes_per_s=factor * level.port_bytes_per_s)
        for level in links.levels
    )
    return port_seconds(replace(links, levels=levels), sent).tolist()


def test_two_stages_that_send_to_one_take_turns_at_its_port() -> None:
    (alone,) = seconds([(2, 4)])
    lone_s = float(point_to_point_time_s(load_cluster("abci-v100"), 1e8, 4, lone=True))
    assert alone == pytest.approx(lone_s, rel=0.01)
    assert seconds([(2, 4), (3, 4)]) == pytest.approx([2 * alone, 2 * alone])


def test_messages_by_different_nics_do_not_share_a_port() -> None:
    (alone,) = seconds([(0, 4)])
    assert seconds([(0, 4), (3, 7)]) == pytest.approx([alone, alone])
    assert seconds([(2, 6), (3, 7)]) == pytest.approx([2 * alone, 2 * alone])  # one NIC of the same socket


def test_ports_have_the_rates_of_calibrated_levels() -> None:
    messages = [(2, 4), (3, 4), (0, 1)]
    assert seconds(messages, factor=0.5) == pytest.approx([2 * one for one in seconds(messages)], rel=0.01)


@given(MESSAGES, MESSAGES, st.sampled_from(["abci-v100", "aws-p3", "dgx-a100-80", "dgx1-v100-1ib", "mi300x-platform"]))
def test_further_messages_never_free_a_port(some: Messages, others: Messages, cluster: str) -> None:
    fewer, more = seconds(some, cluster), seconds([*some, *others], cluster)
    assert all(after >= before * (1 - 1e-12) for before, after in zip(fewer, more, strict=False))
