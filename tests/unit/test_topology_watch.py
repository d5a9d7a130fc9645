"""What `headgate topology watch` says of one look after the other."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from headgate.cli.topology_watch import Change, Look, Traffic, _say, followed, looking, watching
from headgate.kafka.topology import with_rates
from headgate.topology.checks import findings_of
from headgate.topology.cluster import Topology
from headgate.topology.document import as_document
from headgate.topology.history import History
from headgate.topology.standing import Standing
from tests.topologies import cluster

TOGETHER = cluster({"A": [[1, 2], [2, 1]], "B": [[2, 3], [3, 2]]})
"""A on nodes 1 and 2, B on 2 and 3: they overlap on node 2."""
APART = cluster({"A": [[1, 2], [1, 2]], "B": [[2, 3], [3, 2]]})


def looks(*topologies: Topology) -> list[Change | None]:
    standing: Standing | None = None
    history, changes = History(), []
    for epoch, seen in enumerate(topologies):
        standing, change = followed(standing, replace(seen, epoch=epoch), history)
        changes.append(change)
    return changes


def test_traffic_stays_as_last_heard_while_nobody_tells() -> None:
    """Else a hiccup of the monitor's topic would turn bytes per second into one for every topic."""
    traffic = Traffic()
    heard = [{}, {"A": 500.0, "B": 20.0}, {}, {"A": 600.0}]
    rates = [[topic.rate for topic in traffic.on(TOGETHER, rates).topics] for rates in heard]
    assert rates == [[1.0, 1.0], [500.0, 20.0], [500.0, 20.0], [600.0, 0.0]]


def test_it_is_quiet_while_nothing_but_traffic_changes() -> None:
    busier = TOGETHER.changed(replace(topic, rate=9.0) for topic in TOGETHER.topics)
    assert [change is None for change in looks(TOGETHER, TOGETHER, busier)] == [False, True, True]


def test_no_node_is_overloaded_by_what_is_left_of_traffic_that_ended() -> None:
    """B-21: sums of floats do not come back to zero when what was added is taken away in another order."""
    standing = Standing(TOGETHER)
    for rates in ((0.1, 0.7), (1e9 / 3, 0.3), (1e-3, 1e6 / 7), (0.0, 0.0)):
        seen = with_rates(TOGETHER, dict(zip("AB", rates, strict=True)))
        standing, _ = followed(standing, seen, History())
    assert dict(standing.loads.default) == dict(standing.loads.node) == {1: 0.0, 2: 0.0, 3: 0.0}
    assert findings_of(standing) == findings_of(Standing(seen))


def test_an_overlap_is_named_with_its_topics_when_it_begins_ends_and_comes_again() -> None:
    """B-11: first seen in epoch 1, gone in 2, back in 3, gone in 4."""
    changes = looks(APART, TOGETHER, APART, TOGETHER, APART)
    begun = [[(str(s.overlap.first), s.first_epoch) for s in c.overlaps.begun] for c in changes if c]
    over = [[(str(s.overlap.second), s.last_epoch) for s in c.overlaps.over] for c in changes if c]
    assert begun == [[], [("{A}", 1)], [], [("{A}", 1)], []]
    assert over == [[], [], [("{B}", 1)], [], [("{B}", 3)]]
    assert [c.pairs_known for c in changes if c] == [0, 1, 1, 1, 1]


def test_lines_and_json_tell_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    *_, back, _ = looks(APART, TOGETHER, APART, TOGETHER, APART)
    assert back is not None
    _say(Console(width=200), False, "changed", back)
    assert "overlap {A} and {B} on node 2 (epochs 1 to 3)" in capsys.readouterr().out
    _say(Console(), True, "changed", back)
    said = json.loads(capsys.readouterr().out)
    assert said["epoch"] == 3
    assert (said["overlapping_pairs_known"], said["overlapping_pairs_forgotten"]) == (1, 0)
    assert said["overlaps"] == [
        {"first": ["A"], "second": ["B"], "shared_nodes": [2], "first_epoch": 1, "last_epoch": 3}
    ]


def test_overlaps_that_cannot_be_followed_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    """Three topics that all meet on node 2 are three pairs; there is room for one, and one more is looked at."""
    crowd = cluster({"A": [[1], [2]], "B": [[2], [3]], "C": [[2]]})
    _, change = followed(None, crowd, History(most_pairs=1))
    assert change is not None
    _say(Console(width=200), False, "changed", change)
    assert "overlap at least 1 more pairs overlap than can be followed" in capsys.readouterr().out
    _say(Console(), True, "changed", change)
    assert json.loads(capsys.readouterr().out)["overlapping_pairs_forgotten"] == 1


def test_a_file_that_changes_while_it_is_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Good, half-written, good again with other leaders: three lines, and the second is no reason to end."""
    file, drawn = tmp_path / "cluster.json", tmp_path / "page.html"
    texts = iter([json.dumps(as_document(APART)), "{", "{", json.dumps(as_document(TOGETHER))])
    with looking(str(file), None, None, internal=False) as look:

        def edited() -> Topology:
            file.write_text(next(texts))
            return look.now()

        watching(Look(look.source, edited), 0.0, 4, None, as_json=True, page_file=drawn)
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["event"], line["epoch"]) for line in said] == [("changed", 0), ("unreachable", None), ("changed", 1)]
    assert "is not JSON" in said[1]["what"]
    assert [overlap["shared_nodes"] for overlap in said[2]["overlaps"]] == [[2]]
    assert "node 2: {A} and {B}" in drawn.read_text()
