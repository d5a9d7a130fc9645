"""Is the lake complete? Compares the brokers' end offsets with the ledger that the committer published."""

from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from headgate.config.pipeline import Pipeline
from headgate.kafka.offsets import end_offsets, partitions_where
from headgate.lake.words import last_words


def lag_records(pipeline: Pipeline, settings: Mapping[str, str]) -> int:
    """Offsets not in the lake yet, summed over tables; a table that nothing is known of counts in full."""
    admin = AdminClient(dict(settings))
    ends = end_offsets(admin, partitions_where(admin, pipeline.matches), pipeline.kafka.isolation == "read_committed")
    ledgers, lag = last_words(pipeline, settings).said, 0
    for table in pipeline.tables:
        positions = pipeline.landed(ledgers[table.name]) if table.name in ledgers else {}
        lag += sum(max(0, end - positions.get(p, 0)) for p, end in ends.items() if table.matches(p.topic))
    return lag
