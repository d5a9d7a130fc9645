"""Advice as one HTML page: of each plan what it would bring, node by node, and what would move (B-23)."""

from collections.abc import Iterator
from html import escape

from headgate.topology.advice import Advice, Plan
from headgate.topology.cluster import Topology
from headgate.topology.effect_rows import effect_rows
from headgate.topology.findings import counted
from headgate.topology.markup import END, left_out, opening, table

MOST_NODES, MOST_MOVES = 60, 200


def advice_page(advice: Advice, topology: Topology, source: str) -> str:
    return "".join(_parts(advice, topology, source))


def _parts(advice: Advice, topology: Topology, source: str) -> Iterator[str]:
    yield opening("Kafka topology: advice", f"Advice for {source}")
    if not advice.plans:
        yield '<p class="verdict healthy">Nothing to gain: no reassignment makes this cluster more even.</p>'
    for n, plan in enumerate(advice.plans):
        yield from _plan(plan, topology, best=n == 0)
    if advice.words:
        yield f"<h2>What else to do</h2><ul>{''.join(f'<li>{escape(word)}</li>' for word in advice.words)}</ul>"
    if advice.new_partitions:
        yield "<h2>For equal node sets on all nodes, raise the partitions</h2>"
        shown = sorted(advice.new_partitions.items())[:MOST_MOVES]
        yield table(("topic", "partitions"), ((name, str(count)) for name, count in shown))
        yield left_out(len(advice.new_partitions) - len(shown), "topics")
    if advice.rejected:
        yield "<h2>Not advised</h2>" + table(("plan", "why"), ((plan.name, why) for plan, why in advice.rejected))
    yield END


def _plan(plan: Plan, topology: Topology, best: bool) -> Iterator[str]:
    yield f"<h2>{escape(plan.name)}{' (best)' if best else ''}: {escape(plan.what)}</h2>"
    yield f"<p>{counted(len(plan.change), 'partition')} to change, {counted(plan.copies, 'replica')} to copy.</p>"
    yield table(("", "before", "after"), effect_rows(plan, MOST_NODES))
    yield left_out(len(plan.before.load) - MOST_NODES, "less loaded nodes")
    topics = {topic.name: topic for topic in topology.topics}
    moves = sorted(plan.change.replicas.items())[:MOST_MOVES]
    yield table(
        ("partition", "replicas now", "replicas then"),
        ((str(at), _nodes(topics[at.topic].partitions[at.partition].replicas), _nodes(then)) for at, then in moves),
    )
    yield left_out(len(plan.change) - len(moves), "partitions")


def _nodes(replicas: tuple[int, ...]) -> str:
    return ", ".join(map(str, replicas))
