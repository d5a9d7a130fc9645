"""Partitioners by name: whatever is installed under the entry point group `headgate.partitioners` (B-27)."""

from collections.abc import Mapping
from typing import Any

from headgate.packing.registry import constructed, named
from headgate.producers.protocol import Partitioner

GROUP = "headgate.partitioners"
DEFAULT = "default-rr"


def build_partitioner(name: str = DEFAULT, params: Mapping[str, Any] | None = None) -> Partitioner:
    """The partitioner of that name, made with `params`."""
    partitioner: Partitioner = constructed("partitioner", name, named(GROUP, "partitioner", name), params or {})
    return partitioner
