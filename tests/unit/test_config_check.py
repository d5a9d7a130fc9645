"""`headgate check` lists every problem, hides none, and starts nothing."""

import json
import socket
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from headgate.cli.check import Finding, Status, check, check_pipeline, topic_findings, write_probe
from headgate.config import load_pipeline

GOOD = """\
name: shop
kafka:
  brokers: localhost:9092
topics: [orders]
tables:
  - name: all
"""

app = typer.Typer()
app.command()(check)


def run(folder: Path, text: str, *options: str) -> Result:
    (folder / "pipeline.yaml").write_text(text)
    return CliRunner().invoke(app, [str(folder / "pipeline.yaml"), *options])


def findings(folder: Path, text: str, offline: bool = True) -> list[Finding]:
    (folder / "pipeline.yaml").write_text(text)
    return list(check_pipeline(load_pipeline(folder / "pipeline.yaml", {"PASSWORD": "pa55word"}), offline))


def of(check: str, found: list[Finding]) -> list[tuple[Status, str]]:
    return [(finding.status, finding.message) for finding in found if finding.check == check]


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_a_wrong_file_is_listed_line_by_line_with_exit_code_2(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD + "fleat: {}\nslo: {latency_s: 5 MB}\n")
    assert result.exit_code == 2
    lines = result.stdout.splitlines()
    assert lines[0] == f"{tmp_path}/pipeline.yaml:7: fleat: unknown key; did you mean fleet?"
    assert lines[1].startswith(f"{tmp_path}/pipeline.yaml:8: slo.latency_s: ")
    assert "2 problem(s)" in lines[2]


def test_programs_get_the_same_as_json(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD + "fleat: {}\n", "--output", "json")
    assert result.exit_code == 2
    told = json.loads(result.stdout)
    assert told["ok"] is False
    assert told["problems"] == [
        {
            "file": f"{tmp_path}/pipeline.yaml",
            "line": 7,
            "field": "fleat",
            "message": "unknown key; did you mean fleet?",
        }
    ]


def test_checking_leaves_nothing_behind(tmp_path: Path) -> None:
    found = findings(tmp_path, GOOD)
    assert of("warehouse", found) == [(Status.ok, f"{tmp_path}/.headgate/shop/warehouse (will be created)")]
    assert (Status.ok, "headgate: 0 namespace(s)") in of("catalog", found)
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


def test_offline_says_what_it_did_not_ask(tmp_path: Path) -> None:
    found = findings(
        tmp_path, GOOD + "lake: {warehouse: 's3://bucket/x', catalog: {type: rest, uri: 'http://catalog.invalid'}}\n"
    )
    skipped = {finding.check for finding in found if finding.status is Status.skipped}
    assert skipped == {"warehouse", "catalog", "brokers", "topics"}


def test_unknown_plugins_are_named_with_the_nearest(tmp_path: Path) -> None:
    found = findings(tmp_path, GOOD + "policy: {name: sentinal, packer: mvf}\nfleet: {kind: thread}\n")
    assert of("policy", found) == [(Status.failed, "no policy is called sentinal; did you mean sentinel?")]
    assert of("packer", found) == [(Status.failed, "no packer is called mvf; did you mean mwf?")]
    assert of("fleet", found) == [(Status.failed, "no fleet is called thread; did you mean threads?")]


def test_a_parameter_that_the_packer_does_not_take_is_named(tmp_path: Path) -> None:
    ((status, message),) = of("packer", findings(tmp_path, GOOD + "policy: {packer_params: {nonsense: 1}}\n"))
    assert status is Status.failed
    assert message == "policy.packer_params: repair has no parameter nonsense; it takes consumer_price"


def test_an_interval_in_which_too_little_can_be_read_is_a_warning(tmp_path: Path) -> None:
    """Ten batches of 5 MB in a minute are 833 kB/s; by default a consumer counts for 2 MB/s."""
    assert of("consumer", findings(tmp_path, GOOD)) == []
    ((status, message),) = of("consumer", findings(tmp_path, GOOD + "lake: {commit_interval_s: 1 min}\n"))
    assert status is Status.warning
    assert message.startswith("it cannot read more than 833 kB/s and counts for 2 MB/s")
    batches = "lake: {commit_interval_s: 1 min}\nconsumer: {batch_bytes: 12 MB}\n"
    assert of("consumer", findings(tmp_path, GOOD + batches)) == []


def test_a_warehouse_below_a_file_is_not_writable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ((status, message),) = of("warehouse", findings(tmp_path, GOOD + "lake: {warehouse: file/lake}\n"))
    assert status is Status.failed
    assert "is not writable" in message


def test_transforms_are_imported_and_sql_is_left_to_spark(tmp_path: Path) -> None:
    tables = "    transform: no_such_module_here:f\n  - name: b\n    where: a >\n    sql: SELECT * FROM input\n"
    found = findings(tmp_path, GOOD + tables)
    ((status, message),) = of("transform", found)
    assert status is Status.failed
    assert "there is no module no_such_module_here" in message
    assert of("sql", found) == [
        (Status.skipped, "default.b: where, sql: checked when the consumer starts, or now with --spark")
    ]


def test_topics_that_do_not_exist_are_named_with_the_nearest(tmp_path: Path) -> None:
    text = GOOD.replace("[orders]", "[orders, ordres, zzz]") + "topics_pattern: click-.*\n"
    (tmp_path / "pipeline.yaml").write_text(text)
    found = list(topic_findings(load_pipeline(tmp_path / "pipeline.yaml", {}), frozenset({"orders", "other"})))
    assert [(finding.status, finding.message) for finding in found] == [
        (Status.ok, "orders"),
        (Status.failed, "there is no topic ordres; did you mean orders?"),
        (Status.failed, "there is no topic zzz; create it first"),
        (Status.warning, "click-.* matches no topic yet"),
    ]


def test_a_topic_that_the_pattern_finds_must_have_a_table(tmp_path: Path) -> None:
    (tmp_path / "pipeline.yaml").write_text(GOOD + "    topics: [orders]\ntopics_pattern: click-.*\n")
    found = list(topic_findings(load_pipeline(tmp_path / "pipeline.yaml", {}), frozenset({"orders", "click-a"})))
    assert [finding.message for finding in found if finding.status is Status.failed] == [
        "click-a matches topics_pattern, but no table takes it"
    ]


def test_brokers_and_catalog_that_do_not_answer_are_both_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.cli.check._BROKER_DEADLINE_S", 0.3)
    port = closed_port()
    found = findings(
        tmp_path,
        GOOD.replace("localhost:9092", f"127.0.0.1:{port}")
        + f"lake: {{catalog: {{type: rest, uri: 'http://127.0.0.1:{port}', token: pa55word}}}}\n",
        offline=False,
    )
    ((catalog, _),) = of("catalog", found)
    ((brokers, said),) = of("brokers", found)
    assert (catalog, brokers) == (Status.failed, Status.failed)
    assert "Connection refused" in said
    assert of("topics", found) == [(Status.skipped, "not looked up: the brokers did not answer")]
    assert not any("pa55word" in finding.message for finding in found)
    assert "FAIL" not in capfd.readouterr().err  # librdkafka's own log lines


def test_a_client_setting_that_librdkafka_does_not_know_is_named(tmp_path: Path) -> None:
    text = GOOD.replace("9092", "9092\n  client: {no.such.setting: 1}")
    ((status, message),) = of("brokers", findings(tmp_path, text, offline=False))
    assert status is Status.failed
    assert "no.such.setting" in message


def test_the_probe_of_a_remote_warehouse_writes_and_deletes(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    assert write_probe(f"file://{tmp_path}/lake", {}) == "writable"
    assert list((tmp_path / "lake").iterdir()) == []


def test_exit_code_is_1_when_the_file_is_right_and_a_check_fails(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD + "policy: {packer: mvf}\n", "--offline")
    assert result.exit_code == 1
    assert "failed   packer     no packer is called mvf; did you mean mwf?" in result.stdout.splitlines()


def test_exit_code_is_0_when_nothing_stands_in_the_way(tmp_path: Path) -> None:
    result = run(tmp_path, GOOD, "--offline")
    assert result.exit_code == 0, result.stdout
    assert result.stdout.splitlines()[-1] == f"{tmp_path}/pipeline.yaml: nothing stands in the way"


def test_a_home_that_cannot_be_used_fails_once_for_each_check_and_is_ok_for_none(tmp_path: Path) -> None:
    found = findings(tmp_path, GOOD + "home: /dev/null/x\n")
    assert of("catalog", found) == [(Status.failed, "/dev/null/x is not writable: Not a directory (/dev/null)")]
    assert of("table", found) == []


def test_a_home_that_cannot_be_looked_at_is_a_failed_check(tmp_path: Path) -> None:
    hidden = tmp_path / ("x" * 300)  # like a folder of somebody else's, which root could look at
    ((status, message),) = of("catalog", findings(tmp_path, GOOD + f"home: {hidden}/home\n"))
    assert status is Status.failed
    assert "is not writable: File name too long" in message
