"""What commands print as JSON."""

import json

from headgate.cli.output import as_document
from headgate.model import TopicPartition
from headgate.model.messages import ConsumerPartitions, Measurement, PartitionRate


def test_partitions_and_rates_keep_the_names_of_their_fields() -> None:
    owned = ConsumerPartitions(3, (TopicPartition("orders", 7),))
    assert as_document(owned) == {"consumer_id": 3, "partitions": [{"topic": "orders", "partition": 7}]}
    measured = Measurement(5, 30.0, "offsets", (PartitionRate("orders", 7, 100.0, 1.0, 9, 30.0),))
    rate = json.loads(json.dumps(as_document(measured)))["rates"][0]
    assert rate["topic"] == "orders"
    assert rate["end_offset"] == 9


def test_mappings_are_looked_into() -> None:
    assert as_document({"a": [TopicPartition("t", 0)]}) == {"a": [{"topic": "t", "partition": 0}]}
