"""Sends every line of its input to Kafka with nodes balanced; docs/producers.md explains it.

python balanced_producer.py BROKERS TOPIC [PARTITIONER] < lines
"""

import sys
from collections.abc import Iterable

from confluent_kafka import KafkaError, Message

from headgate.producers.confluent import BalancedProducer


def main(brokers: str, topic: str, partitioner: str, lines: Iterable[str]) -> int:
    """How many lines did not arrive."""
    lost = 0

    def report(error: KafkaError | None, message: Message) -> None:
        nonlocal lost
        if error is not None:
            lost += 1
            print(f"lost a line: {error}", file=sys.stderr)

    config = {"bootstrap.servers": brokers, "acks": "all", "enable.idempotence": True, "log_level": 0}
    producer = BalancedProducer(config, partitioner=partitioner)  # the one new line
    for line in lines:
        while True:
            try:
                producer.produce(topic, line.rstrip("\n"), on_delivery=report)
                break
            except BufferError:  # as with any producer: its queue is full
                producer.poll(0.1)
        producer.poll(0)
    return lost + producer.flush(60)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], (*sys.argv[3:], "node")[0], sys.stdin) > 0)
