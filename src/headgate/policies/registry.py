"""Policies by name: whatever is installed under the entry point group `headgate.policies`."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from headgate.packing.registry import build_packer, constructed, named
from headgate.policies.protocol import Policy

GROUP = "headgate.policies"


def build_policy(
    name: str,
    packer: str,
    *,
    consumer_capacity_bytes_per_s: float,
    packing_capacity_bytes_per_s: float,
    max_sentinel_s: float = 10.0,
    timeout_policy: str = "only_if_fewer_consumers",
    max_consumers: int = 32,
    stale_after_s: float = 10.0,
    slo_s: float | None = None,
    quantile: float | None = None,
    params: Mapping[str, Any] | None = None,
    packer_params: Mapping[str, Any] | None = None,
) -> Policy:
    """The policy of that name joined with the packer of that name.

    A policy takes of these values the ones its constructor names, and everything in `params`, which wins.
    """
    make = named(GROUP, "policy", name)
    offered = {
        "packer": build_packer(packer, packer_params),
        "consumer_capacity_bytes_per_s": consumer_capacity_bytes_per_s,
        "packing_capacity_bytes_per_s": packing_capacity_bytes_per_s,
        "max_sentinel_s": max_sentinel_s,
        "timeout_policy": timeout_policy,
        "max_consumers": max_consumers,
        "stale_after_s": stale_after_s,
        "slo_s": slo_s,
        "quantile": quantile,
    }
    wanted = signature(make).parameters
    arguments = {key: value for key, value in offered.items() if key in wanted and value is not None}
    policy: Policy = constructed("policy", name, make, {**arguments, **(params or {})})
    return policy
