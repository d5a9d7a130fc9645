"""A long run must be able to fail: the judgement over made-up evidence whose answers are known by hand."""

from dataclasses import replace

import pytest

from tests.chaos.held import repeated
from tests.chaos.judgement import (
    Command,
    Committed,
    Evidence,
    Fault,
    LagSample,
    LakeSample,
    ProcessSample,
    covered_s,
    fault_windows,
    growth_of_bounded,
    latencies,
    memory_slopes,
    merged,
    recoveries,
)
from tests.chaos.promises import Promise, Tolerances, broken, judge, verdict

HOUR_S = 3600.0
ALLOWED = Tolerances(slo_s=10.0, slo_share=0.99, allowance_s=30.0, recovery_s=180.0)


def _quiet_lags(until_s: float, lag_records: int = 100) -> tuple[LagSample, ...]:
    return tuple(LagSample(float(t), lag_records, 300 * t, 2) for t in range(int(until_s)))


def _process(
    role: str, life: str, born_s: float, until_s: float, start_bytes: float, per_hour: float
) -> list[ProcessSample]:
    return [
        ProcessSample(t, role, life, t - born_s, int(start_bytes + (t - born_s) * per_hour / HOUR_S), 40, 20)
        for t in (born_s + 5 * n for n in range(int((until_s - born_s) / 5)))
    ]


def good_hour() -> Evidence:
    """An hour in which everything went well: 200 faults of 12 kinds, 25 s each, in windows that leave calm."""
    faults = tuple(Fault(f"kind {n % 12}", 17.5 * n + 16, 17.5 * n + 18) for n in range(200))
    lake = tuple(LakeSample(20.0 * n, "lake.a", 30, 50_000, 90, 12, 10**6) for n in range(180))
    return Evidence(
        lasted_s=HOUR_S,
        interrupted=False,
        violations=(),
        acknowledged=1000,
        rows=990,
        rejected=10,
        faults=faults,
        lags=_quiet_lags(HOUR_S + 60),
        processes=tuple(_process("controller", "1", 0, HOUR_S, 100e6, 0)),
        lake=lake,
        commits=(Committed(3700.0, 100, (1.0, 2.0, 3.0)),),
        upkeep=tuple(Command(3540.0 + 20 * n, 3550.0 + 20 * n, 0) for n in range(6)),
        most_disk_bytes=2 * 10**9,
        unused_files=0,
    )


def _kept(seen: Evidence) -> dict[str, bool | None]:
    return {promise.name: promise.kept for promise in judge(seen, ALLOWED)}


def _broken(seen: Evidence) -> str:
    """All of them, so that a test which breaks one knows that it is the only one."""
    return ", ".join(promise.name for promise in broken(judge(seen, ALLOWED)))


# Windows


def test_windows_that_touch_become_one_and_others_stay_apart() -> None:
    assert merged([(50, 60), (0, 10), (5, 20), (20, 21)]) == [(0, 21), (50, 60)]


def test_a_fault_window_ends_the_allowance_after_the_harm() -> None:
    faults = [Fault("a", 100, 104), Fault("b", 120, 125), Fault("c", 300, 300)]
    assert fault_windows(faults, 30) == [(100, 155), (300, 330)]
    assert covered_s([(100, 155), (300, 330)], 310) == 65  # the run ends within the second one


# Latency


def test_records_are_judged_apart_when_any_of_their_time_lay_in_a_window() -> None:
    commits = [
        Committed(99.0, 30, (1.0, 2.0, 3.0)),  # gone before it begins
        Committed(101.0, 20, (0.5, 4.0)),  # the younger half was written in the window, the older one before it
        Committed(200.0, 10, (12.0,)),  # written at 188, after it
    ]
    outside, inside = latencies(commits, [(100.0, 150.0)], slo_s=10.0)
    assert outside is not None
    assert inside is not None
    assert (outside.records, inside.records) == (40, 20)
    assert outside.within == 0.75  # 30 of 40
    assert outside.worst_s == 12.0
    assert inside.within == 1.0


def test_a_record_written_in_a_window_is_inside_however_late_it_lands() -> None:
    outside, inside = latencies([Committed(500.0, 1, (360.0,))], [(100.0, 150.0)], slo_s=10.0)
    assert outside is None
    assert inside is not None
    assert inside.within == 0.0


def test_quantiles_weigh_commits_by_their_records() -> None:
    commits = [Committed(10.0, 985, (1.0,)), Committed(20.0, 15, (9.0,))]
    outside, _ = latencies(commits, [], slo_s=10.0)
    assert outside is not None
    assert (outside.p50_s, outside.p99_s) == (1.0, 9.0)  # 1.5 % took 9 s


# Recovery


def _lags(values: dict[int, int], until_s: int, calm: int = 100) -> list[LagSample]:
    current, found = calm, []
    for t in range(until_s):
        current = values.get(t, current)
        found.append(LagSample(float(t), current, 300 * t, 2))
    return found


def test_recovery_lasts_until_lag_is_back_under_what_it_was_and_stays_there() -> None:
    lags = _lags({20: 5000, 40: 90, 42: 3000, 50: 100}, 100)  # low for two seconds in between
    [one] = recoveries([Fault("kill", 20, 20)], lags)
    assert one.took_s == 30  # back at 50


def test_faults_that_overlap_are_measured_against_the_lag_before_the_first() -> None:
    lags = _lags({20: 5000, 60: 100}, 100)
    assert [r.took_s for r in recoveries([Fault("a", 20, 40), Fault("b", 30, 35)], lags)] == [40, 30]


def test_a_storm_that_was_never_got_over_does_not_lower_the_bar_for_the_next() -> None:
    lags = _lags({20: 5000, 90: 100}, 120)
    assert [r.took_s for r in recoveries([Fault("a", 20, 25), Fault("b", 60, 65)], lags)] == [70, 30]


def test_a_lag_of_a_few_seconds_of_load_is_ordinary_whatever_it_was_before() -> None:
    lags = _lags({20: 5000, 40: 1400}, 100)  # 300 records are written in a second
    assert recoveries([Fault("kill", 20, 20)], lags)[0].took_s is None
    assert recoveries([Fault("kill", 20, 20)], lags, ordinary_s=5)[0].took_s == 20


def test_a_lag_that_never_comes_back_is_no_recovery() -> None:
    assert recoveries([Fault("kill", 20, 20)], _lags({21: 5000}, 100))[0].took_s is None


def test_a_fault_that_did_not_come_about_has_a_window_and_no_recovery() -> None:
    missed = Fault("handover", 20, 50, happened=False)
    assert recoveries([missed], _lags({}, 100)) == []
    assert fault_windows([missed], 30) == [(20, 80)]


# Growth


def test_a_leak_shows_as_growth_an_hour_of_the_same_process() -> None:
    seen = replace(good_hour(), processes=tuple(_process("controller", "1", 0, HOUR_S, 100e6, 50e6)))
    [slope] = memory_slopes(seen, warm_up_s=180)
    assert slope.per_hour == pytest.approx(50e6, rel=0.001)
    assert _broken(seen) == "memory of the controller is flat"  # 30 MB an hour are allowed to a role of 100 MB


def test_processes_that_are_replaced_by_larger_ones_did_not_grow() -> None:
    """A consumer of 300 MB is killed and its successor has 500 MB: each for itself is flat."""
    lives = [*_process("consumer", "1", 0, 2600, 300e6, 0), *_process("consumer", "2", 2600, 3600, 500e6, 0)]
    [slope] = memory_slopes(replace(good_hour(), processes=tuple(lives)), warm_up_s=180)
    assert slope.per_hour == 0
    assert (slope.lives, slope.most) == (2, 500e6)


def test_warming_up_is_no_leak() -> None:
    """200 MB within the first two minutes of a life that begins in the second half, and none afterwards."""
    young = [
        ProcessSample(t, "consumer", "1", t - 2000, int(300e6 + min(120, t - 2000) / 120 * 200e6), 40, 20)
        for t in range(2000, 3600, 5)
    ]
    [slope] = memory_slopes(replace(good_hour(), processes=tuple(young)), warm_up_s=180)
    assert slope.per_hour == 0


def test_lives_too_short_to_tell_are_not_called_flat() -> None:
    lives = [s for n in range(12) for s in _process("consumer", str(n), 300.0 * n, 300.0 * (n + 1), 300e6, 900e6)]
    seen = replace(good_hour(), processes=tuple(lives))
    assert _kept(replace(seen, lasted_s=HOUR_S - 60))["memory of the consumer is flat"] is None
    assert _kept(replace(seen, interrupted=True))["memory of the consumer is flat"] is None
    assert _kept(seen)["memory of the consumer is flat"] is False, "a whole hour has to tell"


def test_open_files_that_grow_break_their_promise() -> None:
    leaking = tuple(replace(s, open_files=40 + int(s.at_s / 60)) for s in good_hour().processes)  # 60 an hour
    assert _broken(replace(good_hour(), processes=leaking)) == "open files of the controller are flat"


def test_a_connection_left_open_every_minute_breaks_its_promise_and_one_every_five_minutes_may_be_a_broker() -> None:
    leaking = tuple(replace(s, connections=20 + int(s.at_s / 60)) for s in good_hour().processes)
    assert _broken(replace(good_hour(), processes=leaking)) == "connections of the controller are flat"
    reconnecting = tuple(replace(s, connections=20 + int(s.at_s / 300)) for s in good_hour().processes)
    assert _broken(replace(good_hour(), processes=reconnecting)) == ""


def test_connections_to_brokers_that_come_and_go_are_no_growth() -> None:
    """Down to half for two minutes of every five, and less often so towards the end."""
    away = [s.at_s % 300 < 120 and s.at_s < HOUR_S - 600 for s in good_hour().processes]
    seen = zip(good_hour().processes, away, strict=True)
    flapping = tuple(replace(s, role="neighbour's run", connections=20 if gone else 40) for s, gone in seen)
    assert _broken(replace(good_hour(), processes=flapping)) == ""


def test_connections_that_go_up_and_down_are_no_growth_and_a_leak_among_them_is() -> None:
    """As in an hour of storms: some more when leaders have moved, until the next one takes them."""
    calm = [0, 11, 3, 9, 0, 8, 2, 11, 0, 10]
    of = [(s, 45 + calm[int(s.at_s / 300) % 10]) for s in good_hour().processes]
    assert _broken(replace(good_hour(), processes=tuple(replace(s, connections=n) for s, n in of))) == ""
    leaking = tuple(replace(s, connections=n + int(s.at_s / 45)) for s, n in of)
    assert _broken(replace(good_hour(), processes=leaking)) == "connections of the controller are flat"


def test_processes_that_nobody_hurts_have_fewer_connections_to_gain() -> None:
    """One every 144 seconds, 25 an hour: brokers come and go, but who stays connects to the same ones again."""
    leaking = [replace(s, connections=20 + int(s.at_s / 144)) for s in good_hour().processes]
    unhurt = tuple(replace(s, role="neighbour's run") for s in leaking)
    assert _broken(replace(good_hour(), processes=unhurt)) == "connections of the neighbour's run are flat"
    assert _broken(replace(good_hour(), processes=tuple(leaking))) == ""


def test_consumers_that_all_died_young_are_left_to_the_neighbours_that_did_not() -> None:
    young = [s for n in range(12) for s in _process("consumer", str(n), 300.0 * n, 300.0 * (n + 1), 300e6, 0)]
    old = _process("neighbour's consumer", "99", 0, HOUR_S, 300e6, 0)
    seen = replace(good_hour(), processes=(*young, *old))
    assert _broken(seen) == ""
    assert _kept(seen)["memory of the neighbour's consumer is flat"] is True
    growing = tuple(replace(s, rss_bytes=int(s.rss_bytes + 50e3 * s.at_s)) for s in seen.processes)
    assert _broken(replace(seen, processes=growing)) == "memory of the neighbour's consumer is flat"


def test_a_process_that_nobody_hurt_and_was_replaced_all_the_same_breaks_its_promise() -> None:
    role = "neighbour's consumer, Python"
    old = [*_process(role, "7/7", 0, HOUR_S, 100e6, 0), *_process(f"{role} workers", "7/8", 0, HOUR_S, 100e6, 0)]
    child = _process(f"{role} workers", "7/9", 60, HOUR_S, 100e6, 0)  # Spark's own come and go
    assert _broken(replace(good_hour(), processes=(*old, *child))) == ""
    died = [sample for sample in old if sample.at_s < 600]
    another = [*_process(role, "21/21", 600, HOUR_S, 100e6, 0), *_process("consumer", "1/1", 0, 60, 100e6, 0)]
    hurt = _process("consumer", "2/2", 60, 120, 100e6, 0)
    seen = replace(good_hour(), processes=(*died, *another, *hurt, *good_hour().processes))
    assert "no process that nobody hurts is replaced" in _broken(seen)


def test_what_upkeep_keeps_bounded_is_compared_between_quarters() -> None:
    growing = [(float(t), 10.0 + t / 360) for t in range(0, 3600, 20)]  # 10 … 20; medians 13.7 and 18.7
    assert growth_of_bounded(growing, HOUR_S) == pytest.approx(18.75 / 13.75, rel=0.01)
    assert growth_of_bounded(growing, 600.0) is None  # ten minutes cannot tell


# Promises


def test_a_good_hour_keeps_every_promise() -> None:
    assert [name for name, kept in _kept(good_hour()).items() if kept is not True] == []


def test_one_record_lost_breaks_the_gravest_promise() -> None:
    assert _broken(replace(good_hour(), rows=989)) == "every record exactly once"


def test_a_violation_of_the_count_breaks_it_even_if_the_totals_agree() -> None:
    assert _broken(replace(good_hour(), violations=("steady[0]: 1 rows are doubled",))) == "every record exactly once"


def test_what_kafka_itself_holds_twice_the_lake_has_to_hold_twice() -> None:
    assert _kept(replace(good_hour(), rows=1169, repeated=179))["every record exactly once"]
    assert _broken(replace(good_hour(), rows=1168, repeated=179)) == "every record exactly once"


def test_only_a_lake_that_is_just_as_its_topic_excuses_repeated_records() -> None:
    in_kafka = {0: 0, 1: 1, 2: 2, 3: 1, 4: 2, 5: 3}  # 1 and 2 were taken twice; 2 cannot be decoded
    in_lake = {0: 0, 1: 1, 2: None, 3: 1, 4: None, 5: 3}
    assert repeated(in_kafka, in_lake, 4) == (2, 1)
    assert repeated(in_kafka, in_lake, 5) is None, "one that was acknowledged is not in Kafka"
    assert repeated(in_kafka, {**in_lake, 3: 3}, 4) is None, "another record than at this offset of the topic"
    assert repeated(in_kafka, {**in_lake, 6: 4}, 4) is None
    assert repeated(in_kafka, {at: id_ for at, id_ in in_lake.items() if at}, 4) is None


def test_a_run_in_which_nothing_was_written_proves_nothing() -> None:
    assert _broken(replace(good_hour(), acknowledged=0, rows=0, rejected=0)) == "every record exactly once"


def test_too_few_faults_or_too_few_kinds_are_not_enough_harm() -> None:
    good = good_hour()
    assert _broken(replace(good, faults=good.faults[:199])) == "enough harm"
    assert _broken(replace(good, faults=tuple(replace(f, kind="one") for f in good.faults))) == "enough harm"
    missed = (replace(good.faults[0], happened=False), *good.faults[1:])
    assert _broken(replace(good, faults=missed)) == "enough harm"


def test_an_interrupted_run_is_not_blamed_for_too_few_faults() -> None:
    good = good_hour()
    assert _kept(replace(good, interrupted=True, faults=good.faults[:5]))["enough harm"] is None


def test_lag_that_stays_breaks_the_promise_of_recovery() -> None:
    stuck = tuple(replace(lag, lag_records=10_000) if lag.at_s >= 2991.0 else lag for lag in good_hour().lags)
    assert _broken(replace(good_hour(), lags=stuck)) == "every fault got over within 180 s"


def test_late_records_outside_windows_break_the_slo_and_inside_they_do_not() -> None:
    late_in_calm = (Committed(3700.0, 98, (1.0,)), Committed(3700.0, 2, (11.0,)))
    assert _broken(replace(good_hour(), commits=late_in_calm)) == "99% of records within 10 s outside fault windows"
    late_in_storm = (Committed(3700.0, 98, (1.0,)), Committed(500.0, 50, (60.0,)))
    assert _broken(replace(good_hour(), commits=late_in_storm)) == ""


def test_snapshots_that_pile_up_break_their_promise() -> None:
    piling = tuple(replace(s, snapshots=30 + int(s.at_s / 30)) for s in good_hour().lake)
    assert _broken(replace(good_hour(), lake=piling)) == "snapshots of lake.a stay bounded"


def test_a_table_that_fills_up_slowly_keeps_its_promises_and_one_whose_snapshots_swell_does_not() -> None:
    filling = [
        replace(s, snapshots=1 + int(s.at_s / 100), metadata_bytes=100 + 10 * int(s.at_s)) for s in good_hour().lake
    ]
    assert _broken(replace(good_hour(), lake=tuple(filling))) == ""
    swelling = tuple(replace(s, metadata_bytes=s.metadata_bytes + 30 * int(s.at_s)) for s in good_hour().lake)
    assert _broken(replace(good_hour(), lake=swelling)) == "metadata of lake.a stays bounded"


def test_a_file_that_no_table_uses_after_the_last_upkeep_breaks_a_promise() -> None:
    nothing_left = "a last round of upkeep leaves no file that no table uses"
    assert _kept(good_hour())[nothing_left] is True
    assert _broken(replace(good_hour(), unused_files=1)) == nothing_left
    assert _kept(replace(good_hour(), unused_files=None, lasted_s=600.0))[nothing_left] is None


def test_a_run_that_takes_too_much_disk_has_broken_a_promise_however_early_it_ended() -> None:
    full = replace(good_hour(), most_disk_bytes=10 * 10**9 + 1)
    assert _broken(full) == "disk stays under 10 GB"
    assert _broken(replace(full, lasted_s=600.0)) == "disk stays under 10 GB"
    assert _kept(replace(good_hour(), most_disk_bytes=None, lasted_s=600.0))["disk stays under 10 GB"] is None


UPKEEP = "headgate maintain --apply works outside fault windows"


def test_upkeep_may_fail_in_a_window_but_not_in_calm() -> None:
    good = good_hour().upkeep
    assert _broken(replace(good_hour(), upkeep=(*good, Command(3660.0, 3670.0, 1)))) == UPKEEP
    assert _broken(replace(good_hour(), upkeep=(*good, Command(100.0, 110.0, 1)))) == ""


def test_upkeep_that_never_ran_in_calm_has_shown_nothing() -> None:
    stormy = replace(good_hour(), upkeep=tuple(Command(100.0 * n, 100.0 * n + 10, 0) for n in range(1, 30)))
    assert _kept(replace(stormy, interrupted=True))[UPKEEP] is None
    assert _broken(stormy) == UPKEEP, "a whole hour has to tell"


def test_a_whole_hour_needs_six_rounds_of_upkeep_in_calm_and_ten_minutes_need_one() -> None:
    five = replace(good_hour(), upkeep=good_hour().upkeep[:5])
    assert _broken(five) == UPKEEP
    one = replace(good_hour(), upkeep=good_hour().upkeep[:1], interrupted=True)
    assert _kept(one)[UPKEEP] is None
    assert _kept(replace(one, lasted_s=600.0))[UPKEEP] is True


def test_upkeep_that_hangs_at_the_end_breaks_its_promise_even_if_it_began_in_a_window() -> None:
    hung = Command(3500.0, 3800.0, -9, hung=True)
    assert _kept(replace(good_hour(), upkeep=(*good_hour().upkeep, hung)))[UPKEEP] is False


def test_the_verdict_names_every_broken_promise_the_gravest_first() -> None:
    a, b, c, d = Promise("a", False, "x"), Promise("b", None, ""), Promise("c", True, ""), Promise("d", False, "y")
    assert verdict([a, b, c, d]) == "**2 of 4 promises were broken**: a (x); d (y)."


def test_what_was_not_shown_is_not_called_kept() -> None:
    kept, open_ = Promise("a", True, ""), Promise("b", None, "")
    assert verdict([kept, kept]) == "**Every promise was kept.**"
    assert verdict([kept, open_]).startswith("**No promise was broken**; 1 of 2 were shown")
