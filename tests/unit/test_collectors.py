"""What a forwarder forwards, where it puts it, and what `headgate collect` refuses."""

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.collectors.clients import address
from headgate.collectors.metrics import RECORDS, DelayHistogram
from headgate.collectors.placement import Counts, KeepKeys, KeepPartitions
from headgate.collectors.progress import Account
from headgate.collectors.topics import Route, Wanted
from headgate.collectors.watermark import Watermark
from headgate.errors import ConfigError, HeadgateError, KafkaUnavailable
from headgate.producers.murmur2 import partition_of_key
from tests.clusters_in_memory import PARTITIONS, InMemory, Pair

NOWHERE = "127.0.0.1:1"
BOUNDS = ("0.005", "0.01", "300.0", "+Inf")


@pytest.fixture
def pair() -> Pair:
    return Pair.with_topics("t")


def test_where_partition_counts_differ_a_key_goes_where_java_puts_it() -> None:
    placement = KeepKeys()
    placement.follow({"t": Counts(4, 7), "u": Counts(4, 4)})
    keys = [b"21", b"foobar", b"abc"]
    assert [placement.partition("t", 3, key) for key in keys] == [partition_of_key(key, 7) for key in keys]
    assert [placement.partition("u", 3, key) for key in keys] == [3, 3, 3]


def test_a_key_of_a_partition_that_the_main_cluster_does_not_have_goes_where_java_puts_it() -> None:
    """A fifth partition was added at the collector, and the last look was before that."""
    placement = KeepKeys()
    placement.follow({"t": Counts(4, 4)})
    assert placement.partition("t", 4, b"foobar") == partition_of_key(b"foobar", 4)


def test_keeping_partitions_asks_for_equal_counts(pair: Pair) -> None:
    assert KeepPartitions().refusal("t", Counts(4, 4)) is None
    forwarder = pair.forwarder(lambda _: None, "t", placement=KeepPartitions())
    with pytest.raises(ConfigError, match="4 partitions at the collector and 6"):
        forwarder._follow({"t": Counts(4, 6)})


def test_a_topic_that_cannot_keep_its_partitions_is_left_out_if_it_only_matches_a_pattern(
    pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    forwarder = pair.forwarder(lambda _: None, wanted=Wanted(pattern="t|u"), placement=KeepPartitions())
    forwarder._follow({"t": Counts(4, 4), "u": Counts(4, 6)})
    assert forwarder._topics == {"t": Counts(4, 4)}
    assert "not forwarded: topic u has 4 partitions at the collector and 6" in caplog.text
    forwarder._follow({"t": Counts(4, 4), "u": Counts(6, 6)})
    assert forwarder._topics == {"t": Counts(4, 4), "u": Counts(6, 6)}
    with pytest.raises(ConfigError, match="topic t has 4"):
        forwarder._follow({"t": Counts(4, 5)})


def test_a_topic_that_appears_later_is_forwarded_once_the_main_cluster_has_it(pair: Pair) -> None:
    reading, writing = ({"bootstrap.servers": cluster.address} for cluster in (pair.source, pair.target))
    route = Route(reading, writing, Wanted(pattern="t|lat.*"), create=False)
    known = route.open()
    assert known == {"t": Counts(PARTITIONS, PARTITIONS)}
    pair.source.create("later")
    assert route.look(known) == known
    pair.target.create("later")
    assert route.look(known) == {**known, "later": Counts(PARTITIONS, PARTITIONS)}


def test_patterns_match_whole_names_and_leave_kafkas_own_topics_out() -> None:
    topics = {"web-a": 1, "web-b": 2, "aweb-c": 1, "__consumer_offsets": 50}
    assert Wanted(pattern="web-.*").among(topics) == ("web-a", "web-b")
    assert Wanted(pattern=".*").among(topics) == ("aweb-c", "web-a", "web-b")
    assert Wanted(("web-b", "web-a", "web-b")).among(topics) == ("web-a", "web-b")


def refusal(*words: str) -> HeadgateError:
    ended = CliRunner().invoke(app, ["collect", *words])
    assert isinstance(ended.exception, HeadgateError), (ended.exception, ended.output)
    return ended.exception


def test_what_can_never_work_is_refused_and_says_what_to_do(pair: Pair) -> None:
    a, b = pair.source.address, pair.target.address
    pair.source.create("only here")
    both = ["--from", a, "--to", b]
    assert "one cluster" in str(refusal("--from", a, "--to", a.split(",")[0], "--topic", "t"))
    assert "collector cluster has no topic x" in str(refusal(*both, "--topic", "x"))
    assert "--create" in str(refusal(*both, "--topic", "only here"))
    assert "matches" in str(refusal(*both, "--pattern", "x"))
    assert "regular expression" in str(refusal(*both, "--pattern", "("))
    assert "which topics" in str(refusal(*both))
    assert "which topics" in str(refusal(*both, "--topic", "t", "--pattern", "t"))
    assert "did you mean" in str(refusal(*both, "--topic", "t", "--partitioner", "nod"))
    assert "contradict" in str(refusal(*both, "--topic", "t", "--partitioner", "same", "--spread-keys"))
    assert "--group" in str(refusal(*both, "--topic", "t", "--from-client", "group.id=x"))
    assert "--to-client cannot be used" in str(refusal(*both, "--topic", "t", "--to-client", "no.such=1"))
    assert "--from-client cannot be used" in str(refusal(*both, "--topic", "t", "--from-client", "isolation.level=x"))
    assert "two clusters" in str(refusal(*both, "--topic", "t", "--to-client", "transactional.id=x"))
    careless = ["--to-client", "enable.idempotence=false", "--to-client", "acks=0"]
    assert "acks=0" in str(refusal(*both, "--topic", "t", *careless))


@pytest.mark.parametrize("option", ["--from-client", "--to-client"])
def test_a_setting_without_a_value_is_an_error_of_its_own_option(option: str) -> None:
    ended = CliRunner().invoke(app, ["collect", "--from", "a", "--to", "b", "--topic", "t", option, "foo"])
    assert ended.exit_code == 2
    assert f"{option} 'foo' must" in " ".join(ended.output.replace("│", "").split())


def test_forwarders_to_different_clusters_are_no_group(pair: Pair) -> None:
    reading = address(pair.source.address, {}, "--from-client")
    for target in (pair.target, InMemory()):
        writing = address(target.address, {}, "--to-client")
        assert Route(reading, writing, Wanted(("t",)), create=False).group() == f"headgate-collect-{target.cluster_id}"


@pytest.mark.parametrize(("which", "cluster"), [("--from", "collector cluster"), ("--to", "main cluster")])
def test_a_cluster_that_does_not_answer_is_named(pair: Pair, which: str, cluster: str) -> None:
    addresses = {"--from": pair.source.address, "--to": pair.target.address, which: NOWHERE}
    reading, writing = (address(brokers, {}, "--from-client") for brokers in addresses.values())
    with pytest.raises(KafkaUnavailable, match=rf"{cluster} \({which} {NOWHERE}\) did not answer within 0.3 s"):
        Route(reading, writing, Wanted(("t",)), create=False, answer_s=0.3).open()


def test_offsets_without_a_record_are_counted_if_it_is_known_where_reading_begins() -> None:
    known, unknown = Watermark(start=3), Watermark()
    assert [known.sent(offset) for offset in (5, 6, 10)] == [2, 0, 3]
    assert [unknown.sent(offset) for offset in (5, 6, 10)] == [0, 0, 3]
    started_anew = Watermark(start=100)
    assert [started_anew.sent(offset) for offset in (0, 1)] == [0, 0]


def test_delays_are_shown_as_a_histogram_that_took_many_at_once() -> None:
    """A clock that is behind makes a delay negative, which counts as none; 0.005 s is within the first bucket."""
    registry, delays = CollectorRegistry(), DelayHistogram()
    registry.register(delays)
    delays.observe_all([-1.0, 0.005, 0.006])
    delays.observe_all([400.0])
    shown = {
        bound: registry.get_sample_value("headgate_collect_delay_seconds_bucket", {"le": bound}) for bound in BOUNDS
    }
    assert shown == {"0.005": 2, "0.01": 3, "300.0": 3, "+Inf": 4}
    assert registry.get_sample_value("headgate_collect_delay_seconds_count") == 4
    assert registry.get_sample_value("headgate_collect_delay_seconds_sum") == pytest.approx(400.011)


def test_what_was_acknowledged_is_counted_for_every_topic() -> None:
    before = [RECORDS.labels(topic)._value.get() for topic in ("counted", "other")]
    account = Account(0.0)
    for topic, delay_s in (("counted", 0.1), ("counted", None), ("other", 0.3)):
        account.add(topic, delay_s)
    done = account.in_all(2.0, in_flight=0)
    assert (done.records, done.records_per_s, done.delay_max_s) == (3, 1.5, 0.3)
    after = [RECORDS.labels(topic)._value.get() for topic in ("counted", "other")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [2, 1]


def test_offsets_are_sent_in_their_order() -> None:
    watermark = Watermark()
    watermark.sent(5)
    with pytest.raises(ValueError, match="offset 5 was sent after"):
        watermark.sent(5)
