"""Policies by name: whatever is installed under the entry point group `headgate.policies`."""

from collections.abc import Mapping
from importlib.metadata import entry_points
from inspect import Parameter, signature
from typing import Any, get_args

from headgate.packing.registry import build_packer, constructed, named
from headgate.policies.protocol import Policy

GROUP = "headgate.policies"


def policy_names() -> tuple[str, ...]:
    return tuple(sorted(entry.name for entry in entry_points(group=GROUP)))


def may_be_none(parameter: Parameter) -> bool:
    said = parameter.annotation
    if isinstance(said, str):  # as `from __future__ import annotations` leaves it; its names may not be there any more
        return "None" in said or "Optional" in said
    return type(None) in get_args(said)


def parameters_of(name: str) -> Mapping[str, Parameter]:
    """What the constructor of the policy of that name takes."""
    return signature(named(GROUP, "policy", name)).parameters


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
    facts: Mapping[str, Any] | None = None,
) -> Policy:
    """The policy of that name joined with the packer of that name.

    A policy takes of these values the ones its constructor names, and everything in `params`, which wins. `facts` are
    more of them, known to whoever asks; a policy that would rather measure one itself has None as its default and is
    not told. One that is None is to be measured by those that can: their parameter's type says that it may be None.
    """
    make = named(GROUP, "policy", name)
    offered = {
        "packer": build_packer(packer, packer_params),
        "consumer_capacity_bytes_per_s": consumer_capacity_bytes_per_s,
        "packing_capacity_bytes_per_s": packing_capacity_bytes_per_s,
        "max_sentinel_s": max_sentinel_s,
        "timeout_policy": timeout_policy,
        "max_consumers": max_consumers,
        "max_replicas": max_consumers,  # as HPA and KEDA call it
        "stale_after_s": stale_after_s,
        "slo_s": slo_s,
        "quantile": quantile,
    }
    wanted = signature(make).parameters
    asked = {key: fact for key, fact in (facts or {}).items() if key in wanted and wanted[key].default is not None}
    known = {key: fact for key, fact in asked.items() if fact is not None or may_be_none(wanted[key])}
    arguments = {key: value for key, value in offered.items() if key in wanted and value is not None} | known
    policy: Policy = constructed("policy", name, make, {**arguments, **(params or {})})
    return policy
