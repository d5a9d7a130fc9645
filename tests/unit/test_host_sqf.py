"""SQF shared by the processes of a host: they see each other, outlive each other, and take no lock for a record."""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headgate.errors import ConfigError, SetupError
from headgate.producers.host import HostSqf
from headgate.producers.host_memory import HostMemory, host_memory
from headgate.producers.protocol import ClusterView
from headgate.topology.failures import failed, recovered
from tests.topologies import cluster

OVERLAP = cluster({"A": [[1], [2], [2]], "B": [[2], [3]]})
forked = multiprocessing.get_context("fork")


def send(folder: Path, topic: str, records: int) -> Counter[int]:
    sqf, view = HostSqf(folder=folder), ClusterView.of(OVERLAP, "there")
    return Counter(sqf.partition(topic, None, b"", view) for _ in range(records))


@contextmanager
def sent_by_a_living_process(folder: Path, topic: str, records: int) -> Iterator[int]:
    """Its id; it is killed afterwards."""

    def send_and_live(sent: "multiprocessing.synchronize.Event") -> None:
        send(folder, topic, records)
        sent.set()
        signal.pause()

    sent = forked.Event()
    process = forked.Process(target=send_and_live, args=(sent,))
    process.start()
    assert sent.wait(30)
    assert process.pid is not None
    try:
        yield process.pid
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.join(30)


def test_processes_level_nodes_that_their_topics_share(tmp_path: Path) -> None:
    """B-25's cluster: X has sent to A, so half of it is on node 2; then Y's 960 records for B go to node 3 until it has
    what node 2 has, and the rest is halved: 480 each, 960 in all."""
    with sent_by_a_living_process(tmp_path, "A", 960):
        sent = send(tmp_path, "B", 960)
        assert sent == {0: 240, 1: 720}
        assert HostSqf(folder=tmp_path).usage(ClusterView.of(OVERLAP, "there")) == {1: 480, 2: 720, 3: 720}


def test_whoever_finds_no_living_process_begins_level(tmp_path: Path) -> None:
    """A job sent 960 records to A, half of them to node 2, and has ended. The next one is alone on the host: what its
    nodes got from a job that is no more is no reason to send all of B to one of them."""
    with sent_by_a_living_process(tmp_path, "A", 960):
        pass
    assert send(tmp_path, "B", 960) == {0: 480, 1: 480}


def test_a_process_that_joins_while_another_lives_does_not_begin_level(tmp_path: Path) -> None:
    """X lives, Y joins, X ends, Z joins: Y has been there all the time, so what X sent still counts. X sent 480 to node
    2; Y has sent nothing, and Z's first 480 go to node 3."""
    begun, end = forked.Event(), forked.Event()

    def joins_and_waits() -> None:
        HostSqf(folder=tmp_path).bound("B", ClusterView.of(OVERLAP, "there"))
        begun.set()
        assert end.wait(30)

    y = forked.Process(target=joins_and_waits)
    with sent_by_a_living_process(tmp_path, "A", 960):
        y.start()
        assert begun.wait(30)
    assert send(tmp_path, "B", 480) == {1: 480}
    end.set()
    y.join(30)
    assert y.exitcode == 0


def test_a_process_that_was_killed_leaves_what_it_sent_and_its_row(tmp_path: Path) -> None:
    memory = host_memory("there", tmp_path)
    slots = memory.slots([1, 2], [])
    for _ in range(3):  # one after the other in the same row: otherwise this test would need three
        with sent_by_a_living_process(tmp_path, "A", 64):
            pass
    assert memory.usage(slots) == [96, 96]
    assert [int(row.sum()) for row in memory._rows if row.any()] == [192]


def test_a_child_counts_in_a_row_of_its_own(tmp_path: Path) -> None:
    memory = host_memory("there", tmp_path)
    slots = memory.slots([1, 2], [1, 2])
    memory.add(slots, [1, 0])
    child = forked.Process(target=memory.add, args=(slots, [0, 5]))
    child.start()
    child.join(30)
    memory.add(slots, [1, 0])
    assert memory.usage(slots) == [2, 5]
    assert sorted(int(row.sum()) for row in memory._rows if row.any()) == [2, 5]


def test_a_node_that_comes_back_gets_its_share_and_not_everything(tmp_path: Path) -> None:
    """B-34: what nodes 2 and 3 were sent meanwhile is not made up for."""
    topology = cluster({"A": [[1], [2], [3]]})
    sqf = HostSqf(folder=tmp_path, ahead=1)
    away = failed(topology, [1])
    for now, expected in (
        (topology, {0: 30, 1: 30, 2: 30}),
        (away, {1: 45, 2: 45}),
        (recovered(away, [1]), {0: 30, 1: 30, 2: 30}),
    ):
        view = ClusterView.of(now, "there")
        assert Counter(sqf.partition("A", None, b"", view) for _ in range(90)) == expected


THREE = cluster({"A": [[1, 2], [2, 3], [3, 1]]})
AWAY = failed(THREE, [1])
LEADS_NOTHING = replace(ClusterView.of(AWAY, "there"), nodes=(1, 2, 3))
"""Node 1 is back, and its partition is still led by node 2."""


def shares(folder: Path, *views: ClusterView) -> list[Counter[int]]:
    """By view, the records of each partition, of 90 in all; one process sees them one after the other."""
    sqf = HostSqf(folder=folder, ahead=1, start=lambda: 0)
    return [Counter(sqf.partition("A", None, b"", view) for _ in range(90)) for view in views]


def test_a_node_that_is_back_and_leads_nothing_for_a_while_does_not_get_everything_afterwards(tmp_path: Path) -> None:
    """B-34: brokers are back some time before they lead again."""
    healthy, away = ClusterView.of(THREE, "there"), ClusterView.of(AWAY, "there")
    *_, back = shares(tmp_path, healthy, away, LEADS_NOTHING, ClusterView.of(THREE, "there"))
    assert back == {0: 30, 1: 30, 2: 30}


def test_a_process_that_starts_when_a_node_leads_again_knows_that_others_saw_it_away(tmp_path: Path) -> None:
    """Its first view shows nothing of that; the one that saw it has ended."""
    shares(tmp_path, ClusterView.of(THREE, "there"), ClusterView.of(AWAY, "there"), LEADS_NOTHING)
    assert shares(tmp_path, ClusterView.of(THREE, "there")) == [{0: 30, 1: 30, 2: 30}]


def test_a_node_that_leads_again_is_not_put_below_what_other_processes_send_it(tmp_path: Path) -> None:
    """For topic A node 1 is away and back, while another process writes 300 records to it for topic B: A's records go
    to nodes 2 and 3 until they have as many. A sent 30 to each node, then 45 to 2 and 3: those have 75, node 1 330."""
    sqf = HostSqf(folder=tmp_path, ahead=1)
    healthy, away, back = (ClusterView.of(topology, "there") for topology in (THREE, AWAY, THREE))
    for view in (healthy, away):
        Counter(sqf.partition("A", None, b"", view) for _ in range(90))
    other, only_b = HostSqf(folder=tmp_path, ahead=1), ClusterView.of(cluster({"B": [[1]]}), "there")
    for _ in range(300):
        other.partition("B", None, b"", only_b)
    assert sqf.usage(back)[1] == 330
    assert Counter(sqf.partition("A", None, b"", back) for _ in range(510)) == {1: 255, 2: 255}


def test_producers_of_one_process_keep_each_others_weights_when_the_topology_changes(tmp_path: Path) -> None:
    """X is on nodes 1 and 2, which got 1,000 each; Z on 2 and 3, and its 10 records went to node 3. A fourth node
    appears, and both see it: node 3 has not begun to lead because X's nodes are others."""
    rows = {"X": [[1], [2]], "Z": [[2], [3]]}

    def view(topic: str, nodes: int) -> ClusterView:
        return ClusterView.of(cluster({topic: rows[topic]}, nodes=nodes), "there")

    sqf = HostSqf(folder=tmp_path, ahead=1)
    for topic, records in (("X", 2_000), ("Z", 10)):
        seen = view(topic, nodes=3)
        for _ in range(records):
            sqf.partition(topic, None, b"", seen)
    for topic in rows:
        usage = sqf.usage(view(topic, nodes=4))
        assert [usage[node] for node in (1, 2, 3)] == [1_000, 1_000, 10]


def test_a_node_that_nobody_knew_joins_at_the_least_used_ones_level(tmp_path: Path) -> None:
    shares(tmp_path, ClusterView.of(cluster({"A": [[1], [2]]}, nodes=2), "there"))
    assert shares(tmp_path, ClusterView.of(THREE, "there")) == [{0: 30, 1: 30, 2: 30}]


def test_names_keep_clusters_apart(tmp_path: Path) -> None:
    assert host_memory("here", tmp_path) is host_memory("here", tmp_path)
    here, there = host_memory("here", tmp_path), host_memory("there", tmp_path)
    slots = [memory.slots([7], [7]) for memory in (here, there)]
    here.add(slots[0], [3])
    assert (here.usage(slots[0]), there.usage(slots[1])) == ([3], [0])


def test_what_cannot_be_shared_is_said(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="cannot be shared"):
        HostMemory(tmp_path / "nowhere" / "x")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(SetupError, match="cannot be shared"):
        HostMemory(tmp_path / "link")
    with pytest.raises(ConfigError, match="at least 1 record"):
        HostSqf(ahead=0)
    with pytest.raises(ConfigError, match="out of order"):
        HostSqf(folder=tmp_path).partition("A", b"key", b"", ClusterView.of(OVERLAP))
