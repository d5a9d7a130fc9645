from headgate.consumer.positions import Positions
from headgate.model import Announcement, Range, TopicPartition
from headgate.model.messages import Landed, LedgerState, Position, Verdict
from tests.announcements import announce

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TABLE = "lake.t"


def state(sequence: int, verdicts: tuple[Verdict, ...] = (), committer: str = "c", **at: int) -> LedgerState:
    positions = tuple(Landed("t", int(name[1:]), offset) for name, offset in at.items())
    return LedgerState(TABLE, 0, committer, sequence, sequence, True, positions, verdicts, 0)


def verdict(announcement: Announcement, accepted: bool) -> Verdict:
    return Verdict(announcement.id, 1, "life", accepted, "" if accepted else "stale")


def fresh(**at: int) -> Positions:
    positions = Positions([TABLE])
    positions.on_ledger(state(1, (), "c", **at), "life")
    return positions


def test_reading_starts_at_the_ledger() -> None:
    assert fresh(p0=7, p1=2).reading(TABLE, [T0]) == {T0: 7}


def test_a_partition_the_committer_has_not_placed_yet_is_not_read() -> None:
    assert fresh(p0=7).reading(TABLE, [T0, T1]) == {T0: 7}


def test_the_next_cycle_goes_on_where_the_announced_one_ended() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    positions.announced(announce(("t", 0, 0, 10)), 0.0)
    assert positions.reading(TABLE, [T0]) == {T0: 10}
    assert positions.unsettled(TABLE) == 1


def test_a_verdict_settles_an_announcement() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    announced = announce(("t", 0, 0, 10))
    positions.announced(announced, 0.0)
    positions.on_ledger(state(2, (verdict(announced, True),), p0=10), "life")
    assert positions.unsettled(TABLE) == 0
    assert positions.reading(TABLE, [T0]) == {T0: 10}


def test_a_ledger_that_has_passed_an_announcement_settles_it_without_a_verdict() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    positions.announced(announce(("t", 0, 0, 10)), 0.0)
    positions.on_ledger(state(2, p0=10), "life")
    assert positions.unsettled(TABLE) == 0


def test_after_a_refusal_nothing_is_read_until_all_have_their_verdict_then_from_the_ledger() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    first, second = announce(("t", 0, 0, 10)), announce(("t", 0, 10, 20))
    positions.announced(first, 0.0)
    positions.announced(second, 0.0)
    positions.on_ledger(state(2, (verdict(first, False),), p0=4), "life")
    assert positions.reading(TABLE, [T0]) == {}
    positions.on_ledger(state(3, (verdict(second, False),), p0=6), "life")
    assert positions.reading(TABLE, [T0]) == {T0: 6}
    assert positions.refusals == ["stale", "stale"]


def test_a_late_word_from_a_slower_committer_does_not_move_the_ledger_back() -> None:
    positions = fresh(p0=0)
    positions.on_ledger(state(5, p0=50), "life")
    positions.on_ledger(state(4, committer="slower", p0=40), "life")
    assert positions.reading(TABLE, [T0]) == {T0: 50}


def test_a_table_that_was_rolled_back_is_read_again_from_where_it_is_now() -> None:
    positions = fresh(p0=0)
    positions.on_ledger(state(500, p0=9000), "life")
    positions.reading(TABLE, [T0])
    announced = announce(("t", 0, 9000, 9100))
    positions.announced(announced, 0.0)
    positions.on_ledger(state(1, (verdict(announced, False),), committer="another", p0=0), "life")
    assert positions.reading(TABLE, [T0]) == {T0: 0}


def test_verdicts_on_an_earlier_life_are_not_mine() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    announced = announce(("t", 0, 0, 10))
    positions.announced(announced, 0.0)
    positions.on_ledger(state(2, (verdict(announced, False),), p0=0), "another life")
    assert positions.unsettled(TABLE) == 1


def test_giving_up_on_a_silent_committer_starts_again_at_the_ledger() -> None:
    positions = fresh(p0=3)
    positions.reading(TABLE, [T0])
    positions.announced(announce(("t", 0, 3, 10)), 0.0)
    positions.give_up_waiting(TABLE)
    assert positions.reading(TABLE, [T0]) == {T0: 3}


def test_a_released_partition_is_read_from_the_ledger_when_it_comes_back() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    positions.announced(announce(("t", 0, 0, 10)), 0.0)
    assert positions.reached([T0]) == (Position(TABLE, "t", 0, 10),)
    positions.release([T0])
    positions.on_ledger(state(2, p0=10), "life")
    positions.on_ledger(state(3, p0=25), "life")  # its owner in between
    assert positions.reading(TABLE, [T0]) == {T0: 25}


def test_a_second_cycle_goes_on_behind_the_one_under_way() -> None:
    positions = fresh(p0=0, p1=5)
    positions.reading(TABLE, [T0, T1])
    positions.taken(TABLE, [Range(T0, 0, 10)])
    assert positions.reading(TABLE, [T0, T1]) == {T0: 10, T1: 5}


def test_cycles_are_announced_in_the_order_they_read() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    positions.taken(TABLE, [Range(T0, 0, 10)])
    positions.taken(TABLE, [Range(T0, 10, 20)])
    assert positions.fits(TABLE, [Range(T0, 0, 10)])
    assert not positions.fits(TABLE, [Range(T0, 10, 20)])
    positions.announced(announce(("t", 0, 0, 10)), 0.0)
    assert positions.fits(TABLE, [Range(T0, 10, 20)])
    assert positions.reading(TABLE, [T0]) == {T0: 20}


def test_a_cycle_that_came_to_nothing_is_read_again_and_the_one_behind_it_does_not_fit() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    positions.taken(TABLE, [Range(T0, 0, 10)])
    positions.taken(TABLE, [Range(T0, 10, 20)])
    positions.put_back(TABLE)
    assert positions.reading(TABLE, [T0]) == {T0: 0}
    assert not positions.fits(TABLE, [Range(T0, 10, 20)])


def test_after_a_cycle_that_was_cut_short_the_one_behind_it_does_not_fit() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    positions.taken(TABLE, [Range(T0, 0, 10)])
    positions.taken(TABLE, [Range(T0, 10, 20)])
    positions.announced(announce(("t", 0, 0, 7)), 0.0)
    assert not positions.fits(TABLE, [Range(T0, 10, 20)])


def test_after_a_refusal_what_is_under_way_does_not_fit() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    first = announce(("t", 0, 0, 10))
    positions.announced(first, 0.0)
    positions.taken(TABLE, [Range(T0, 10, 20)])
    positions.on_ledger(state(2, (verdict(first, False),), p0=5), "life")
    assert not positions.fits(TABLE, [Range(T0, 10, 20)])
    assert positions.reading(TABLE, [T0]) == {T0: 5}


def test_a_new_owner_goes_on_behind_announcements_that_the_ledger_does_not_have_yet() -> None:
    positions = fresh(p0=10, p1=10)
    positions.go_on([Position(TABLE, "t", 0, 25), Position(TABLE, "t", 1, 7), Position("lake.another", "t", 0, 99)])
    assert positions.reading(TABLE, [T0, T1]) == {T0: 25, T1: 10}


def test_if_those_announcements_come_to_nothing_it_starts_again_at_the_ledger() -> None:
    positions = fresh(p0=10)
    positions.go_on([Position(TABLE, "t", 0, 25)])
    positions.reading(TABLE, [T0])
    mine = announce(("t", 0, 25, 30))
    positions.announced(mine, 0.0)
    positions.on_ledger(state(2, (verdict(mine, accepted=False),), p0=10), "life")
    assert positions.reading(TABLE, [T0]) == {T0: 10}


def test_who_owns_a_partition_already_knows_better_where_to_go_on() -> None:
    positions = fresh(p0=10)
    positions.reading(TABLE, [T0])
    positions.announced(announce(("t", 0, 10, 40)), 0.0)
    positions.go_on([Position(TABLE, "t", 0, 25)])
    assert positions.reading(TABLE, [T0]) == {T0: 40}


def test_if_those_announcements_come_to_nothing_and_no_record_follows_it_starts_again_at_the_ledger_in_time() -> None:
    positions = fresh(p0=10, p1=10)
    positions.go_on([Position(TABLE, "t", 0, 25), Position(TABLE, "t", 1, 25)])
    positions.reading(TABLE, [T0, T1])
    assert positions.start_again(TABLE, 100.0, 60.0) == []
    positions.on_ledger(state(2, p0=10, p1=25), "life")  # the other partition's came through
    assert positions.start_again(TABLE, 160.0, 60.0) == []
    assert positions.start_again(TABLE, 161.0, 60.0) == [T0]
    assert positions.reading(TABLE, [T0, T1]) == {T0: 10, T1: 25}
    assert positions.start_again(TABLE, 999.0, 60.0) == []


def test_a_ledger_that_comes_nearer_is_given_more_time() -> None:
    positions = fresh(p0=10)
    positions.go_on([Position(TABLE, "t", 0, 25)])
    positions.start_again(TABLE, 100.0, 60.0)
    positions.on_ledger(state(2, p0=15), "life")
    assert positions.start_again(TABLE, 161.0, 60.0) == []
    assert positions.start_again(TABLE, 222.0, 60.0) == [T0]
    assert positions.reading(TABLE, [T0]) == {T0: 15}


def test_what_is_announced_and_has_no_verdict_is_waited_for() -> None:
    positions = fresh(p0=10, p1=10)
    positions.go_on([Position(TABLE, "t", 1, 20)])
    positions.reading(TABLE, [T0, T1])
    positions.start_again(TABLE, 0.0, 60.0)
    positions.announced(announce(("t", 0, 10, 20)), 0.0)
    assert positions.start_again(TABLE, 61.0, 60.0) == [T1]
    assert positions.reading(TABLE, [T0, T1]) == {T0: 20, T1: 10}


def test_a_table_that_was_rolled_back_is_read_again_though_no_record_follows() -> None:
    positions = fresh(p0=9000)
    positions.reading(TABLE, [T0])
    positions.on_ledger(state(1, p0=4000), "life")
    positions.start_again(TABLE, 0.0, 60.0)
    assert positions.start_again(TABLE, 61.0, 60.0) == [T0]
    assert positions.reading(TABLE, [T0]) == {T0: 4000}


def test_a_cycle_under_way_does_not_fit_once_its_partition_started_again() -> None:
    positions = fresh(p0=10)
    positions.go_on([Position(TABLE, "t", 0, 25)])
    positions.reading(TABLE, [T0])
    positions.start_again(TABLE, 0.0, 60.0)
    positions.taken(TABLE, [Range(T0, 25, 30)])
    positions.start_again(TABLE, 61.0, 60.0)
    assert positions.reading(TABLE, [T0]) == {T0: 10}
    assert not positions.fits(TABLE, [Range(T0, 25, 30)])


def test_nothing_is_handed_on_of_announcements_behind_a_refused_one() -> None:
    positions = fresh(p0=0)
    positions.reading(TABLE, [T0])
    first, second = announce(("t", 0, 0, 10)), announce(("t", 0, 10, 20))
    positions.announced(first, 0.0)
    positions.announced(second, 0.0)
    positions.on_ledger(state(2, (verdict(first, False),), p0=4), "life")
    assert positions.reached([T0]) == ()
