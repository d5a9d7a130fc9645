"""What a plan changes, row by row, for terminals and pages (B-23)."""

from headgate.topology.advice import Effect, Plan
from headgate.topology.simulate import Pressure


def effect_rows(plan: Plan, most_nodes: int) -> list[tuple[str, str, str]]:
    """What, before, after; of the nodes those with the most load before or after."""
    before, after = plan.before, plan.after
    busiest = sorted(before.load, key=lambda id: -max(before.load[id], after.load[id]))[:most_nodes]
    return [
        ("busiest node, times its share", pressed(before.default), pressed(after.default)),
        ("the same with the node partitioner", pressed(before.node), pressed(after.node)),
        ("uneven topics", str(before.uneven_topics), str(after.uneven_topics)),
        ("offline or unwritable topics", str(before.broken_topics), str(after.broken_topics)),
        ("topics without a second replica", str(before.lonely_topics), str(after.lonely_topics)),
        ("topics with replicas out of sync", str(before.lagging_topics), str(after.lagging_topics)),
        ("groups / nodes they share", _shared(before), _shared(after)),
        *((f"node {id}", f"{before.load[id]:.4g}", f"{after.load[id]:.4g}") for id in sorted(busiest)),
    ]


def pressed(pressure: Pressure | None) -> str:
    return f"{pressure.skew:.2f} (node {pressure.busiest})" if pressure else "–"


def _shared(effect: Effect) -> str:
    return f"{effect.groups} / {effect.shared_nodes}"
