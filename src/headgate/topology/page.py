"""The report as one HTML page that needs nothing else: no script, no font, no address (B-15 to B-20)."""

from collections.abc import Iterable, Iterator
from html import escape

from headgate.topology.findings import joined
from headgate.topology.groups import Group
from headgate.topology.lints import Lint
from headgate.topology.report import NodeRow, Report, coverage
from headgate.topology.simulate import Consequence
from headgate.topology.standing import Standing

MOST_NODES, MOST_TOPICS, MOST_SCENARIOS = 60, 120, 50

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:1200px;padding:0 1rem;color:#222;background:#fff}
h1{font-size:1.25rem}h2{font-size:1.05rem;margin-top:2rem}.verdict{padding:.7rem 1rem;border-radius:6px;font-weight:600}
.critical{background:#fbdcdc}.warning{background:#fdf0cf}.note{background:#e6eefa}.healthy{background:#dff3e1}
.finding{margin:.6rem 0;padding:.5rem .8rem;border-radius:6px}.finding p{margin:.2rem 0}
ul{margin:.2rem 0 .2rem 1.2rem;padding:0;color:#555}
table{border-collapse:collapse;font-size:13px;margin:.5rem 0}
td,th{padding:2px 7px;border:1px solid #ddd;text-align:right}
th{background:#f4f4f4;font-weight:600}td.name,th.name{text-align:left;white-space:nowrap}
td.shared{outline:2px solid #b3261e}
.scroll{overflow-x:auto}.dim{color:#777}
"""


def page(report: Report, standing: Standing) -> str:
    return "".join(_parts(report, standing))


def _parts(report: Report, standing: Standing) -> Iterator[str]:
    level = report.worst.name if report.worst else "healthy"
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Kafka topology</title>'
    yield f"<style>{_STYLE}</style></head><body><h1>Kafka topology: {escape(report.source)}</h1>"
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
    yield _table(
        ("condition", "holds", "seen"),
        ((c.what, {True: "yes", False: "no", None: "not known"}[c.holds], c.evidence) for c in report.preconditions),
    )
    yield "</body></html>\n"


def _nodes(report: Report) -> Iterator[str]:
    yield "<h2>Load per node, by partitioner</h2>"
    shown = sorted(report.rows, key=lambda row: -row.default_load)[:MOST_NODES]
    yield _table(
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
    yield _left_out(len(report.rows) - len(shown), "less loaded nodes")


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
    yield _left_out(len(spreads) - len(topics), "topics with less traffic")
    yield _left_out(len(report.rows) - len(rows), "nodes with less load")


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
        yield _table(("node", "groups"), rows)
    if report.pairs is not None:
        yield "<h2>Groups that share nodes in part</h2>" + ("" if report.pairs else "<p>None.</p>")
        pairs = ((p.first.short(), p.second.short(), joined(p.shared)) for p in report.pairs)
        yield _table(("group", "and", "share nodes"), pairs)


def _groups(groups: Iterable[Group], more: int) -> Iterator[str]:
    yield ", ".join(group.short() for group in groups) + (f" and {more:,} more" if more else "")


def _failures(report: Report) -> Iterator[str]:
    if report.simulation is None:
        return
    yield "<h2>If nodes failed, worst first</h2>"
    yield _table(
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


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    def line(tag: str, cells: Iterable[str]) -> str:
        named = (f"<{tag}{' class=name' if n == 0 else ''}>{escape(cell)}</{tag}>" for n, cell in enumerate(cells))
        return f"<tr>{''.join(named)}</tr>"

    return f'<div class="scroll"><table>{line("th", head)}{"".join(line("td", row) for row in rows)}</table></div>'


def _left_out(number: int, what: str) -> str:
    return f'<p class="dim">… and {number:,} {what} are not shown.</p>' if number > 0 else ""
