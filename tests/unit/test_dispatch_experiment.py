"""The dispatch experiment writes a report whose policies agree with theory."""

from pathlib import Path

from headgate.experiments.dispatch import expectations, policies, run


def test_the_report_holds_every_policy_and_partitioner(tmp_path: Path) -> None:
    told: list[str] = []
    text = run(tmp_path / "new", 4_000, 1, told.append).read_text()
    assert all(text.count(f"| {name} |") == 3 for name in policies())
    assert "| latency-weighted |" in text
    assert (tmp_path / "new" / "waits.png").read_bytes().startswith(b"\x89PNG")
    assert told


def test_every_expectation_belongs_to_a_policy() -> None:
    assert expectations(4, 0.8).keys() | expectations(10, 0.9).keys() <= policies().keys()
