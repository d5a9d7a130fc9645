"""`headgate topology` on files: exit codes for CI, every output, and complaints that name the place."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.errors import HeadgateError
from headgate.kafka.topology import with_rates
from headgate.topology.document import as_document, read_topology
from headgate.topology.failures import failed
from tests.topologies import cluster

EVEN = {"A": [[1, 2], [2, 3], [3, 1]]}
UNEVEN = {"A": [[1, 2], [1, 3], [3, 1]]}


def written(folder: Path, document: Any, name: str = "cluster.json") -> str:
    file = folder / name
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(file)


def headgate(*words: str) -> tuple[int, str]:
    ended = CliRunner().invoke(app, ["topology", *words])
    if isinstance(ended.exception, HeadgateError):
        return ended.exception.exit_code, str(ended.exception)
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.output


def test_the_exit_code_tells_a_pipeline_what_to_do(tmp_path: Path) -> None:
    even, uneven = (
        written(tmp_path, as_document(cluster(EVEN))),
        written(tmp_path, as_document(cluster(UNEVEN)), "u.json"),
    )
    code, said = headgate("report", "--from", even)
    assert (code, said.splitlines()[0][:8]) == (0, "HEALTHY:")
    code, said = headgate("report", "--from", uneven)
    assert (code, said.splitlines()[0][:8]) == (1, "WARNING:")
    assert headgate("report", "--from", uneven, "--fail-on", "critical")[0] == 0


def test_json_and_html_carry_the_same_verdict(tmp_path: Path) -> None:
    file = written(tmp_path, as_document(cluster(UNEVEN)))
    code, said = headgate("report", "--from", file, "--output", "json")
    report = json.loads(said)
    assert code == 1
    assert report["findings"][0]["severity"] == "warning"
    assert len(report["simulation"]["consequences"]) == 3
    _, html = headgate("report", "--from", file, "--output", "html")
    assert report["verdict"] in html


def test_every_output_says_which_topics_overlap(tmp_path: Path) -> None:
    """B-9's second mode, asked for; A and C on nodes 1 and 2, B on 2 and 3."""
    file = written(tmp_path, as_document(cluster({"A": [[1], [2]], "B": [[2], [3]], "C": [[2], [1]]})))
    _, said = headgate("report", "--from", file, "--overlaps", "5")
    assert "node 2: {A, C} and {B}" in said
    assert "{A, C} and {B} on node 2" in said
    _, said = headgate("report", "--from", file, "--overlaps", "5", "--output", "json")
    report = json.loads(said)
    assert report["shared"] == [{"node": 2, "groups": [["A", "C"], ["B"]], "more_groups": 0}]
    assert report["pairs"] == [{"first": ["A", "C"], "second": ["B"], "shared_nodes": [2]}]
    _, said = headgate("report", "--from", file, "--output", "json")
    assert json.loads(said)["pairs"] is None
    _, html = headgate("report", "--from", file, "--overlaps", "5", "--output", "html")
    assert "{A, C}, {B}" in html
    assert "<td class=name>{A, C}</td><td>{B}</td><td>2</td>" in html


def test_equal_rates_are_known_if_they_were_given(tmp_path: Path) -> None:
    """A cluster whose topics have no rates is told how to get some; one with equal rates, or a single topic, is not."""
    document = as_document(cluster(EVEN))
    assert "rate" not in document["topics"][0]
    unknown = written(tmp_path, document)
    given = written(tmp_path, document | {"topics": [document["topics"][0] | {"rate": 1.0}]}, "given.json")
    assert "no traffic is known" in headgate("report", "--from", unknown)[1]
    assert "no traffic is known" not in headgate("report", "--from", given)[1]
    (again,) = as_document(read_topology(Path(given).read_text(), given))["topics"]
    assert again["rate"] == 1.0


def test_a_rate_that_nobody_measured_is_null_in_the_file(tmp_path: Path) -> None:
    """Left out it would be 1, next to nothing beside the bytes of the others."""
    measured = with_rates(cluster(EVEN | {"B": [[1, 2]]}), {"A": 1e6})
    document = as_document(measured)
    assert [topic["rate"] for topic in document["topics"]] == [1e6, None]
    file = written(tmp_path, document)
    again = read_topology(Path(file).read_text(), file)
    assert (again, again.unmeasured, again.rates_known) == (measured, frozenset({"B"}), True)
    code, said = headgate("report", "--from", file)
    assert code == 1
    assert said.startswith("WARNING: 1 topic without a measured rate")
    # Where no rate is known at all, all count alike.
    document["topics"][0]["rate"] = None
    nobody = written(tmp_path, document, "nobody.json")
    assert [topic.rate for topic in read_topology(Path(nobody).read_text(), nobody).topics] == [1.0, 1.0]
    assert "no traffic is known" in headgate("report", "--from", nobody)[1]


def test_advice_is_saved_as_a_file_that_report_accepts(tmp_path: Path) -> None:
    file, plan = written(tmp_path, as_document(cluster(UNEVEN))), str(tmp_path / "plan.json")
    code, _ = headgate("advise", "--from", file, "--save", plan)
    assert code == 0
    code, said = headgate("report", "--from", file, "--change", plan)
    assert (code, said.splitlines()[0][:8]) == (0, "HEALTHY:")


def test_advice_is_given_where_the_report_asks_for_it_with_three_replicas_and_a_node_away(tmp_path: Path) -> None:
    topology = failed(cluster({"A": [[1, 2, 3], [2, 3, 1], [3, 1, 2]], "B": [[2, 3, 1], [3, 2, 1]]}), [1])
    file = written(tmp_path, as_document(topology))
    code, said = headgate("report", "--from", file)
    assert code == 1
    assert "headgate topology advise" in " ".join(said.split())
    code, said = headgate("advise", "--from", file)
    assert code == 0
    assert "Node 1 is offline" in said
    assert "not replace: no live node is free" in said


def test_simulate_says_what_a_return_and_a_standby_would_change(tmp_path: Path) -> None:
    """Node 1 of EVEN fails: node 2 leads two of three. Back, node 1 leads nothing and node 2 has twice its share; home,
    all have theirs. With a standby node 2 would not get more than its share at all."""
    file = written(tmp_path, as_document(cluster(EVEN)))
    _, said = headgate("simulate", "--from", file, "--recovery", "--spare", "--output", "json")
    document = json.loads(said)
    of_1 = {"back": 2.0, "home": 1.0}
    (recovery,) = (r for r in document["recoveries"] if r["nodes"] == [1])
    assert {when: recovery[when]["skew"] for when in of_1} == pytest.approx(of_1)
    assert recovery["idle"] == [1]
    (spare,) = (s for s in document["spares"] if s["node"] == 1)
    assert spare["load_without"]["skew"] == pytest.approx(4 / 3)
    assert spare["load_with"]["skew"] == pytest.approx(1.0)
    _, said = headgate("simulate", "--from", file, "--recovery", "--spare")
    assert "When the nodes are back and in sync" in said
    assert "What a standby for each node would change when it fails, and cost" in said


def test_simulate_prints_failures_and_the_price_of_spares(tmp_path: Path) -> None:
    file = written(tmp_path, as_document(cluster(EVEN)))
    code, said = headgate("simulate", "--from", file, "--failures", "2", "--spare")
    assert code == 0
    assert "3 of 3 failures of 1 node(s)" in said
    assert "3 of 3 failures of 2 node(s)" in said
    code, said = headgate("simulate", "--from", file, "--failures", "2", "--scenarios", "4", "--output", "json")
    assert json.loads(said)["covered"] == {"1": {"seen": 3, "scenarios": 3}, "2": {"seen": 1, "scenarios": 3}}


NODE = {"id": 1}
PARTITION = {"id": 0, "leader": 1, "replicas": [1], "isr": [1]}


def with_partition(**changed: Any) -> dict[str, Any]:
    return {"nodes": [NODE, {"id": 2}], "topics": [{"name": "A", "partitions": [PARTITION | changed]}]}


def with_topic(name: str) -> dict[str, Any]:
    return {"nodes": [NODE], "topics": [{"name": name, "partitions": [PARTITION]}]}


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ("{", "is not JSON"),
        ("[]", "expected an object"),
        ({"topics": []}, "nodes is missing"),
        ({"nodes": [], "topics": []}, "no nodes"),
        ({"nodes": [{"id": "one"}], "topics": []}, 'nodes[0]: id must be a whole number, not "one"'),
        ({"nodes": [{"id": True}], "topics": []}, "id must be a whole number, not true"),
        ({"nodes": [NODE, NODE], "topics": []}, "node 1 is listed 2 times"),
        ({"nodes": [{"id": 1, "capacity": 0}], "topics": []}, "capacity must be above 0"),
        ({"nodes": [{"id": 1, "size": 4}], "topics": []}, "nodes[0]: unknown size"),
        ({"nodes": [NODE], "topics": [{"name": "A", "partitions": []}]}, "topic A has no partitions"),
        (with_topic(name="\ud800"), r"holds half a character, '\ud800'"),
        ({"nodes": [NODE | {"rack": "\udfff"}], "topics": []}, r"holds half a character, '\udfff'"),
        (with_topic(name="<b>"), "topic [<b>]: names have 1 to 249"),
        (with_topic(name=""), "topic []: names have 1 to 249"),
        (with_topic(name=".."), "topic [..]: names have 1 to 249"),
        (with_topic(name="a" * 250), "names have 1 to 249"),
        (with_partition(leader=2), "A-0: leader 2 is none of its replicas [1]"),
        (with_partition(replicas=[1, 1]), "A-0: a node may hold one replica only"),
        (with_partition(replicas=[1, 7]), "A-0: replicas on unknown nodes [7]"),
        (with_partition(replicas=[1, 2, 3]), "3 replicas need as many nodes"),
        (with_partition(isr=[2]), "in-sync nodes [2] hold no replica"),
        (with_partition(replicas=[1, 2], isr=[1, 1]), "A-0: a node is in sync once, not [1, 1]"),
        (with_partition(replicas=[1, 2], isr=[2]), "A-0: leader 1 is not in sync, only [2] are"),
        (with_partition(replicas=[1, 2], isr=[]), "A-0: leader 1 is not in sync, only [] are"),
        ("[" * 100_000, "is not JSON that can be read: it is nested too deeply"),
        ('{"nodes": ' + "[" * 100_000 + "]" * 100_000 + "}", "is not JSON that can be read: it is nested too deeply"),
        (
            '{"nodes": [{"id": 1}], "topics": [{"name": "A", "rate": 1' + "0" * 400 + ', "partitions": []}]}',
            "topics[0]: rate must be a number",
        ),
        (
            '{"nodes": [{"id": 1, "capacity": 1' + "0" * 400 + '}], "topics": []}',
            "nodes[0]: capacity must be a number",
        ),
        ('{"nodes": [{"id": 1' + "0" * 5000 + '}], "topics": []}', "is not JSON"),
        ({"nodes": [{"id": 10**30}], "topics": []}, "nodes[0]: id must be a whole number"),
        (
            {"nodes": [NODE], "topics": [{"name": "A", "partitions": [], "producer_rates": [10**400]}]},
            "producer_rates must be a list of numbers",
        ),
        (with_partition(replicas="1"), 'replicas must be a list of node ids, not "1"'),
        (with_partition(id=3), "partition ids must be 0 to 0"),
        ('{"nodes": [{"id": 1}], "topics": [{"name": "A", "rate": NaN, "partitions": []}]}', "rate must be a number"),
    ],
)
def test_a_file_that_describes_no_cluster_is_refused_by_name(tmp_path: Path, document: Any, complaint: str) -> None:
    code, said = headgate("report", "--from", written(tmp_path, document))
    assert code == 2
    assert complaint in said


def test_a_character_in_two_escaped_halves_is_a_text_like_any_other(tmp_path: Path) -> None:
    document = with_topic(name="a" * 249) | {"nodes": [NODE | {"rack": "\N{BEER MUG}"}]}
    file = written(tmp_path, document)
    assert "\\ud83c\\udf7a" in Path(file).read_text()
    assert read_topology(Path(file).read_text(), file).racks == {1: "\N{BEER MUG}"}


def test_a_leader_that_is_offline_is_refused(tmp_path: Path) -> None:
    document = with_partition() | {"nodes": [{"id": 1, "online": False}, {"id": 2}]}
    assert "leader 1 is offline" in headgate("report", "--from", written(tmp_path, document))[1]


@pytest.mark.parametrize(
    ("plan", "complaint"),
    [
        ("nonsense", "is not JSON"),
        ({"version": 2, "partitions": []}, "version 2 is unknown"),
        ({"version": True, "partitions": []}, "version True is unknown"),
        ({"partitions": [{"topic": "A", "partition": True, "replicas": [1, 2]}]}, "partitions[0] needs topic"),
        ({"partitions": [{"topic": "A", "partition": 0, "replicas": [True, 2]}]}, "partitions[0] needs topic"),
        ({"topics": []}, "is not a reassignment file"),
        ({"partitions": [{"topic": "A", "partition": 0}]}, "partitions[0] needs topic"),
        ({"partitions": [{"topic": "B", "partition": 0, "replicas": [1]}]}, "B-0: no such partition"),
        ({"partitions": [{"topic": "A", "partition": 9, "replicas": [1]}]}, "A-9: no such partition"),
        ({"partitions": [{"topic": "A", "partition": 0, "replicas": [9]}]}, "unknown nodes [9]"),
    ],
)
def test_a_reassignment_that_does_not_fit_is_refused(tmp_path: Path, plan: Any, complaint: str) -> None:
    file = written(tmp_path, as_document(cluster(EVEN)))
    code, said = headgate("report", "--from", file, "--change", written(tmp_path, plan, "plan.json"))
    assert code == 2
    assert complaint in said


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        (("report",), 2, "say which cluster"),
        (("report", "--brokers", "nowhere"), 2, "'nowhere' is no address"),
        (("report", "--from", "missing.json"), 2, "cannot read missing.json"),
        (("cancel",), 2, "say which cluster"),
        (("watch", "--brokers", "a:1", "--output", "html"), 2, "both: -o html and --output-file FILE"),
        (("watch", "--brokers", "a:1", "--output-file", "x.html"), 2, "both: -o html and --output-file FILE"),
        (("watch", "--from", "missing.json"), 2, "cannot read missing.json"),
        (("watch", "--from", "missing.json", "--brokers", "a:1"), 2, "missing.json is a file: leave out --brokers"),
    ],
)
def test_a_command_that_lacks_something_says_what(words: tuple[str, ...], code: int, complaint: str) -> None:
    assert headgate(*words)[0] == code
    assert complaint in headgate(*words)[1]


def test_a_file_cannot_be_applied_to(tmp_path: Path) -> None:
    code, said = headgate("advise", "--from", written(tmp_path, as_document(cluster(UNEVEN))), "--apply", "--yes")
    assert code == 2
    assert "--apply needs a live cluster" in said


def test_advice_is_a_page_too(tmp_path: Path) -> None:
    """Two of UNEVEN's three leaders on node 1, none on node 2: partition 0's replicas swap, and each leads one."""
    code, html = headgate("advise", "--from", written(tmp_path, as_document(cluster(UNEVEN))), "--output", "html")
    assert code == 0
    assert "<h2>leaders (best): other replicas lead; nothing is copied</h2>" in html
    assert "<tr><td class=name>node 1</td><td>0.6667</td><td>0.3333</td></tr>" in html
    assert "<tr><td class=name>node 2</td><td>0</td><td>0.3333</td></tr>" in html
    assert "<tr><td class=name>A-0</td><td>1, 2</td><td>2, 1</td></tr>" in html
    assert html.startswith("<!doctype html>")
    assert html.endswith("</body></html>\n")
    even = written(tmp_path, as_document(cluster(EVEN)), "even.json")
    assert "Nothing to gain" in headgate("advise", "--from", even, "--output", "html")[1]


def test_a_file_is_watched_and_drawn_as_a_page(tmp_path: Path) -> None:
    file, drawn = written(tmp_path, as_document(cluster(UNEVEN))), tmp_path / "page.html"
    words = ("--output", "html", "--output-file", str(drawn))
    code, said = headgate("watch", "--from", file, "--times", "2", "--interval", "1ms", *words)
    assert (code, said.count("3 nodes, 1 topics, 3 partitions")) == (0, 1)
    assert "1 online node leading nothing: 2" in drawn.read_text()


def test_an_unknown_plan_names_the_known_ones(tmp_path: Path) -> None:
    file = written(tmp_path, as_document(cluster(UNEVEN)))
    code, said = headgate("advise", "--from", file, "--plan", "magic", "--save", str(tmp_path / "plan.json"))
    assert code == 2
    assert "leaders" in said
    assert not (tmp_path / "plan.json").exists()
