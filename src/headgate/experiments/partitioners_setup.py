"""The report's last section: what producers were set to, in the paper and here (B-57), and what is not measured."""

from headgate.experiments.partitioners import Plan
from headgate.experiments.partitioners_cases import ADAPTIVE, PAPER_PARTITIONERS
from headgate.experiments.partitioners_live import QUEUE_RECORDS
from headgate.experiments.partitioners_published import RECORDS as PUBLISHED_RECORDS
from headgate.experiments.partitioners_tables import prose, table


def what_is_measured(plan: Plan) -> list[str]:
    return [
        "## What is measured, and what is not",
        "",
        *the_producers(plan),
        "",
        *prose(
            f"""- {plan.size.records:,} records of {plan.size.record_bytes} bytes a run, {PUBLISHED_RECORDS:,} in the
            paper; no cap on throughput; the client's own settings, but a queue of {QUEUE_RECORDS:,} records and not
            of 100,000, which is a large share of so short a run. Connections and metadata are there before the clock
            starts. All partitioners run behind the same wrapper, the client's own default included, in one thread of
            Python."""
        ),
        *prose(
            """- Latency is from the call of `produce` to the acknowledgement, as the client has it, over all records
            and not over every 200th (A-1). *max* is the largest of all runs and has no interval."""
        ),
        *prose(
            """- The paper's I/O latency is, by its size, the Java client's time for a turn of its selector (A-6).
            librdkafka has no such number, so it is left out. `runs.csv` has what comes nearest, from librdkafka's
            statistics: mean time in the client's queue (`internal_ms`), until the request was written (`outbuf_ms`),
            until it was answered (`rtt_ms`); nan where a run was too short for a whole window. Brokers write to the
            system's cache and no record waits for a disk, so disk time is not measured."""
        ),
        *prose(
            """- MiB are 2^20 bytes of values, as in the paper (A-7). Intervals are 99 %, Student's t over runs, which
            are spread over the whole campaign: every round runs each cell once, in an order drawn anew."""
        ),
        *prose(
            """- Brokers and producers share one machine: a node that gets more than its share finds more processor
            time, and that evens out what on machines of their own would be an overloaded node."""
        ),
        *prose(
            """- Not measured: a failure of several nodes in which a majority of controllers is left (it takes five
            nodes, more than this machine bears); consumers that fall behind, or a group of several; more than three
            nodes; topics with many partitions; records that vary in size; and a network between the machines, for
            there is none."""
        ),
        "",
    ]


def the_producers(plan: Plan) -> list[str]:
    """B-57: what a producer is set to."""
    heading = ("the producer", "in the paper", "here")
    rows = (
        ("records of a run", f"{PUBLISHED_RECORDS:,}", f"{plan.size.records:,}"),
        ("record size", "100 bytes", f"{plan.size.record_bytes} bytes"),
        (
            "cap on throughput",
            "none (-1)",
            f"none; where nodes limit {plan.limit_mib_per_s:g} MiB/s a node; a steady rate with slow and killed nodes "
            f"({plan.faults.records_per_s:,} records/s) and for consumer latency ({plan.pace.records_per_s:,})",
        ),
        (
            "partitioner",
            "Default, Improved, Node, SQF",
            f"{', '.join(f'`{name}`' for name in PAPER_PARTITIONERS)}; in other parts also "
            f"{', '.join(f'`{name}`' for name in ADAPTIVE)}",
        ),
        ("acks", "1 and -1 (all)", "1 and all"),
        ("topic", "B1, B2, U1, U2 of one cluster of two nodes", "the same; others on three nodes"),
        ("producers at once", "one", "one; two in *several producers*"),
        (
            "runs",
            "not stated; 8 to 20, by the fractions of whole numbers (A-7)",
            f"{plan.runs}; {plan.more_runs} of others",
        ),
        (
            "everything else",
            "the Java client's defaults",
            f"librdkafka's defaults, but a queue of {QUEUE_RECORDS:,} records",
        ),
    )
    return table(heading, rows)
