import json
from pathlib import Path
from urllib.request import urlopen

import pytest

from headgate.errors import SetupError
from headgate.metrics_endpoint import serve, target_file


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
    with pytest.raises(SetupError, match=f"cannot serve metrics on port {port}"):
        serve(port, "127.0.0.1", tmp_path, "orders", "other")
