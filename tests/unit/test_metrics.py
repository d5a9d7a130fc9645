"""Metrics keep to Prometheus' conventions, and the page, the dashboard and the alerts speak of metrics that exist."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import REGISTRY

from headgate.cli.metrics_reference import metrics, metrics_page
from headgate.controller.metrics import show_heartbeat
from headgate.model.messages import ConsumerCapacity, ControllerState

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana" / "headgate.json"
ALERTS = ROOT / "deploy" / "alerts" / "headgate.yml"


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(ALERTS.read_text())["groups"]
    return list(group["rules"])


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text())["panels"])


def expressions() -> list[str]:
    return [rule["expr"] for rule in rules()] + [t["expr"] for panel in panels() for t in panel["targets"]]


def test_the_page_says_what_the_code_says() -> None:
    said = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
    assert said == metrics_page(), "run: python -m headgate.cli.metrics_reference > docs/metrics.md"


def test_every_metric_of_the_dashboard_and_the_alerts_exists_with_the_labels_they_use() -> None:
    labels = {series: set(one.labels) | {"le", "pipeline"} for one in metrics() for series in one.series}
    used = {name for text in expressions() for name in re.findall(r"headgate_\w+", text)}
    assert len(used) > 15
    assert used - labels.keys() == set()
    for text in expressions():
        named = set(re.findall(r"headgate_\w+", text))
        known = set().union(*(labels[name] for name in named))
        grouped = {label for group in re.findall(r"by \(([^)]*)\)", text) for label in re.split(r", *", group)}
        text = re.sub(r"up\{[^}]*\}", "", text)  # Prometheus' own
        matched = set(re.findall(r"[{,]\s*(\w+)\s*[=!]~?", text))
        assert (grouped | matched) - known == set(), text


@pytest.mark.parametrize("one", list(metrics()), ids=lambda one: one.name)
def test_names_follow_the_conventions(one: Any) -> None:
    assert re.fullmatch(r"headgate_[a-z_]+", one.name)
    assert (one.kind == "counter") == one.name.endswith("_total")
    assert not re.search(r"_(ms|milliseconds|minutes|kb|mb|percent|share)(_|$)", one.name), "base units only"
    if one.kind == "histogram":
        assert one.name.endswith("_seconds")
    assert one.help[0].isupper()
    assert len(one.help) > 10


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    names = [rule["alert"] for rule in rules()]
    assert len(names) == len(set(names)) > 5
    for rule in rules():
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"].keys() == {"summary", "description"}


def test_the_operators_page_explains_every_alert_and_no_other() -> None:
    page = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
    explained = re.findall(r"^\| `(Headgate\w+)` \| .{20,} \| .{20,} \|$", page, flags=re.MULTILINE)
    assert sorted(explained) == sorted(rule["alert"] for rule in rules())


def test_gaps_of_compaction_and_transactions_are_no_alert() -> None:
    (rule,) = (rule for rule in rules() if rule["alert"] == "HeadgateSkipping")
    assert set(re.findall(r"headgate_\w+\{[^}]*\}", rule["expr"])) == {
        'headgate_skipped_offsets_total{reason="retention"}'
    }


def test_an_alert_of_a_tables_problem_points_to_the_page_that_names_them() -> None:
    (rule,) = (rule for rule in rules() if rule["alert"] == "HeadgateTableProblem")
    (page,) = re.findall(r"docs/[\w-]+\.md", rule["annotations"]["description"])
    assert "was deleted and made anew" in (ROOT / page).read_text(encoding="utf-8")


def test_panels_have_ids_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert at["x"] + at["w"] <= 24
        assert not taken & cells, panel["title"]
        taken |= cells


def test_a_consumer_that_is_gone_counts_for_nothing_any_more_and_the_others_never_vanish() -> None:
    def counted() -> dict[str, float]:
        (metric,) = (m for m in REGISTRY.collect() if m.name == "headgate_consumer_counted_capacity_bytes_per_second")
        return {sample.labels["consumer"]: sample.value for sample in metric.samples}

    def beat(**counted: float) -> ControllerState:
        capacities = tuple(ConsumerCapacity(int(name[1:]), 0.0, value) for name, value in counted.items())
        return ControllerState(1, 0, 0, "synchronize", len(counted), capacities=capacities)

    show_heartbeat(beat(c1=10.0, c2=20.0))
    assert counted() == {"1": 10.0, "2": 20.0}
    show_heartbeat(beat(c2=30.0, c3=40.0))
    assert counted() == {"2": 30.0, "3": 40.0}
    show_heartbeat(beat())
    assert counted() == {}


def test_a_process_says_nothing_of_parts_that_do_not_run_in_it() -> None:
    """Alerts subtract these from the time, and take their presence for that of the controller."""
    shown = subprocess.run(
        [
            sys.executable,
            "-c",
            "import headgate.cli.main, headgate.cli.consumer, headgate.controller.service, prometheus_client\n"
            "print(prometheus_client.generate_latest().decode())",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    served = {line.partition(" ")[0] for line in shown.splitlines() if not line.startswith("#")}
    silent = {
        "headgate_controller_heartbeat_timestamp_seconds",
        "headgate_consumers",
        "headgate_configured_capacity_bytes_per_second",
        "headgate_slow_consumers",
        "headgate_crowding_factor",
        "headgate_move_pause_seconds",
        "headgate_measurement_timestamp_seconds",
        "headgate_slo_goal_ratio",
        "headgate_collect_partitions",
    }
    assert "headgate_partitions_moved_total" in served, "the controller's metrics were imported"
    assert silent <= {one.name for one in metrics()}
    assert served & silent == set()
