"""The report as one HTML page (B-15 to B-20)."""

from collections.abc import Iterable, Iterator
from html import escape

from headgate.topology.findings import joined
from headgate.topology.groups import Group
from headgate.topology.lints import Lint
from headgate.topology.markup import END, left_out, opening, table
from headgate.topology.report import NodeRow, Report, coverage
from headgate.topology.simulate import Consequence
from headgate.topology.standing import Standing

MOST_NODES, MOST_TOPICS, MOST_SCENARIOS = 60, 120, 50


def page(report: Report, standing: Standing) -> str:
    return "".join(_parts(report, standing))


def _parts(report: Report, standing: Standing) -> Iterator[str]:
    level = report.worst.name if report.worst else "healthy"
    yield opening("Kafka topology", f"Kafka topology: {report.source}")
    yield f'<p class="verdict {level}">{escape(report.verdict)}</p>'
    yield "<h2>Findings</h2>" + ("" if report.findings else "<p>None.</p>")
    for finding in report.findings:
        evidence = "".join(f"<li>{escape(line)}</li>" for line in finding.evidence)
        level = finding.severity.name
        yield f'<div class="finding {level}"><p><b>{level}</b> {escape(finding.what)}</p>'
        yield f"<ul>{evidence}</ul><p>→ {escape(finding.do)}</p></div>"
    yield from _nodes(report)
    yield from _matrix(report, standing)
    yield from _overlaps(report)
    yield from _failures(report)
    yield "<h2>When round robin would be enough</h2>"
    yield table(
        ("condition", "holds", "seen"),
        ((c.what, {True: "yes", False: "no", None: "not known"}[c.holds], c.evidence) for c in report.preconditions),
    )
    yield END


def _nodes(report: Report) -> Iterator[str]:
    yield "<h2>Load per node, by partitioner</h2>"
    shown = sorted(report.rows, key=lambda row: -row.default_load)[:MOST_NODES]
    yield table(
        ("node", "leaders", "topics", "groups", "default", "node", "shared SQF"),
        (
            (
                f"{row.id}{'' if row.online else ' (offline)'}",
                *map(str, (row.leaders, row.topics, row.groups)),
                *(f"{load:.4g}" for load in (row.default_load, row.node_load, row.shared_sqf_load)),
            )
            for row in shown
        ),
    )
    yield left_out(len(report.rows) - len(shown), "less loaded nodes")


def _matrix(report: Report, standing: Standing) -> Iterator[str]:
    """Nodes × topics: how many leaders, coloured by the traffic they bring; red where groups overlap."""
    yield "<h2>Who leads what</h2><p class=dim>Numbers are leaders; the darker, the more traffic. "
    yield "Framed in red: the node is shared by groups of topics that differ.</p>"
    spreads = sorted((s for s in standing.spreads if s.counts), key=lambda s: (-s.rate, s.topic))
    topics = spreads[:MOST_TOPICS]
    rows = sorted(report.rows, key=lambda row: -row.default_load)[:MOST_NODES]
    most = max((s.rate * max(s.counts.values()) / s.led for s in topics), default=0.0) or 1.0
    yield '<div class="scroll"><table><tr><th class="name">topic</th>'
    yield "".join(f"<th>{row.id}</th>" for row in rows) + "</tr>"
    for spread in topics:
        cells = (_cell(row, spread.counts.get(row.id, 0), spread.rate / spread.led / most) for row in rows)
        yield f'<tr><td class="name">{escape(spread.topic)}</td>{"".join(cells)}</tr>'
    yield "</table></div>"
    yield left_out(len(spreads) - len(topics), "topics with less traffic")
    yield left_out(len(report.rows) - len(rows), "nodes with less load")


def _cell(row: NodeRow, leaders: int, share: float) -> str:
    if not leaders:
        return "<td></td>"
    shared = ' class="shared"' if row.groups > 1 else ""
    return (
        f'<td{shared} style="background:rgba(33,102,172,{0.08 + 0.72 * min(1.0, share * leaders):.2f})">{leaders}</td>'
    )


def _overlaps(report: Report) -> Iterator[str]:
    if report.shared:
        yield "<h2>Nodes that groups of topics share</h2>"
        rows = ((str(s.node), *_groups(s.groups, s.more)) for s in report.shared)
        yield table(("node", "groups"), rows)
    if report.pairs is not None:
        yield "<h2>Groups that share nodes in part</h2>" + ("" if report.pairs else "<p>None.</p>")
        pairs = ((p.first.short(), p.second.short(), joined(p.shared)) for p in report.pairs)
        yield table(("group", "and", "share nodes"), pairs)


def _groups(groups: Iterable[Group], more: int) -> Iterator[str]:
    yield ", ".join(group.short() for group in groups) + (f" and {more:,} more" if more else "")


def _failures(report: Report) -> Iterator[str]:
    if report.simulation is None:
        return
    yield "<h2>If nodes failed, worst first</h2>"
    yield table(
        (
            "failed",
            "offline topics",
            "refusing acks=all",
            "newly uneven",
            "busiest",
            "its share",
            "with node",
            "with shared SQF",
            "overlap",
        ),
        (_failure(c) for c in report.simulation.consequences[:MOST_SCENARIOS]),
    )
    for size, (seen, total) in report.simulation.covered.items():
        yield f'<p class="dim">{seen:,} of {total:,} failures of {size} node(s) simulated.</p>'
    if report.potentials is not None and report.potentials.pairs:
        yield f'<p class="dim">{coverage(report.potentials)} for overlaps after failures.</p>'


def _failure(c: Consequence) -> Iterable[str]:
    counts = (str(len(c.new.get(lint, ()))) for lint in (Lint.OFFLINE, Lint.UNWRITABLE, Lint.UNEVEN))
    busiest = (f"node {c.default.busiest}", f"{c.default.skew:.2f}") if c.default else ("–", "–")
    shares = (f"{pressure.skew:.2f}" if pressure else "–" for pressure in (c.node, c.shared_sqf))
    return (joined(c.failed), *counts, *busiest, *shares, "yes" if c.partial else "no")
