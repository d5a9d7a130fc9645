"""E-49: controller and policy on a queue that is not Kafka, from written records to processed ones."""

from collections import defaultdict

from headgate.controller.machine import Controller
from headgate.controller.queue import MemoryQueue, QueueFleet, QueueMonitor
from headgate.controller.settings import Settings
from headgate.controller.virtual_behaviour import Behaviour
from headgate.controller.virtual_channel import MemoryChannel
from headgate.controller.virtual_clock import VirtualClock
from headgate.kafka.rates import WriteRates
from headgate.kafka.smoothing import BoxMean
from headgate.model import TopicPartition
from headgate.packing.modified_any_fit import ModifiedWorstFit
from headgate.policies import Policy
from headgate.policies.sentinel import Sentinel
from headgate.policies.slo import Slo

PARTITIONS = tuple(TopicPartition("jobs", n) for n in range(6))
RECORD = 100
PER_CYCLE = 20
"""A consumer with cycles of a second does 20 records, 2,000 bytes, a second."""


class World:
    """A queue, who writes to it, and the controller that looks after its consumers."""

    def __init__(self, policy: Policy) -> None:
        self.clock = VirtualClock()
        behaviour = Behaviour(start_s=lambda n: 3.0)
        self.channel = MemoryChannel(self.clock, behaviour)
        self.queue = MemoryQueue(frozenset(PARTITIONS))
        self.fleet = QueueFleet(self.clock, self.channel, behaviour, self.queue, PER_CYCLE)
        self.monitor = QueueMonitor(self.queue, WriteRates(BoxMean(5.0), 2.0), 5.0, "memory")
        self.controller = Controller(policy, self.channel, self.fleet, self.clock, Settings(2000, 1500))
        self.each_per_s = 0
        self._tick()

    def _tick(self) -> None:
        """Once a second: what was written is measured."""
        for p in PARTITIONS:
            for _ in range(self.each_per_s):
                self.queue.append(p, b"%0*d" % (RECORD, self.queue.written()[p].end_offset))
        self.channel.put_measurement(self.monitor.measure(self.clock.now_s()))
        self.clock.after(1.0, self._tick)

    def run(self, seconds: float, each_per_s: int) -> None:
        self.each_per_s = each_per_s
        until = self.clock.now_s() + seconds
        while self.clock.now_s() < until:
            self.controller.step()
            self.clock.wait(0.2)

    @property
    def lag(self) -> int:
        committed = self.queue.committed()
        return sum(counter.end_offset - committed[p] for p, counter in self.queue.written().items())


def test_the_group_follows_the_load_and_every_record_is_processed_once_and_in_order() -> None:
    world = World(Sentinel(ModifiedWorstFit(), 2000, 1500, max_sentinel_s=10.0))
    world.run(30, each_per_s=2)  # 1,200 bytes a second: one consumer
    assert len(world.controller.assignment) == 1
    world.run(60, each_per_s=7)  # 700 bytes a second each: two, not three, fit into 1,500
    assert len(world.controller.assignment) == 3
    world.run(60, each_per_s=1)
    assert len(world.controller.assignment) == 1
    world.run(30, each_per_s=0)
    assert world.lag == 0
    found = defaultdict(list)
    for partition, position, record in world.fleet.done:
        assert int(record) == position
        found[partition].append(position)
    written = 30 * 2 + 60 * 7 + 60 * 1
    for partition in PARTITIONS:
        assert found[partition] == list(range(len(found[partition])))
        assert abs(len(found[partition]) - written) <= 14  # a tick more or less at the edges of the phases


def test_a_policy_that_goes_by_lag_and_arrivals_runs_on_it_too() -> None:
    policy = Slo(slo_s=5.0, quantile=0.95, consumer_capacity_bytes_per_s=2000.0, start_s=3.0)
    world = World(policy)
    world.run(20, each_per_s=2)
    world.run(30, each_per_s=9)  # 54 records a second, 20 for each consumer
    assert len(world.controller.assignment) >= 3
    world.run(40, each_per_s=0)
    assert world.lag == 0


def test_the_monitor_counts_records_and_bytes_of_the_queue() -> None:
    queue = MemoryQueue(frozenset(PARTITIONS[:1]))
    monitor = QueueMonitor(queue, WriteRates(BoxMean(10.0), 2.0), 10.0, "memory")
    monitor.measure(0.0)
    for _ in range(30):
        queue.append(PARTITIONS[0], bytes(50))
    (rate,) = monitor.measure(5.0).rates
    assert (rate.bytes_per_s, rate.records_per_s, rate.end_offset) == (300.0, 6.0, 30)


def test_a_commit_only_moves_forward() -> None:
    queue = MemoryQueue(frozenset(PARTITIONS[:1]))
    queue.commit(PARTITIONS[0], 5)
    queue.commit(PARTITIONS[0], 3)
    assert queue.committed() == {PARTITIONS[0]: 5}
