"""A producer whose collector is lost, on librdkafka's clusters in memory."""

import time
from typing import Any

import pytest

from headgate.errors import ConfigError
from headgate.producers.fallback import FallbackProducer
from headgate.producers.murmur2 import partition_of_key
from tests.unit.test_collectors import PARTITIONS, TIMESTAMP_MS, InMemory


def test_what_a_lost_collector_did_not_acknowledge_goes_to_the_main_cluster_in_order() -> None:
    collector, main = InMemory(), InMemory()
    for cluster in (collector, main):
        cluster.create("t")
    reports: list[tuple[Any, bytes]] = []
    producer = FallbackProducer(
        {"bootstrap.servers": collector.address, "log_level": 0},
        {"bootstrap.servers": main.address, "log_level": 0},
        lost_after_s=1,
    )

    def send(numbers: range) -> None:
        for n in numbers:
            producer.produce("t", b"%d" % n, "key", report, TIMESTAMP_MS, [("n", b"%d" % n)])
            producer.poll()

    def report(error: Any, message: Any) -> None:
        reports.append((error, message.value()))

    send(range(100))
    assert producer.flush(30) == 0
    assert not producer.direct
    assert len(collector.read("t", 100)) == 100
    del collector
    send(range(100, 200))
    until = time.monotonic() + 30
    while not producer.direct and time.monotonic() < until:
        producer.poll(0.05)
    send(range(200, 300))
    assert producer.flush(30) == 0
    producer.close()
    assert sorted(int(value) for _, value in reports) == list(range(300))
    assert {error for error, _ in reports} == {None}
    found = main.read("t", 200)
    assert [int(m.value()) for m in found] == list(range(100, 300))
    assert {m.partition() for m in found} == {partition_of_key(b"key", PARTITIONS)}
    assert all(m.headers() == [("n", m.value())] for m in found)
    assert {m.timestamp()[1] for m in found} == {TIMESTAMP_MS}


def test_what_cannot_work_is_refused() -> None:
    with pytest.raises(ConfigError, match="above 0"):
        FallbackProducer({}, {}, lost_after_s=0)
