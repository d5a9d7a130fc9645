"""The report of the partitioner experiment: every cell with its interval, verdicts, the published numbers (B-60)."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from headgate.experiments import partitioners_untested as untested
from headgate.experiments.intervals import ENOUGH_RUNS as FOR_A_VERDICT
from headgate.experiments.intervals import Verdict
from headgate.experiments.partitioners import Plan
from headgate.experiments.partitioners_cases import (
    ACKS,
    ADAPTIVE,
    BASELINE,
    PAPER,
    PAPER_PARTITIONERS,
    Cell,
    Part,
    cells,
)
from headgate.experiments.partitioners_faults import FAILING, SLOW
from headgate.experiments.partitioners_model import Model, Predicted
from headgate.experiments.partitioners_published import DOUBTFUL, Published, published
from headgate.experiments.partitioners_published import RECORDS as PUBLISHED_RECORDS
from headgate.experiments.partitioners_results import Results
from headgate.experiments.partitioners_setup import what_is_measured
from headgate.experiments.partitioners_simulated import Simulated
from headgate.experiments.partitioners_tables import (
    cell_row,
    change,
    change_of,
    compared,
    leaders,
    prose,
    shares_row,
    table,
)

BY_HAND = "<!-- Written by hand from here on: the command keeps it. -->"
COMPARED = {"Throughput": "mib_per_s", "Average latency": "avg_ms", "p99": "p99_ms"}
ENOUGH_RUNS = 20
COPIES = {"B1": "one copy", "B2": "two copies", "U1": "one copy", "U2": "two copies"}


def write(file: Path, text: str) -> None:
    """In place of the last report; what was written by hand below it stays."""
    before = file.read_text() if file.exists() else ""
    _, _, by_hand = before.partition(BY_HAND)
    file.write_text(text + "\n" + BY_HAND + (by_hand or "\n"))


def report(
    results: Results,
    simulated: Sequence[Simulated],
    published_rows: tuple[Model, Sequence[Predicted]],
    plan: Plan,
    how: str,
) -> str:
    sections = (
        ["# Partitioners on real brokers (E-5)", "", *prose(how), ""],
        in_short(results, plan),
        the_four_scenarios(results),
        against_the_baseline(results),
        the_published_rows_simulated(*published_rows),
        where_records_landed(results),
        untested.limited(results, plan),
        untested.three_nodes(results),
        untested.several_producers(results),
        untested.slow_node(results, plan),
        untested.killed_node(results),
        untested.two_killed_nodes(results),
        untested.consumer_latency(results, plan),
        untested.threads_and_new_topics(results),
        untested.in_the_simulator(simulated),
        which_one_when(results),
        what_is_measured(plan),
    )
    return "\n".join(line for section in sections for line in section)


def in_short(results: Results, plan: Plan) -> list[str]:
    pairs = [both for cell in cells(Part.paper) if (both := compared(results, cell, "mib_per_s")) is not None]
    found = [ours.against(theirs, more_is_better=True) for ours, theirs in pairs]
    counted = ", ".join(f"{found.count(verdict)} {verdict.value}" for verdict in Verdict if verdict in found)
    return [
        "## In short",
        "",
        *_too_few(plan),
        *prose(
            f"""- Throughput of the paper's cells against `{BASELINE}` in the same cell: {counted or "not measured"}.
            *Level*: the 99 % intervals overlap. With fewer than {FOR_A_VERDICT} runs there is no verdict. There is no
            overall winner, and none is named (B-60)."""
        ),
        *_machine(results),
        *(line for name in ("node", "sqf") for line in _headline(results, name)),
        *_faults(results),
        *prose(
            """- Where nodes do not limit, no partitioner can gain by relieving one. The part with limits, the slow
            node, the killed node and the simulator show what happens where they do."""
        ),
        "",
        "![change against default-rr](changes.png)",
        "",
    ]


def _too_few(plan: Plan) -> list[str]:
    if plan.runs >= ENOUGH_RUNS:
        return []
    return prose(
        f"""- **A trial: nothing below is a finding.** {plan.runs} runs of each cell of the paper; {ENOUGH_RUNS}
        are asked for (B-59), and intervals of so few are too wide to tell anything apart."""
    )


def _machine(results: Results) -> list[str]:
    runs = [run for run in results.runs if run.part == Part.paper and run.seconds]
    if not runs:
        return []
    client = median(run.client_cpu_s / run.seconds for run in runs)
    brokers = median(run.broker_cpu_s / run.seconds for run in runs)
    return prose(
        f"""- In the median run of the paper's part the producer's process kept {client:.1f} cores busy and all brokers
        together {brokers:.1f}. Near 1.0 the one thread that calls `produce` is what limits, and not the nodes."""
    )


def _headline(results: Results, name: str) -> list[str]:
    ours, theirs = published("U2", "all", name), published("U2", "all", BASELINE)
    assert ours is not None
    assert theirs is not None
    free, limited = (change(results, Cell(part, "U2", "all", name), "mib_per_s") for part in (Part.paper, Part.limited))
    there = change_of(ours.mib_per_s, theirs.mib_per_s, "mib_per_s")
    return prose(
        f"""- The paper's headline, U2 with acks all, throughput of `{name}`: published {there}; here
        {free or "not measured"}; here where nodes limit {limited or "not measured"}."""
    )


def _faults(results: Results) -> list[str]:
    lines = []
    for part, phase, what in (
        (Part.slow, SLOW, "While one node of three is slow"),
        (Part.killed, FAILING, "From the kill of a node until others lead"),
    ):
        found = {c.partitioner: change(results, c, "avg_ms", phase) for c in cells(part) if c.partitioner in ADAPTIVE}
        words = "; ".join(f"`{name}` {text or 'not measured'}" for name, text in found.items())
        lines += prose(f"- {what}, average latency: {words}.")
    return lines


def the_four_scenarios(results: Results) -> list[str]:
    heading = ("partitioner", "runs", "MiB/s", "avg ms", "p50", "p95", "p99", "p99.9", "max", "seconds")
    beside = ("published: MiB/s", "avg ms", "p99", "seconds")
    lines = ["## The four scenarios", ""]
    for scenario in PAPER:
        lines += [f"### {scenario}: leaders {leaders(scenario)}, {COPIES[scenario]}", ""]
        for acks in ACKS:
            chosen = [Cell(Part.paper, scenario, acks, name) for name in PAPER_PARTITIONERS]
            rows = [(*cell_row(results, c), *_published(published(scenario, acks, c.partitioner))) for c in chosen]
            lines += [f"acks {acks}:", "", *table((*heading, *beside), rows), ""]
    return [
        *lines,
        *prose(
            f"""Published seconds are for {PUBLISHED_RECORDS:,} records on two machines with rotating disks. † marks
            percentiles that contradict their own average (A-1). Without copies every acknowledgement is the leader's,
            and the paper has one table for both. Improved has no table there: as the default, with narrower
            intervals."""
        ),
        "",
    ]


def _published(row: Published | None) -> list[str]:
    if row is None:
        return [""] * 4
    doubt = " †" if row.table in DOUBTFUL else ""
    return [str(row.mib_per_s), str(row.avg_ms), f"{row.p99_ms}{doubt}", str(row.seconds)]


def against_the_baseline(results: Results) -> list[str]:
    others = [name for name in PAPER_PARTITIONERS if name != BASELINE]
    heading = ("scenario", "acks", *(f"`{name}`" for name in others), "published: `node`", "published: `sqf`")
    lines = [f"## Against {BASELINE}", ""]
    for title, metric in COMPARED.items():
        rows = []
        for scenario, acks in ((scenario, acks) for scenario in PAPER for acks in ACKS):
            ours = [change(results, Cell(Part.paper, scenario, acks, name), metric) for name in others]
            theirs = [published_change(scenario, acks, name, metric) for name in ("node", "sqf")]
            rows.append((scenario, acks, *ours, *theirs))
        lines += [f"{title}:", "", *table(heading, rows), ""]
    return lines


def published_change(scenario: str, acks: str, partitioner: str, metric: str) -> str:
    ours, theirs = published(scenario, acks, partitioner), published(scenario, acks, BASELINE)
    if ours is None or theirs is None:
        return ""
    doubt = " †" if metric.startswith("p") and ours.table in DOUBTFUL else ""
    return change_of(getattr(ours, metric), getattr(theirs, metric), metric) + doubt


def the_published_rows_simulated(model: Model, predicted: Sequence[Predicted]) -> list[str]:
    costs, program = model.costs, f"{model.client_bytes_per_s / 2**20:.0f} MiB/s"
    defaults = {(row.scenario, row.acks): row for row in predicted if row.partitioner == BASELINE}
    fitted = [
        (r.scenario, r.acks, f"{r.mib_per_s:.1f}", f"{r.published_mib_per_s:.1f}", f"{r.avg_ms:.0f}",
         f"{r.published_avg_ms:.0f}", f"{r.batch_kib:.0f}")
        for r in defaults.values()
    ]  # fmt: skip
    foretold = [
        (r.scenario, r.acks, f"`{r.partitioner}`", *_signed(r, defaults[r.scenario, r.acks]))
        for r in predicted
        if r.partitioner != BASELINE
    ]
    both = ("MiB/s", "published", "avg ms", "published")
    return [
        "## The published rows, simulated",
        "",
        *prose(
            f"""What could have made Node and SQF faster in one row and slower in another? A model of one producer,
            batch by batch (`headgate.simulation.producing`), has five numbers that are not published. They are fitted
            to the throughput of the default's six rows alone: the program makes {program};
            a request costs a node {1000 * costs.request_s:.2f} ms, a byte as much as at {1e-6 / costs.byte_s:.0f} MB/s,
            a copied one as at {1e-6 / costs.copied_byte_s:.0f} MB/s, and a follower needs {1000 * costs.fetch_s:.1f} ms
            for each partition of which a fetch brings something."""
        ),
        "",
        *table(("scenario", "acks", *both, "KiB a batch"), fitted),
        "",
        *prose(
            """What it then says of partitioners whose rows it has not seen, against the default; **bold** where the
            published intervals are disjoint:"""
        ),
        "",
        *table(("scenario", "acks", "partitioner", *both), foretold),
        "",
        *prose(
            """A request carries one batch of each partition that its node leads. With the default the node with two
            partitions gets twice the records in requests twice as large; when nodes get equal shares, one batch per
            request must do for half of everything. So levelling nodes costs throughput where requests are what takes
            time (acks 1), and gains where copying is, which takes longer the more one node leads (acks all). How much
            is not predicted well: the model is deterministic and has no disk that stalls, as latencies without copies
            show. Node and SQF choose alike here, so nothing tells them apart."""
        ),
        "",
    ]


def _signed(row: Predicted, default: Predicted) -> list[str]:
    cells = [f"{change:+.1f} %" for change in row.changes(default)]
    for place, metric in ((1, "mib_per_s"), (3, "avg_ms")):
        ours, theirs = (published(row.scenario, row.acks, name) for name in (row.partitioner, BASELINE))
        if ours and theirs and not getattr(ours, metric).overlaps(getattr(theirs, metric)):
            cells[place] = f"**{cells[place]}**"
    return cells


def where_records_landed(results: Results) -> list[str]:
    heading = ("scenario", "partitioner", "led, %", "predicted", "held with copies, %", "predicted")
    rows = [
        (scenario, f"`{name}`", *shares_row(results, [Cell(Part.paper, scenario, acks, name) for acks in ACKS]))
        for scenario in PAPER
        for name in PAPER_PARTITIONERS
    ]
    return [
        "## Where the records landed",
        "",
        *prose(
            """Shares of all records, node 1 / node 2, and what the load model of `headgate topology` predicts (B-24).
            Records are of equal size, so bytes have the same shares. The client's own default stays with one random
            partition for some milliseconds: its shares differ from run to run and meet the prediction only on
            average."""
        ),
        "",
        *table(heading, rows),
        "",
        "![load of nodes](load.png)",
        "",
    ]


def which_one_when(results: Results) -> list[str]:
    def here(cell: Cell, metric: str = "mib_per_s", phase: str = "") -> str:
        return change(results, cell, metric, phase) or "not measured"

    uneven, even = Cell(Part.limited, "U2", "all", "node"), Cell(Part.paper, "U1", "1", "client")
    slow, killed = Cell(Part.slow, "S", "1", "latency-weighted"), Cell(Part.killed, "K", "all", "sqf-inflight")
    rows = (
        (
            "leaders are uneven after a failure, copies, acks all",
            "`node`",
            f"U2: {published_change('U2', 'all', 'node', 'mib_per_s')}",
            f"where nodes limit {here(uneven)}",
        ),
        (
            "topics share some nodes, and one host writes them",
            "one `sqf` object, or `sqf-host`",
            "",
            "see several producers",
        ),
        (
            "acks 1 or one copy, throughput first",
            "`client` (in the paper its default, `default-rr`)",
            f"U1, `sqf`: {published_change('U1', '1', 'sqf', 'mib_per_s')}",
            f"U1, `client`: {here(even)}",
        ),
        (
            "a node is slow, or fails now and then",
            "`latency-weighted`, `sqf-inflight`",
            "",
            f"average latency: slow {here(slow, 'avg_ms', SLOW)}; failing {here(killed, 'avg_ms', FAILING)}",
        ),
    )
    heading = ("your case", "partitioner", "published", f"measured here against {BASELINE}")
    link = "Keys, several hosts, options, and what a call costs: [producers](../../producers.md)."
    return ["## Which one when", "", *table(heading, rows), "", link, ""]
