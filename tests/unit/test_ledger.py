import pytest

from headgate.errors import LakeError
from headgate.lake.ledger import VERSION, decode_ledger, encode_ledger
from headgate.model import Ledger, Skip, TopicPartition, Totals
from headgate.model.announcement import condensed
from tests.announcements import announce

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def ledger(**at: int) -> Ledger:
    origins = {TopicPartition("t", int(name[1:])): offset for name, offset in at.items()}
    return Ledger().with_partitions(origins)


def test_a_range_that_starts_at_the_ledger_moves_it_to_its_end() -> None:
    moved = ledger(p0=5).advance(announce(("t", 0, 5, 9)))
    assert moved.next[T0] == 9
    assert moved.origin[T0] == 5
    assert moved.offsets == 4


def test_a_range_behind_the_ledger_is_refused_with_what_the_lake_holds() -> None:
    rejection = ledger(p0=5).check(announce(("t", 0, 3, 9)))
    assert rejection is not None
    assert rejection.reason == "t-0 starts at 3, the lake holds everything before 5"


def test_a_range_ahead_of_the_ledger_is_refused_with_what_is_missing() -> None:
    rejection = ledger(p0=5).check(announce(("t", 0, 8, 9)))
    assert rejection is not None
    assert rejection.reason == "t-0 starts at 8, the lake still misses 5 to 7"


def test_an_announcement_is_refused_whole_when_one_of_its_ranges_does_not_follow() -> None:
    before = ledger(p0=5, p1=0)
    mixed = announce(("t", 0, 5, 9), ("t", 1, 1, 2))
    assert before.check(mixed) is not None
    with pytest.raises(ValueError, match="t-1 starts at 1"):
        before.advance(mixed)


def test_a_partition_named_twice_is_refused_even_if_the_second_continues_the_first() -> None:
    assert ledger(p0=0).check(announce(("t", 0, 0, 4), ("t", 0, 4, 8))) is not None


def test_a_partition_the_ledger_does_not_know_is_refused() -> None:
    rejection = ledger(p0=0).check(announce(("t", 7, 0, 4)))
    assert rejection is not None
    assert rejection.reason == "t-7 is not part of this table's ledger"


def test_new_partitions_are_added_and_known_ones_never_change() -> None:
    moved = ledger(p0=0).advance(announce(("t", 0, 0, 4)))
    grown = moved.with_partitions({T0: 99, T1: 7})
    assert (grown.next[T0], grown.next[T1], grown.origin[T1]) == (4, 7, 7)


def test_nothing_new_keeps_the_very_same_ledger() -> None:
    known = ledger(p0=3)
    assert known.with_partitions({T0: 8}) is known


def test_the_stored_form_reads_back_equal() -> None:
    moved = ledger(p0=3, p1=10).advance(announce(("t", 0, 3, 50), rejected=2))
    assert decode_ledger(encode_ledger(moved)) == moved


def test_a_topic_with_another_id_is_not_the_one_the_ledger_counted() -> None:
    known = ledger(p0=5).with_topic_ids({"t": "first", "elsewhere": "x"})
    assert known.topic_ids == {"t": "first"}
    assert known.with_topic_ids({"t": "second"}) is known
    assert known.made_anew({"t": "second"}) == {"t"}
    assert known.made_anew({"t": "first"}) == frozenset()
    assert known.made_anew({}) == frozenset()  # nobody could be asked
    assert decode_ledger(encode_ledger(known)) == known


def test_a_ledger_from_before_topics_had_ids_is_read() -> None:
    old = '{"version":1,"sequence":3,"totals":[5,0,0,0],"topics":{"t":[[0,9,4]]}}'
    assert decode_ledger(old) == Ledger({T0: 9}, {T0: 4}, Totals(rows=5), 3)


def test_skips_are_joined_where_they_touch_and_counted_where_they_are_too_many() -> None:
    def gap(partition: TopicPartition, start: int, end: int) -> Skip:
        return Skip(partition, start, end, end - start, "gap")

    skips = [gap(T0, 5, 6), gap(T0, 2, 5), gap(T0, 9, 10), gap(T1, 6, 7)]
    assert condensed(skips, most=2) == [gap(T0, 2, 6), gap(T0, 9, 10), gap(T1, 6, 7)]
    assert condensed(skips, most=1) == [Skip(T0, 2, 10, 5, "gap"), gap(T1, 6, 7)]
    counted = Skip(T0, 0, 5, 2, "gap")  # which two of the five is not known
    assert condensed([counted, gap(T0, 5, 6)], most=9) == [counted, gap(T0, 5, 6)]


def test_a_ledger_of_a_newer_version_is_refused_with_what_to_do() -> None:
    newer = encode_ledger(ledger(p0=5)).replace(f'"version":{VERSION}', f'"version":{VERSION + 1}')
    with pytest.raises(LakeError, match=f"ledger has version {VERSION + 1}.*upgrade it"):
        decode_ledger(newer)


def test_what_a_ledger_has_reached_adds_up_by_topic() -> None:
    other = TopicPartition("u", 0)
    assert Ledger().with_partitions({T0: 5, T1: 7, other: 1}).reached() == {"t": 12, "u": 1}
