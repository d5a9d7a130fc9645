import json
from pathlib import Path
from urllib.request import urlopen

import pytest

from headgate.errors import SetupError
from headgate.metrics_endpoint import serve, target_file
from tests.ports import free_port


def test_prometheus_finds_in_the_file_where_the_process_answers_and_whose_it_is(tmp_path: Path) -> None:
    endpoint = serve(0, "127.0.0.1", tmp_path, "orders", "run")
    (about,) = json.loads(target_file(tmp_path, "run").read_text())
    assert about["labels"] == {"pipeline": "orders", "part": "run"}
    (target,) = about["targets"]
    assert b"python_info" in urlopen(f"http://{target}/metrics", timeout=10).read()

    endpoint.withdraw()
    assert not target_file(tmp_path, "run").exists()


def test_who_is_replaced_leaves_the_file_of_its_successor_alone(tmp_path: Path) -> None:
    first = serve(0, "127.0.0.1", tmp_path, "orders", "run")
    second = serve(0, "0.0.0.0", tmp_path, "orders", "run")
    first.withdraw()
    assert target_file(tmp_path, "run").read_text() == second.text
    second.withdraw()
    second.withdraw()
    assert not target_file(tmp_path, "run").exists()


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    endpoint = serve(0, "127.0.0.1", tmp_path, "orders", "run")
    port = int(json.loads(endpoint.text)[0]["targets"][0].partition(":")[2])
    with pytest.raises(
        SetupError, match=f"cannot serve metrics on 127.0.0.1 port {port}: .* is this pipeline running here already"
    ):
        serve(port, "127.0.0.1", tmp_path, "orders", "other")


def test_whoever_failed_at_the_same_address_is_not_looked_for_any_more(tmp_path: Path) -> None:
    port = free_port()
    failed = target_file(tmp_path, "committer-controller")
    failed.parent.mkdir(parents=True)
    failed.write_text(json.dumps([{"targets": [f"127.0.0.1:{port}"], "labels": {}}]))
    (failed.parent / "stranger.json").write_text("no JSON")
    elsewhere = serve(0, "127.0.0.1", tmp_path, "orders", "consumer-1")
    serve(port, "127.0.0.1", tmp_path, "orders", "run")
    assert not failed.exists()
    assert elsewhere.file.exists()
    assert target_file(tmp_path, "run").exists()
