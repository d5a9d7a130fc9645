"""An ordinary Kafka consumer whose partitions Headgate places; docs/consumer-groups.md explains it.

python planned_consumer.py BROKERS TOPIC GROUP CONTROLLER

It ends in order on SIGTERM, as `headgate group run --command` asks of its members.
"""

import logging
import signal
import sys
import threading
import time
from types import FrameType

from kafka.errors import KafkaError

from headgate.groups import PlannedConsumer

log = logging.getLogger(__name__)

WORK_S = 0.005
"""How long the example takes for one record: 200 records/s."""


def main(brokers: str, topic: str, group: str, controller: str) -> None:
    stop = threading.Event()

    def asked_to_stop(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, asked_to_stop)
    consumer = PlannedConsumer(
        topic,
        controller=controller,  # the one new line
        group_id=group,
        bootstrap_servers=brokers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=500,
        max_poll_records=50,
    )
    while not stop.is_set():
        try:
            batch = consumer.poll(timeout_ms=200)
            for records in batch.values():
                for _record in records:
                    time.sleep(WORK_S)
            if batch:
                consumer.commit()
        except KafkaError as error:  # brokers away, or the partitions went to another member before the commit
            log.warning("what was not committed is read again: %r", error)
            stop.wait(0.5)
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:5])
