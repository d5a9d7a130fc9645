"""Capacities written into a pipeline file: nothing else in it changes, and what cannot be edited safely is refused."""

from pathlib import Path

import pytest

from headgate.config.editing import edited
from headgate.config.loader import load_pipeline
from headgate.errors import ConfigError

TOP = """\
# our pipeline
name:   "orders"   # do not rename
kafka: {brokers: "localhost:9092"}
topics: [orders]
tables:
  - {name: lake.orders, topics: [orders], format: json, schema: 'id long'}
"""
NEW = {"consumer_capacity_bytes_per_s": "3.2 MB/s", "packing_capacity_bytes_per_s": "2.4 MB/s"}
BOTH = "consumer_capacity_bytes_per_s: 3.2 MB/s\n  packing_capacity_bytes_per_s: 2.4 MB/s\n"

CASES = {
    "no policy": (TOP, TOP + "policy:\n  " + BOTH),
    "no policy and no last line end": (TOP.rstrip("\n"), TOP + "policy:\n  " + BOTH),
    "an empty policy": (TOP + "policy:   # later\n", TOP + "policy:\n  " + BOTH.rstrip("\n") + "   # later\n"),
    "a policy without them": (
        TOP + "policy:\n  # our choice\n  name: sentinel  # default\nslo: {latency_s: 5}\n",
        TOP + "policy:\n  # our choice\n  " + BOTH + "  name: sentinel  # default\nslo: {latency_s: 5}\n",
    ),
    "both, with comments, the other way round": (
        TOP + "policy:\n  packing_capacity_bytes_per_s: 1 MB/s   # full\n  name: sentinel\n\n"
        "  consumer_capacity_bytes_per_s: '2 MB/s' # measured\n# end\n",
        TOP + "policy:\n  packing_capacity_bytes_per_s: 2.4 MB/s   # full\n  name: sentinel\n\n"
        "  consumer_capacity_bytes_per_s: 3.2 MB/s # measured\n# end\n",
    ),
    "one of them": (
        TOP + "policy:\n  consumer_capacity_bytes_per_s: 2500000\n",
        TOP + "policy:\n  packing_capacity_bytes_per_s: 2.4 MB/s\n  consumer_capacity_bytes_per_s: 3.2 MB/s\n",
    ),
    "in braces": (
        TOP + "policy: {name: sentinel}\n",
        TOP + "policy: {" + ", ".join(f"{k}: {v}" for k, v in NEW.items()) + ", name: sentinel}\n",
    ),
    "empty braces": (TOP + "policy: {}\n", TOP + "policy: {" + ", ".join(f"{k}: {v}" for k, v in NEW.items()) + "}\n"),
}


@pytest.mark.parametrize(("before", "after"), CASES.values(), ids=CASES)
def test_only_the_two_values_change(tmp_path: Path, before: str, after: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(before)
    edit = edited(file, "policy", NEW)
    assert file.read_text() == before  # until it is written
    assert edit.after == after
    edit.write()
    policy = load_pipeline(file).policy
    assert (policy.consumer_capacity_bytes_per_s, policy.packing_capacity_bytes_per_s) == (3.2e6, 2.4e6)
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]


def test_line_ends_links_and_rights_stay_as_they_are(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    real.write_bytes((TOP + "policy:\n  name: sentinel\n").replace("\n", "\r\n").encode())
    real.chmod(0o640)
    link.symlink_to(real)
    edited(link, "policy", NEW).write()
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert b"\n" not in real.read_bytes().replace(b"\r\n", b"")
    assert load_pipeline(link).policy.packing_capacity_bytes_per_s == 2.4e6


def test_the_difference_is_shown_line_by_line(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(TOP + "policy:\n  consumer_capacity_bytes_per_s: 2 MB/s\n  packing_capacity_bytes_per_s: 1 MB/s\n")
    shown = edited(file, "policy", NEW).diff
    assert "-  consumer_capacity_bytes_per_s: 2 MB/s\n" in shown
    assert "+  consumer_capacity_bytes_per_s: 3.2 MB/s\n" in shown
    assert "do not rename" not in shown


REFUSED = {
    "from the environment": (
        TOP + "policy:\n  consumer_capacity_bytes_per_s: ${CAPACITY:-2 MB/s}\n",
        r"consumer_capacity_bytes_per_s is \$\{CAPACITY:-2 MB/s\} there",
    ),
    "an alias": (
        TOP + "policy:\n  consumer_capacity_bytes_per_s: &c 2 MB/s\n  packing_capacity_bytes_per_s: *c\n",
        "no plain value",
    ),
    "no space before a comment": (
        TOP + "policy:\n  consumer_capacity_bytes_per_s: '2 MB/s'# measured\n",
        "something else in it would change",
    ),
    "a shared section": (TOP + "policy: &p {name: sentinel}\n", "not written out where it stands"),
    "all in braces": ("{" + ", ".join(['name: x, kafka: {brokers: "a:1"}, topics: [t], tables: []']) + "}", "one {"),
}


@pytest.mark.parametrize(("text", "why"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_edited_safely_is_refused_with_what_to_set_by_hand(tmp_path: Path, text: str, why: str) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=why) as refused:
        edited(file, "policy", NEW)
    assert "policy.consumer_capacity_bytes_per_s: 3.2 MB/s" in str(refused.value)
    assert file.read_text() == text


def test_a_file_that_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(TOP)
    edit = edited(file, "policy", NEW)
    file.write_text(TOP + "# mine\n")
    with pytest.raises(ConfigError, match="changed by somebody else"):
        edit.write()
    assert file.read_text() == TOP + "# mine\n"
    assert [path.name for path in tmp_path.iterdir()] == ["pipeline.yaml"]
