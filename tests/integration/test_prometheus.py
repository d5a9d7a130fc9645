"""Alerts and dashboard asked of a real Prometheus, which follows a fleet of processes as the docs say."""

import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
import yaml

from headgate.kafka.embedded import EmbeddedKafka
from headgate.kafka.load import LoadGenerator
from headgate.kafka.load_records import FixedSize
from headgate.model import TopicPartition
from headgate.simulation.workload_shapes import Steady
from tests.eventually import eventually
from tests.ports import free_port

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy" / "alerts" / "headgate.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "headgate.json"
DEADLINE_S = 120.0
NOTHING_YET = {"Rejected, skipped, refused", "Upkeep"}
"""Panels without data on a pipeline that is well and young."""

pytestmark = pytest.mark.skipif(shutil.which("prometheus") is None, reason="no Prometheus (Debian: prometheus)")

ALERTS_OF_TWO_PIPELINES = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      # Of `still` one table waits since second 60 and the other has nothing to commit, though records come in for
      # both; `restarted` began at second 300, while its catalog was down; `gone` does not answer, and of
      # `headless` only a consumer does.
      - {series: 'headgate_commit_waiting_timestamp_seconds{pipeline="still", table="t"}', values: '0 60x30'}
      - {series: 'headgate_commit_waiting_timestamp_seconds{pipeline="still", table="quiet"}', values: '0x30'}
      - {series: 'headgate_commit_waiting_timestamp_seconds{pipeline="restarted", table="t"}', values: '_x5 300x30'}
      - {series: 'headgate_last_commit_timestamp_seconds{pipeline="still", table="quiet"}', values: '0x30'}
      - {series: 'headgate_partition_write_bytes_per_second{pipeline="still", partition="0"}', values: '1000x30'}
      # Of one table everything is refused; of the other some, and the rest is committed.
      - {series: 'headgate_announcements_refused_total{pipeline="still", table="t"}', values: '0+2x30'}
      - {series: 'headgate_commits_total{pipeline="still", table="t"}', values: '7x30'}
      - {series: 'headgate_announcements_refused_total{pipeline="still", table="quiet"}', values: '0+2x30'}
      - {series: 'headgate_commits_total{pipeline="still", table="quiet"}', values: '0+1x30'}
      - {series: 'headgate_controller_heartbeat_timestamp_seconds{pipeline="idle"}', values: '0+60x30'}
      - {series: 'up{pipeline="gone", part="run"}', values: '0x30'}
      - {series: 'up{pipeline="headless", part="consumer-1"}', values: '1x30'}
      - {series: 'up{pipeline="rehearsed", part="dry-run"}', values: '1x30'}
      - {series: 'up{pipeline="idle", part="run"}', values: '1x30'}
      - {series: 'up{pipeline="idle", part="consumer-1"}', values: '0x30'}
      # With a process for each role, the committer's was killed.
      - {series: 'headgate_controller_heartbeat_timestamp_seconds{pipeline="split"}', values: '0+60x30'}
      - {series: 'up{pipeline="split", part="controller"}', values: '1x30'}
      - {series: 'up{pipeline="split", part="monitor"}', values: '1x30'}
      - {series: 'up{pipeline="split", part="committer"}', values: '0x30'}
      # One pipeline's lag grows beyond bounds, the other's is as large and shrinks.
      - {series: 'headgate_lag_records{pipeline="still", table="t"}', values: '150000+1000x30'}
      - {series: 'headgate_lag_records{pipeline="idle", table="t"}', values: '500000-9000x30'}
      # Upkeep every minute: `still` has none that goes well, `idle` has, `gone` has no schedule.
      - {series: 'headgate_maintenance_interval_seconds{pipeline="still"}', values: '60x30'}
      - {series: 'headgate_maintenance_interval_seconds{pipeline="idle"}', values: '60x30'}
      - {series: 'headgate_maintenance_interval_seconds{pipeline="gone"}', values: '0x30'}
      - {series: 'headgate_maintenance_timestamp_seconds{pipeline="still"}', values: '0x30'}
      - {series: 'headgate_maintenance_timestamp_seconds{pipeline="idle"}', values: '0+60x30'}
      - {series: 'headgate_maintenance_timestamp_seconds{pipeline="gone"}', values: '0x30'}
    alert_rule_test:
      - eval_time: 20m
        alertname: HeadgateUpkeepFailing
        exp_alerts:
          - exp_labels: {severity: warning, pipeline: still}
            exp_annotations:
              summary: No round of upkeep went well for 20m 0s
              description: The log says which table failed and why; headgate maintain FILE --apply tries again at once.
      - eval_time: 20m
        alertname: HeadgatePartDown
        exp_alerts:
          - exp_labels: {severity: critical, pipeline: split, part: committer}
            exp_annotations:
              summary: The committer of split does not answer
              description: Without a committer nothing new is in the lake, without a monitor nothing follows the load.
      - eval_time: 20m
        alertname: HeadgateNotCommitting
        exp_alerts:
          - exp_labels: {severity: critical, pipeline: still, table: t}
            exp_annotations:
              summary: What waits for t could not be committed for 19m 0s
              description: &meanwhile Run headgate doctor; look for catalog errors in the log. Nothing is lost.
          - exp_labels: {severity: critical, pipeline: restarted, table: t}
            exp_annotations:
              summary: What waits for t could not be committed for 15m 0s
              description: *meanwhile
      - eval_time: 20m
        alertname: HeadgateRefusing
        exp_alerts:
          - exp_labels: {severity: critical, pipeline: still, table: t}
            exp_annotations:
              summary: Everything announced for t is refused
              description: The log says why; often the files do not fit the table. See docs/recover.md.
      - eval_time: 20m
        alertname: HeadgateDown
        exp_alerts:
          - exp_labels: {severity: critical, pipeline: gone}
            exp_annotations:
              summary: No controller of gone is scraped
              description: &down
                Consumers go on with what they own, but nothing follows the load. Start it with headgate run.
          - exp_labels: {severity: critical, pipeline: headless}
            exp_annotations:
              summary: No controller of headless is scraped
              description: *down
      - eval_time: 29m
        alertname: HeadgateLagGrowing
        exp_alerts:
          - exp_labels: {severity: warning, pipeline: still, table: t}
            exp_annotations:
              summary: What t lacks has been growing for a quarter of an hour
              description: %s
"""


NOTHING_AT_ALL = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    alert_rule_test:
      - eval_time: 10m
        alertname: HeadgateDown
        exp_alerts:
          - exp_labels: {severity: critical}
            exp_annotations:
              summary: No controller is scraped
              description: Consumers go on with what they own, but nothing follows the load. Start it with headgate run.
"""

GOALS_OF_TWO_TABLES = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      # Of 1,000 records a minute, 5 for one table and 20 for the other come late; nothing comes for the third.
      - {series: 'headgate_slo_goal_ratio{pipeline="p"}', values: '0.99x40'}
      - {series: 'headgate_latency_seconds_count{pipeline="p", table="well"}', values: '0+1000x40'}
      - {series: 'headgate_late_records_total{pipeline="p", table="well"}', values: '0+5x40'}
      - {series: 'headgate_latency_seconds_count{pipeline="p", table="late"}', values: '0+1000x40'}
      - {series: 'headgate_late_records_total{pipeline="p", table="late"}', values: '0+20x40'}
      - {series: 'headgate_latency_seconds_count{pipeline="p", table="quiet"}', values: '70x40'}
      - {series: 'headgate_late_records_total{pipeline="p", table="quiet"}', values: '70x40'}
    alert_rule_test:
      - eval_time: 30m
        alertname: HeadgateGoalMissed
        exp_alerts:
          - exp_labels: {severity: warning, pipeline: p, table: late}
            exp_annotations:
              summary: Only 98%% of the records reach late in time
              description: headgate explain shows what was decided; raise fleet.max_consumers or look at hot partitions.
"""


SKIPS_OF_TWO_KINDS = """
rule_files: [%s]
evaluation_interval: 1m
tests:
  - interval: 1m
    input_series:
      # A topic of transactions has a marker for each; of another one, retention took 60 records at once.
      - {series: 'headgate_skipped_offsets_total{pipeline="p", table="sales", reason="gap"}', values: '0+10x70'}
      - {series: 'headgate_skipped_offsets_total{pipeline="p", table="sales", reason="retention"}', values: '0x70'}
      - {series: 'headgate_skipped_offsets_total{pipeline="p", table="late", reason="gap"}', values: '0x70'}
      - {series: 'headgate_skipped_offsets_total{pipeline="p", table="late", reason="retention"}', values: '0x30 60x40'}
    alert_rule_test:
      - eval_time: 1h
        alertname: HeadgateSkipping
        exp_alerts:
          - exp_labels: {severity: warning, pipeline: p, table: late}
            exp_annotations:
              summary: Kafka deleted 60 offsets before late had them
              description: Retention was faster than the pipeline. Raise it first (docs/recover.md), then catch up.
"""


Series = dict[str, str]

ONE_ILL_ONE_WELL: dict[str, tuple[str, Series]] = {
    # What is raised, and of what: series of a pipeline that is ill and of one that is well, a value a minute.
    "HeadgateControllerStuck": (
        'pipeline="ill"',
        {
            'headgate_controller_heartbeat_timestamp_seconds{pipeline="ill"}': "0x60",
            'headgate_controller_heartbeat_timestamp_seconds{pipeline="well"}': "0+60x60",
        },
    ),
    "HeadgateNotMeasuring": (
        'pipeline="ill"',
        {
            'headgate_measurement_timestamp_seconds{pipeline="ill"}': "0x60",
            'headgate_measurement_timestamp_seconds{pipeline="well"}': "0+60x60",
        },
    ),
    "HeadgateStandstill": (
        'pipeline="ill", table="t"',
        {
            'headgate_lag_records{pipeline="ill", table="t"}': "5x60",
            'headgate_commits_total{pipeline="ill", table="t"}': "7x60",
            'headgate_lag_records{pipeline="ill", table="nothing to do"}': "0x60",
            'headgate_commits_total{pipeline="ill", table="nothing to do"}': "7x60",
            'headgate_lag_records{pipeline="well", table="t"}': "5x60",
            'headgate_commits_total{pipeline="well", table="t"}': "0+1x60",
        },
    ),
    "HeadgateSlowConsumers": (
        'pipeline="ill"',
        {'headgate_slow_consumers{pipeline="ill"}': "1x60", 'headgate_slow_consumers{pipeline="well"}': "0x60"},
    ),
    "HeadgateCrowded": (
        'pipeline="ill"',
        {'headgate_crowding_factor{pipeline="ill"}': "1.5x60", 'headgate_crowding_factor{pipeline="well"}': "1x60"},
    ),
    "HeadgateTableProblem": (
        'pipeline="ill", table="t"',
        {
            'headgate_table_problems{pipeline="ill", table="t"}': "1x60",
            'headgate_table_problems{pipeline="well", table="t"}': "0x60",
        },
    ),
    # 2 records beside 100 rows are too many, 1 beside 200 is not.
    "HeadgateRejecting": (
        'pipeline="ill", table="t"',
        {
            'headgate_rejected_records_total{pipeline="ill", table="t"}': "0+2x60",
            'headgate_rows_total{pipeline="ill", table="t"}': "0+100x60",
            'headgate_rejected_records_total{pipeline="well", table="t"}': "0+1x60",
            'headgate_rows_total{pipeline="well", table="t"}': "0+200x60",
        },
    ),
    # 6 a minute are one in 10 s; one in 20 s is where it begins.
    "HeadgateFailingCycles": (
        'pipeline="ill", consumer="1"',
        {
            'headgate_consumer_cycles_total{pipeline="ill", consumer="1", outcome="failed"}': "0+6x60",
            'headgate_consumer_cycles_total{pipeline="ill", consumer="2", outcome="failed"}': "0+2x60",
            'headgate_consumer_cycles_total{pipeline="ill", consumer="2", outcome="done"}': "0+60x60",
        },
    ),
    # One in two seconds is 30 a minute.
    "HeadgateCommitConflicts": (
        'pipeline="ill", table="t"',
        {
            'headgate_commit_conflicts_total{pipeline="ill", table="t"}': "0+40x60",
            'headgate_commit_conflicts_total{pipeline="well", table="t"}': "0+20x60",
        },
    ),
}


@pytest.mark.parametrize("alert", ONE_ILL_ONE_WELL)
def test_an_alert_is_raised_for_a_pipeline_that_is_ill_and_not_for_one_that_is_well(tmp_path: Path, alert: str) -> None:
    whom, series = ONE_ILL_ONE_WELL[alert]
    rules = {rule["alert"]: rule for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
    severity = rules[alert]["labels"]["severity"]
    raised = f'ALERTS{{alertname="{alert}", alertstate="firing", severity="{severity}", {whom}}}'
    asked = {"expr": f'ALERTS{{alertname="{alert}", alertstate="firing"}}', "eval_time": "50m"}
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [{**asked, "exp_samples": [{"labels": raised, "value": 1}]}],
    }
    check_rules(tmp_path, yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": [test]}))


@pytest.mark.parametrize(
    "tests",
    [GOALS_OF_TWO_TABLES, NOTHING_AT_ALL, SKIPS_OF_TWO_KINDS],
    ids=["goals", "nothing at all", "skips"],
)
def test_goals_are_missed_by_records_skips_told_by_their_reason_and_no_target_at_all_is_an_alert(
    tmp_path: Path, tests: str
) -> None:
    check_rules(tmp_path, tests % ALERTS)


def test_alerts_tell_one_pipeline_from_another(tmp_path: Path) -> None:
    rules = {rule["alert"]: rule for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
    advice = rules["HeadgateLagGrowing"]["annotations"]["description"]
    check_rules(tmp_path, ALERTS_OF_TWO_PIPELINES % (ALERTS, advice))


def check_rules(folder: Path, tests: str) -> None:
    file = folder / "tests.yml"
    file.write_text(tests)
    done = subprocess.run(["promtool", "test", "rules", str(file)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_follows_a_fleet_of_processes_and_can_answer_every_question_of_dashboard_and_alerts(
    broker: EmbeddedKafka, tmp_path: Path, unique: str
) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"""
name: {unique}
home: home
kafka: {{brokers: "{broker.bootstrap}"}}
topics: [{unique}-a]
tables: [{{name: lake.records}}]
consumer: {{wait_s: 500 ms, heartbeat_s: 500 ms}}
fleet: {{kind: processes}}
policy: {{consumer_capacity_bytes_per_s: 1 MB/s, packing_capacity_bytes_per_s: 800 kB/s}}
metrics_port: {free_port()}
"""
    )
    told = tmp_path / "home" / "metrics"
    with load(broker, f"{unique}-a"), running(file) as process, prometheus(tmp_path, told) as asked:
        eventually(lambda: asked('headgate_consumer_records_total{part="consumer-1"} > 0'), "the consumer is scraped")
        eventually(lambda: asked("sum(rate(headgate_committed_bytes_total[1m])) > 0"), "commits are seen")
        eventually(lambda: silent_panels(asked, unique) <= NOTHING_YET, "all other panels show something")
        assert not asked('{__name__=~"headgate_.+", pipeline=""}'), "every series says whose it is"
        eventually(lambda: "unknown" not in asked.health_of_rules().values(), "all rules were evaluated")
        assert set(asked.health_of_rules().values()) == {"ok"}
        rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
        for rule in rules:
            if rule["alert"] in ("HeadgateDown", "HeadgateControllerStuck", "HeadgateNotMeasuring"):
                assert not asked(rule["expr"]), f"{rule['alert']} is raised for a pipeline that is well"
        assert not asked('headgate_controller_heartbeat_timestamp_seconds{part!="run"}'), "consumers have no controller"

        process.send_signal(signal.SIGINT)
        process.wait(DEADLINE_S)
    assert list(told.iterdir()) == [], "nobody is looked for any more"


def silent_panels(asked: "Prometheus", pipeline: str) -> set[str]:
    return {
        panel["title"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
        if not asked(target["expr"].replace("$pipeline", pipeline))
    }


class Prometheus:
    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1"

    def __call__(self, expression: str) -> list[Any]:
        """What a query finds now; raises where Prometheus does not understand it."""
        return list(self.api("query?" + urlencode({"query": expression}))["result"])

    def health_of_rules(self) -> dict[str, str]:
        (group,) = self.api("rules")["groups"]
        return {rule["name"]: rule["health"] for rule in group["rules"]}

    def api(self, path: str) -> dict[str, Any]:
        with urlopen(f"{self._url}/{path}", timeout=10) as answer:
            return dict(json.load(answer)["data"])


@contextmanager
def prometheus(folder: Path, told: Path) -> Iterator[Prometheus]:
    """With the configuration from the docs, but looking every second."""
    (shown,) = re.findall(r"```yml\n(# prometheus.yml\n.*?)```", (ROOT / "docs" / "operate.md").read_text(), re.S)
    config = yaml.safe_load(shown)
    config["rule_files"] = [str(ALERTS)]
    config["global"] = {"evaluation_interval": "1s"}
    (job,) = config["scrape_configs"]
    job["scrape_interval"] = "1s"
    (found,) = job["file_sd_configs"]
    found.update(files=[str(told / "*.json")], refresh_interval="1s")
    file, port = folder / "prometheus.yml", free_port()
    file.write_text(yaml.safe_dump(config))
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'prometheus'}"]
    with (folder / "prometheus.log").open("wb") as output:
        server = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stderr=output, stdout=output)
    asked = Prometheus(port)
    try:
        eventually(lambda: answers(asked), "Prometheus answers")
        yield asked
    finally:
        server.terminate()
        server.wait(DEADLINE_S)


def answers(asked: Prometheus) -> bool:
    try:
        return bool(asked("vector(1)"))
    except OSError:
        return False


@contextmanager
def running(file: Path) -> Iterator["subprocess.Popen[bytes]"]:
    with (file.parent / "run.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "headgate.cli.main", "run", str(file)], stdout=output, stderr=output
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait(DEADLINE_S)


@contextmanager
def load(broker: EmbeddedKafka, topic: str) -> Iterator[None]:
    partitions = [TopicPartition(topic, n) for n in range(2)]
    stop = threading.Event()
    generator = LoadGenerator(broker.bootstrap, {}, {topic: 2}, Steady.spread(partitions, 1e5), FixedSize(300))
    thread = threading.Thread(target=lambda: generator.run(stop=stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
