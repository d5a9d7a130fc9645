"""What a forwarder forwards, where it puts it, and what `headgate collect` refuses."""

import threading

import pytest
from typer.testing import CliRunner

from headgate.cli.main import app
from headgate.collectors.placement import Counts, KeepKeys, KeepPartitions
from headgate.collectors.topics import Route, Wanted
from headgate.collectors.watermark import Watermark
from headgate.errors import ConfigError, HeadgateError, KafkaUnavailable
from headgate.producers.murmur2 import partition_of_key
from tests.clusters_in_memory import PARTITIONS, InMemory, Pair

NOWHERE = "127.0.0.1:1"


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


def test_forwarders_to_different_clusters_are_no_group_unless_one_is_named(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = threading.Event()
    stopped.set()
    monkeypatch.setattr("headgate.cli.collect._stop_on_signals", lambda: stopped)
    monkeypatch.setattr("headgate.cli.collect.log_to", lambda *_, **__: None)
    caplog.set_level("INFO")
    for target in (pair.target, InMemory()):
        target.create("t")
        words = ["collect", "--from", pair.source.address, "--to", target.address, "--topic", "t"]
        for more, group in (([], f"headgate-collect-{target.cluster_id}"), (["--group", "mine"], "mine")):
            caplog.clear()
            ended = CliRunner().invoke(app, [*words, *more])
            assert ended.exit_code == 0, ended.output
            assert f"as a member of group {group};" in caplog.text


@pytest.mark.parametrize(("which", "cluster"), [("--from", "collector cluster"), ("--to", "main cluster")])
def test_a_cluster_that_does_not_answer_is_named(
    pair: Pair, which: str, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.collectors.topics.ANSWER_S", 0.3)
    addresses = {"--from": pair.source.address, "--to": pair.target.address, which: NOWHERE}
    error = refusal(*(word for pair in addresses.items() for word in pair), "--topic", "t")
    assert isinstance(error, KafkaUnavailable)
    assert cluster in str(error)
    assert NOWHERE in str(error)


def test_offsets_without_a_record_are_counted_if_it_is_known_where_reading_begins() -> None:
    known, unknown = Watermark(start=3), Watermark()
    assert [known.sent(offset) for offset in (5, 6, 10)] == [2, 0, 3]
    assert [unknown.sent(offset) for offset in (5, 6, 10)] == [0, 0, 3]
    started_anew = Watermark(start=100)
    assert [started_anew.sent(offset) for offset in (0, 1)] == [0, 0]


def test_offsets_are_sent_in_their_order() -> None:
    watermark = Watermark()
    watermark.sent(5)
    with pytest.raises(ValueError, match="offset 5 was sent after"):
        watermark.sent(5)
