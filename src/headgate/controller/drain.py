"""Is the lake complete? Compares the brokers' end offsets with the ledger that the committer published."""

import logging
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from headgate.config.pipeline import Pipeline
from headgate.errors import KafkaUnavailable
from headgate.kafka.offsets import end_offsets, partitions_where
from headgate.lake.words import last_words

log = logging.getLogger(__name__)


def is_drained(pipeline: Pipeline, settings: Mapping[str, str]) -> bool:
    """Whether every table holds everything; False while the brokers do not tell."""
    try:
        return lag_records(pipeline, settings) == 0
    except KafkaUnavailable as error:
        log.info("not known to be complete: %s", error)
        return False


def lag_records(pipeline: Pipeline, settings: Mapping[str, str]) -> int:
    """Offsets not in the lake yet, summed over tables; a table that nothing is known of counts in full."""
    admin = AdminClient(dict(settings))
    partitions = partitions_where(admin, pipeline.matches)
    ends = end_offsets(admin, partitions, pipeline.kafka.isolation == "read_committed")
    if missing := partitions - ends.keys():
        raise KafkaUnavailable(f"no end offset of {min(missing)}, which may be without a leader")
    ledgers, lag = last_words(pipeline, settings).said, 0
    for table in pipeline.tables:
        positions = pipeline.landed(ledgers[table.name]) if table.name in ledgers else {}
        lag += sum(max(0, end - positions.get(p, 0)) for p, end in ends.items() if table.matches(p.topic))
    return lag
