"""What every workload refuses in its parameters, in words that a person who typed them understands."""

from headgate.simulation.workload import Partitions


def some(partitions: Partitions) -> Partitions:
    if not partitions:
        raise ValueError("a workload needs at least one partition")
    if len(set(partitions)) != len(partitions):
        raise ValueError("a partition is named twice")
    return partitions


def not_negative(what: str, value: float) -> None:
    if not value >= 0 or value == float("inf"):
        raise ValueError(f"{what} must be zero or more, not {value:g}")


def positive(what: str, value: float) -> None:
    if not value > 0 or value == float("inf"):
        raise ValueError(f"{what} must be more than zero, not {value:g}")
