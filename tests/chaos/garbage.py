"""What nobody should believe: noise, half messages, and things that were true once, put on every internal topic."""

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as KafkaTopicPartition

from headgate.kafka.codec import NotAMessage, decode, encode
from headgate.kafka.internal_topics import Topics
from headgate.model import Announcement, Range, TopicPartition
from headgate.model.messages import ConsumerLeft, ConsumerState, LedgerState, Measurement, StartConsuming, StopConsuming
from tests.chaos.watch import FORGED

Headers = list[tuple[str, str | bytes | None]]
_MOST_KEPT = 40


class Old:
    """Messages that were said before, word by word, and a few of each kind as values."""

    def __init__(self, settings: Mapping[str, Any], topics: Topics, consumers: Iterable[int]) -> None:
        self.records: list[tuple[str, int, bytes | None, bytes | None, Headers]] = []
        self.messages: list[Any] = []
        places = [(topics.announcements, 0), (topics.ledger, 0), (topics.measurements, 0), (topics.control, 0)]
        for topic, partition in [*places, *((topics.control, n) for n in consumers)]:
            self._read(settings, topic, partition)

    def _read(self, settings: Mapping[str, Any], topic: str, partition: int) -> None:
        """The oldest of one partition, and some of the newest."""
        reader = Consumer({**settings, "group.id": "chaos", "enable.auto.commit": False, "enable.partition.eof": True})
        try:
            at = KafkaTopicPartition(topic, partition)
            low, high = reader.get_watermark_offsets(at, timeout=15)
            for start, end in ((low, min(high, low + _MOST_KEPT)), (max(low, high - _MOST_KEPT), high)):
                reader.assign([KafkaTopicPartition(topic, partition, start)])
                self._take(reader, end)
        finally:
            reader.close()

    def _take(self, reader: Consumer, end: int) -> None:
        while True:
            records = reader.consume(_MOST_KEPT, 1.0)
            if not records:
                return
            for record in records:
                if record.error() is not None:  # the end of the partition
                    return
                topic, partition, offset = record.topic(), record.partition(), record.offset()
                if topic is None or partition is None or offset is None or offset >= end:
                    return
                headers = record.headers()
                listed = headers if isinstance(headers, list) else []
                self.records.append((topic, partition, record.key(), record.value(), listed))
                try:
                    self.messages.append(decode(record.value(), listed))
                except NotAMessage:
                    continue  # garbage of an earlier time
                if offset + 1 >= end:
                    return

    def of(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.messages if isinstance(message, kind)]


def litter(
    settings: Mapping[str, Any],
    topics: Topics,
    old: Old,
    positions: Mapping[str, Mapping[TopicPartition, int]],
    owners: Mapping[int, tuple[TopicPartition, ...]],
    chance: random.Random,
) -> int:
    """Puts all of it on the topics; returns how many records that were."""
    sent, failed = 0, []

    def delivered(error: KafkaError | None, record: Any) -> None:
        if error is not None:
            failed.append(error.str())

    producer = Producer({**settings, "acks": "all"})
    for topic, partition, key, value, headers in [
        *_noise(topics, [0, *owners], chance),
        *_halves(old, chance),
        *chance.sample(old.records, min(len(old.records), 60)),
        *_told_again(topics, old, positions, owners),
    ]:
        producer.produce(topic, value, key, partition, headers=headers, on_delivery=delivered)
        sent += 1
    if producer.flush(30) or failed:
        raise KafkaException(f"could not litter the topics: {failed[:3]}")
    return sent


Record = tuple[str, int, bytes | None, bytes | None, Headers]


def _noise(topics: Topics, control: list[int], chance: random.Random) -> list[Record]:
    records: list[Record] = []
    for topic in topics.settings():
        for partition in control if topic == topics.control else [0]:
            records += [(topic, partition, b"noise", chance.randbytes(size), []) for size in (0, 1, 7, 300, 20_000)]
            records.append((topic, partition, b"noise", None, []))
            records.append((topic, partition, b"noise", b"x", [("event_type", b"\xff\xfe"), ("schema", None)]))
    return records


def _halves(old: Old, chance: random.Random) -> list[Record]:
    """The right headers, and a body that ends too early, is too long, or has a bit flipped in it."""
    records: list[Record] = []
    for topic, partition, key, value, headers in chance.sample(old.records, min(len(old.records), 30)):
        if value:
            records.append((topic, partition, key, value[: chance.randrange(len(value))], headers))
            records.append((topic, partition, key, value + b"more", headers))
    return records


def _told_again(
    topics: Topics,
    old: Old,
    positions: Mapping[str, Mapping[TopicPartition, int]],
    owners: Mapping[int, tuple[TopicPartition, ...]],
) -> list[Record]:
    """Well-formed, and wrong: offsets the lake holds or is far from, files that are not there, commands of controllers
    long gone, ledgers of long ago, lives that ended."""
    said: list[tuple[str, int, Any]] = [
        (topics.announcements, 0, replace(known, id=f"{known.id}-again")) for known in old.of(Announcement)[:10]
    ]
    for table, at in positions.items():
        like = next((a for a in old.of(Announcement) if a.table == table and a.ranges), None)
        if like is None:
            continue
        for partition, following in at.items():
            gone = "/nowhere/gone.parquet" if not like.files else like.files[0] + ".gone.parquet"
            for number, (start, end) in enumerate(
                (
                    (max(0, following - 50), following + 50),
                    (following + 1_000_000, following + 1_000_100),
                    (following, following + 10),
                )
            ):
                forged = replace(
                    like,
                    id=f"forged-{partition}-{following}-{number}",
                    ranges=(Range(partition, start, end),),
                    files=(gone,),
                    rejected_files=(),
                    skips=(),
                )
                said.append((topics.announcements, 0, forged))
        said.append((topics.announcements, 0, replace(like, id=f"no-schema-{table}", ranges=(), files=(), schema="{")))
        said.append((topics.announcements, 0, replace(like, id=f"nobody-{table}", table="lake.nobody")))
    everything = tuple(sorted({p for owned in owners.values() for p in owned}))
    for consumer_id in owners:
        said.append((topics.control, consumer_id, StartConsuming("old-start", 1, consumer_id, "", everything)))
        said.append((topics.control, consumer_id, StopConsuming("old-stop", 1, consumer_id, "", everything)))
        said.append((topics.control, consumer_id, StartConsuming("dead", 1 << 40, consumer_id, "0-dead", everything)))
        said.append((topics.control, 0, ConsumerLeft(consumer_id, "0-dead", 0, "long ago")))
    for state in old.of(ConsumerState)[:5]:
        said.append((topics.control, 0, replace(state, incarnation="0-dead", partitions=everything, started_at_ms=1)))
        said.append((topics.control, 0, replace(state, consumer_id=9, incarnation="0-dead", partitions=everything)))
    for ledger in old.of(LedgerState)[:5]:
        low = replace(ledger, committer=FORGED, sequence=0, positions=(), announcements_next=0)
        said.append((topics.ledger, 0, low))
        said.append((topics.measurements, 0, ledger))
    for measurement in old.of(Measurement)[:5]:
        said.append((topics.measurements, 0, replace(measurement, at_ms=1)))
        said.append((topics.announcements, 0, measurement))
    records: list[Record] = []
    for topic, place, message in said:
        value, headers = encode(message)
        key = message.table.encode() if isinstance(message, LedgerState) else None
        records.append((topic, place, key, value, headers))
    return records
