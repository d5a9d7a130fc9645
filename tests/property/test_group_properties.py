"""Whatever a controller answers and whoever is in the group: every partition has exactly one owner that wants it."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.groups.placement import Joining, fitted, settled
from headgate.model import Assignment, TopicPartition
from headgate.packing.least_loaded import Item, Room

partitions = st.builds(TopicPartition, st.sampled_from(["t", "u"]), st.integers(-1, 5))
names = st.sampled_from(["a", "b", "c", "d"])
topics = st.sets(st.sampled_from(["t", "u"])).map(frozenset)
groups = st.dictionaries(names, st.builds(Joining, topics), min_size=1)
loads = st.dictionaries(partitions, st.builds(Item, st.floats(0, 1e6), st.floats(0, 1e6)))


@given(st.dictionaries(names, st.lists(partitions)), groups, st.frozensets(partitions), loads)
def test_any_answer_becomes_an_assignment_without_gaps_or_doubles(
    proposal: dict[str, list[TopicPartition]],
    group: dict[str, Joining],
    there: frozenset[TopicPartition],
    known: dict[TopicPartition, Item],
) -> None:
    placement, faults = settled(proposal, group, there, known)
    placed = [p for held in placement.values() for p in held]
    wanted = frozenset().union(*(j.topics for j in group.values()))
    assert sorted(placed) == sorted(p for p in there if p.topic in wanted)
    assert all(p.topic in group[member].topics for member, held in placement.items() for p in held)
    again, none = settled(placement, group, there, known)
    assert (again, none) == (placement, ())
    for member, held in placement.items():
        kept = held & frozenset(proposal.get(member, ()))
        assert faults or kept == held  # without a fault nothing was changed


@given(
    st.lists(st.frozensets(st.integers(0, 9)), max_size=4),
    st.sets(st.integers(1, 9), min_size=1),
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=10, max_size=10),
    st.one_of(st.none(), st.builds(Room, st.floats(0.1, 1e6), st.floats(0.1, 1e6))),
)
def test_a_plan_is_fitted_to_exactly_the_members_there_are(
    bins: list[frozenset[int]], present: set[int], sizes: list[tuple[float, float]], room: Room | None
) -> None:
    every = [TopicPartition("t", n) for n in range(10)]
    taken: set[int] = set()
    owners = {}
    for n, held in enumerate(bins, start=1):
        owners[n] = frozenset(every[i] for i in held - taken)
        taken |= held
    current = Assignment({n: frozenset() for n in present})
    found = fitted(Assignment(owners), current, {p: Item(*s) for p, s in zip(every, sizes, strict=True)}, room)
    assert set(found) == present
    if len(owners) != len(present):
        assert found.partitions == frozenset(every)
