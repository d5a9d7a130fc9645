"""Ordinary consumer groups on a real broker: plans are enforced, rebalances forced, and nothing is ever unowned."""

import http.server
import logging
import shlex
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kafka.coordinator.assignors.range import RangePartitionAssignor
from prometheus_client import REGISTRY

from headgate.errors import ConfigError
from headgate.fleet.processes import ProcessFleet
from headgate.groups.carrying import Carrier
from headgate.groups.controller import GroupSettings
from headgate.groups.wire import Beat, BeatAnswer, ControllerUnreachable, Line
from headgate.kafka.embedded import EmbeddedKafka
from headgate.model import TopicPartition
from headgate.policies.binpack_lag import Algorithm2
from tests.eventually import eventually
from tests.integration.group_harness import NOWHERE, Group, traffic, turn_until

MEMBER = Path(__file__).parents[2] / "examples" / "planned_consumer.py"
MakeGroup = Callable[[int], Group]


@pytest.fixture
def group_of(broker: EmbeddedKafka, unique: str) -> Iterator[MakeGroup]:
    made: list[Group] = []

    def make(partitions: int) -> Group:
        made.append(Group(broker.bootstrap, f"{unique}-{len(made)}", partitions))
        return made[-1]

    yield make
    for group in made:
        group.close()


# --- E-24, E-26: the plan is what happens -----------------------------------------------------------------------------


def test_a_plan_is_enforced_as_given_and_a_new_one_by_a_forced_rebalance_of_the_same_members(
    group_of: MakeGroup,
) -> None:
    group = group_of(4)
    group.desk.publish(group.plan([0, 1, 2], [3]))
    group.join()
    group.join()
    assert group.owned(2) == [[0, 1, 2], [3]]
    before = group.settled(2).members.keys()
    # Asking each of the two asks a follower, too, whose rejoining does something only if it says something new.
    for member, wanted in zip(group.members, ([[0], [1, 2, 3]], [[0, 2], [1, 3]]), strict=True):
        generation = group.heard()
        group.desk.publish(group.plan(*wanted))
        assert group.desk.ask_to_rejoin([member.id], []) == member.id
        eventually(lambda seen=generation: group.desk.generation > seen, "the generation rises")  # type: ignore[misc]
        group.desk.forget_rejoin()
        assert group.owned(2) == wanted
        assert group.settled(2).members.keys() == before
    assert sum(m.consumer.fallbacks for m in group.members) == 0
    assert group.desk.pause_s is not None


def test_high_high_low_is_separated_by_a_policy_on_the_real_assignment(group_of: MakeGroup) -> None:
    # E-27. 40 + 40 exceed 0.9 x 60 on one member; 40 + 5 and 40 do not. Room for lag is ample.
    group = group_of(3)
    group.desk.publish(group.plan([0, 1], [2]))
    group.join()
    group.join()
    assert group.owned(2) == [[0, 1], [2]]
    generation = group.heard()
    policy = Algorithm2(capacity_records_per_s=60, slo_s=60, cooldown_s=0)
    settings = GroupSettings(group.name, slo_s=60, capacity_records_per_s=60, interval_s=0.2, warm_up_s=2)
    carrier = Carrier(group.desk, None, group.told.append)
    with traffic(group.bootstrap, group.name, [40, 40, 5]):
        turn_until(group.controller(settings, policy, carrier), group.told, "done: 2 members")
    assert group.owned(2) in ([[0], [1, 2]], [[0, 2], [1]])
    assert group.desk.generation > generation
    assert any("same size, new places" in text for text in group.told)


# --- E-25: whoever comes, goes, or does not answer ---------------------------------------------------------------


def test_members_may_come_and_go_one_by_one_with_any_plan(group_of: MakeGroup) -> None:
    group = group_of(5)
    group.desk.publish(group.plan([0, 1], [2, 3], [4]))
    sizes = {1: [5], 2: [2, 3], 3: [1, 2, 2], 4: [1, 1, 1, 2]}
    for count in (1, 2, 3, 4):
        group.join()
        assert sorted(map(len, group.owned(count))) == sizes[count]
    for count in (3, 2, 1):
        group.leave(group.members[0])
        assert sorted(map(len, group.owned(count))) == sizes[count]


def test_without_the_controller_the_group_goes_on_by_the_last_plan_and_says_so(
    group_of: MakeGroup, caplog: pytest.LogCaptureFixture
) -> None:
    group = group_of(4)
    group.desk.publish(group.plan([0, 1, 2], [3]))
    group.desk.measured({}, None, ())
    group.join()
    group.join()
    assert group.owned(2) == [[0, 1, 2], [3]]
    generation = group.heard()
    group.server.stop()
    with caplog.at_level(logging.WARNING, logger="headgate.groups"):
        group.members[0].consumer._coordinator.request_rejoin()
        eventually(lambda: group.members[0].generation > generation, "it rebalanced without the controller")
        assert group.owned(2) == [[0, 1, 2], [3]]
        late = group.join()
        assert sorted(map(len, group.owned(3))) == [1, 1, 2]
        group.leave(late)
        assert sorted(map(len, group.owned(2))) == [2, 2]
    assert sum(m.consumer.fallbacks for m in group.members) >= 3  # kafka-python may join once more for its metadata
    assert "assigned without the controller, by the last plan" in caplog.text
    assert "assigned without the controller, by the last rates known here" in caplog.text
    for by, least in (("last_plan", 1), ("local", 2)):
        counted = REGISTRY.get_sample_value("headgate_group_fallbacks_total", {"group": group.name, "by": by})
        assert (counted or 0) >= least


def test_a_group_that_never_saw_its_controller_is_spread_evenly(group_of: MakeGroup) -> None:
    group = group_of(4)
    group.join(controller=NOWHERE)
    group.join(controller=NOWHERE)
    assert sorted(map(len, group.owned(2))) == [2, 2]


@pytest.mark.parametrize(
    "body",
    [
        b"<html>not json</html>",
        b'{"plan": 1, "assignment": {"ghost": {"%s": [0, 1, 2]}}}',
        b'{"plan": 1, "assignment": {"ghost": {"%s": [99]}}, "loads": {"%s": {"0": ["NaN", "Infinity"]}}}',
    ],
)
def test_whatever_the_controller_answers_everything_is_owned_once(group_of: MakeGroup, body: bytes) -> None:
    group = group_of(3)
    said = body.replace(b"%s", group.name.encode())

    class Garbage(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Garbage)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        group.join(controller=f"http://127.0.0.1:{server.server_address[1]}")
        assert group.owned(1) == [[0, 1, 2]]
    finally:
        server.shutdown()
        server.server_close()


# --- E-23, E-29: size -------------------------------------------------------------------------------------------------


def test_a_policy_starts_a_member_when_one_is_too_few_and_stops_it_when_it_is_not(
    group_of: MakeGroup, tmp_path: Path
) -> None:
    # A member does 200 records/s, its capacity is set to 80. 50 + 50 exceed 72: two bins. Silence needs one.
    group = group_of(2)
    command = [sys.executable, str(MEMBER), group.bootstrap, group.name, group.name, group.server.address]
    fleet = ProcessFleet(lambda n: command, tmp_path, stop_deadline_s=10)
    policy = Algorithm2(capacity_records_per_s=80, slo_s=60, cooldown_s=0)
    settings = GroupSettings(group.name, slo_s=0.2, capacity_records_per_s=80, interval_s=0.2, warm_up_s=2)
    controller = group.controller(settings, policy, Carrier(group.desk, fleet, group.told.append))
    try:
        with traffic(group.bootstrap, group.name, [50, 50]):
            turn_until(controller, group.told, "done: 2 members")
            assert fleet.running() == {1, 2}
            assert group.owned(2) == [[0], [1]]
        turn_until(controller, group.told, "done: 1 members")
        assert group.owned(1) == [[0, 1]]
        assert len(fleet.running()) == 1
    finally:
        fleet.close(force=True)
    assert any("heartbeats every 0.5 s and the SLO is 0.2 s" in text for text in group.told)  # E-30
    pause_s = controller.status["pause_s"]
    assert 0.001 < pause_s < 10  # measured by the members, above the floor
    worked = group.desk.abilities({member: n for n, member in enumerate(group.desk.beats())}).values()
    capacities = [load.capacity_records_per_s for load in worked if load.capacity_records_per_s]
    assert capacities
    assert all(10 < capacity <= 200 for capacity in capacities)  # 5 ms a record at best, on whatever machine this is


def test_the_command_starts_a_member_and_leaves_it_running_when_it_is_stopped(
    group_of: MakeGroup, tmp_path: Path
) -> None:
    group = group_of(2)
    group.server.stop()  # the command brings its own, on a port that is free now
    address = group.server.address
    member = shlex.join([sys.executable, str(MEMBER), group.bootstrap, group.name, group.name, address])
    command = [sys.executable, "-m", "headgate", "group", "run", "--brokers", group.bootstrap, "--group", group.name]
    command += ["--command", member, "--listen", address.removeprefix("http://"), "--home", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert group.owned(1) == [[0, 1]]
        before = group.settled(1).members.keys()
        process.terminate()
        said, _ = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert "stopped; members keep running" in said
        assert group.settled(1).members.keys() == before
    finally:
        process.kill()
        ProcessFleet(lambda n: [], tmp_path).close(force=True)


# --- what stops it ----------------------------------------------------------------------------------------------------


def test_without_measurements_the_controller_holds(group_of: MakeGroup, broker: EmbeddedKafka) -> None:
    group = group_of(2)
    group.join()
    group.owned(1)
    settings = GroupSettings(group.name, slo_s=1, capacity_records_per_s=1, warm_up_s=0)
    carrier = Carrier(group.desk, None, group.told.append)
    controller = group.controller(settings, Algorithm2(capacity_records_per_s=1, slo_s=1), carrier)
    missing = TopicPartition("no-such-topic", 0)
    group.members[0].consumer.subscribe([group.name, missing.topic])
    eventually(lambda: any(missing.topic in j.topics for j in group.settled(1).members.values()), "it joined anew")
    decisions = turn_until(controller, group.told, "hold: no end offset")
    assert all(decision.keeps for decision in decisions)
    assert group.owned(1) == [[0, 1]]


def test_a_group_with_another_assignor_is_left_alone_with_words(group_of: MakeGroup) -> None:
    group = group_of(2)
    consumer = Consumer({"bootstrap.servers": group.bootstrap, "group.id": group.name})
    consumer.subscribe([group.name])
    try:
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "an ordinary member has joined")
        settings = GroupSettings(group.name, slo_s=1, capacity_records_per_s=1, warm_up_s=0)
        carrier = Carrier(group.desk, None, group.told.append)
        decision = group.controller(settings, Algorithm2(), carrier).turn()
        assert decision is not None
        assert "the group's assignor is 'range'" in decision.reason
        # A dry run needs no obedience: it looks at any group, sees its real assignment, and does nothing.
        watched = group.controller(settings, Algorithm2(), None).turn()
        assert watched is not None
        assert watched.reason == "1 replicas hold rate and lag"
    finally:
        consumer.close()


def test_a_running_group_changes_over_member_by_member(group_of: MakeGroup) -> None:
    group = group_of(2)
    group.join(partition_assignment_strategy=[RangePartitionAssignor])
    group.join(partition_assignment_strategy=[RangePartitionAssignor])
    group.owned(2)
    assert group.settled(2).strategy == "headgate"


def test_a_group_of_the_new_protocol_is_refused_with_words(group_of: MakeGroup) -> None:
    group = group_of(1)
    consumer = Consumer({"bootstrap.servers": group.bootstrap, "group.id": group.name, "group.protocol": "consumer"})
    consumer.subscribe([group.name])
    try:
        eventually(lambda: consumer.poll(0.1) or consumer.assignment(), "a member of the new protocol has joined")
        with pytest.raises(ConfigError, match="KIP-848"):
            group.meter().group()
    finally:
        consumer.close()


def test_the_server_refuses_what_it_does_not_understand_and_goes_on(group_of: MakeGroup) -> None:
    group = group_of(1)
    line = Line(group.server.address, timeout_s=2)
    for path, message in (("/v1/beat", Beat("another", "m", 1)), ("/v1/nonsense", Beat(group.name, "m", 1))):
        with pytest.raises(ControllerUnreachable):
            line.ask(path, message, BeatAnswer)
    assert line.ask("/v1/beat", Beat(group.name, "m", 1), BeatAnswer) == BeatAnswer(rejoin=False)
