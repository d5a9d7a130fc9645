"""Writes the page of what policies take: `python -m headgate.config.policy_reference > docs/policy-parameters.md`."""

import ast
import inspect
import sys
from collections.abc import Iterator
from inspect import Parameter
from textwrap import dedent
from typing import Any

from headgate.config.reference import cell
from headgate.packing.registry import named
from headgate.policies.registry import GROUP, parameters_of, policy_names

_WAITS = "`consumer.wait_s` and `lake.commit_interval_s`"
FROM_THE_FILE = {
    "packer": "`policy.packer`",
    "consumer_capacity_bytes_per_s": "`policy.consumer_capacity_bytes_per_s`",
    "packing_capacity_bytes_per_s": "`policy.packing_capacity_bytes_per_s`",
    "max_sentinel_s": "`policy.max_sentinel_s`",
    "timeout_policy": "`policy.timeout_policy`",
    "max_consumers": "`fleet.max_consumers`",
    "max_replicas": "`fleet.max_consumers`",
    "stale_after_s": "`controller.stale_after_s`",
    "slo_s": f"`slo.latency_s` less {_WAITS}, a tenth of it at least",
    "quantile": "`slo.quantile`",
    "beat_s": "`monitor.poll_s`, at least a second",
    "interval_s": "`monitor.poll_s`, at least a second",
    "waits_s": f"{_WAITS} together",
    "capacity_records_per_s": "what consumers measure",
}
"""What a pipeline hands over itself; a value in `policy.params` wins."""
MEANINGS = {
    "packer": "Who owns what once it is decided to act.",
    "consumer_capacity_bytes_per_s": "What one consumer can do, in bytes. To `sentinel` more than that on one is "
    "overload; where sizes are in records it counts while nobody has measured, or not for five minutes.",
    "packing_capacity_bytes_per_s": "How full a consumer is packed.",
    "max_sentinel_s": "Seconds without a trigger after which the packing is looked at anyway.",
    "timeout_policy": "What such a look may change: anything, or only if consumers are saved.",
    "max_consumers": "The largest group allowed.",
    "max_replicas": "The largest group allowed.",
    "min_replicas": "The smallest group allowed.",
    "stale_after_s": "A measurement older than so many seconds is not acted on.",
    "slo_s": "Within how many seconds a record is to be done.",
    "capacity_records_per_s": "Records a second that one consumer does.",
    "f_up": "How full, as a share of what one consumer does, it may be before the group grows.",
    "f_down": "How full it must fit when the group shrinks; less than f_up, and the gap keeps sizes from swinging.",
    "rebalance_s": "How long a moved partition stands still, until that is measured.",
    "warm": "Consumers kept ready beyond those that own partitions, in simulations; a pipeline has `fleet.warm`.",
    "cooldown_s": "Seconds after an action in which nothing else is decided.",
    "sort_key": "What is packed first: the partition with the most `rate`, or with most of rate and lag (`dominant`).",
    "replicas": "How many consumers, always.",
    "worth_moving": "Partitions move if the busiest consumer ends up with at most this share of its load.",
    "peak_records_per_s": "The highest load, of all partitions together.",
    "partitions": "Over how many partitions it is spread.",
    "target": "The share of what a consumer can do that it is to be busy.",
    "sync_s": "Seconds between two looks.",
    "stabilisation_s": "It shrinks to the most that was wanted within so many seconds.",
    "lag_threshold": "Records waiting for each consumer that are wanted.",
    "activation_lag_threshold": "Total lag up to which nothing counts as waiting.",
    "limit_to_partitions_with_lag": "No more consumers than partitions that have lag.",
    "allow_idle_consumers": "More consumers than partitions.",
    "beat_s": "Over how many seconds arrivals are counted for the forecast.",
    "events": "Records of one second's batch that one consumer does in time.",
}
"""Of those that mean the same everywhere, for readers of the page; others say it where they are defined."""
_OPENING = """# Parameters of the policies

<!-- Written by headgate.config.policy_reference from the policies; change the descriptions there. -->

What `policy.params` takes, policy by policy. What a pipeline file says elsewhere is handed over from there, as the
second column tells, unless `policy.params` says it again:

```yaml
policy:
  name: slo
  params: {thrift: 0.5, start_s: 8}
```

What each policy does, and when it fails, is in [policies](policies.md).
"""


def policy_page() -> str:
    """The whole page, as Markdown."""
    return _OPENING + "".join(_section(name) for name in policy_names())


def _section(name: str) -> str:
    make = named(GROUP, "policy", name)
    said = dict(_said(make)) | MEANINGS
    rows = [
        f"| `{key}` | {_default(key, parameter)} | {cell(' '.join(said[key].split()))} |\n"
        for key, parameter in parameters_of(name).items()
    ]
    return f"\n## `{name}`\n\n| parameter | unless you say it | meaning |\n| --- | --- | --- |\n{''.join(rows)}"


def _default(key: str, parameter: Parameter) -> str:
    if key in FROM_THE_FILE:
        return FROM_THE_FILE[key]
    if parameter.default is Parameter.empty:
        return "required"
    return f"`{str(parameter.default).lower() if isinstance(parameter.default, bool) else parameter.default}`"


def _said(make: Any) -> Iterator[tuple[str, str]]:
    """What stands below the fields of a dataclass and of those it comes from."""
    for kind in reversed(inspect.getmro(make)[:-1]):
        (defined,) = ast.parse(dedent(inspect.getsource(kind))).body
        assert isinstance(defined, ast.ClassDef)
        for field, below in zip(defined.body, defined.body[1:], strict=False):
            match field, below:
                case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                    yield key, text


if __name__ == "__main__":
    sys.stdout.write(policy_page())
