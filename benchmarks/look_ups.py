"""Ways from a topic to its next partition that B-38 names, against the dictionary that producers use.

Part of `python -m benchmarks producers`. A perfect hash is made beforehand, by hash and displace: small buckets of
topics are shifted until each has a place of its own. A handle is what a caller keeps for a topic: no look-up at all.
"""

from collections.abc import Callable, Sequence
from itertools import count, cycle
from time import perf_counter

from benchmarks.ratio import Ratio, of_rounds
from headgate.producers.protocol import Choice

TOPICS = 1_000
ROUNDS, REPEATED = 15, 20


def run() -> list[Ratio]:
    choices: dict[str, Choice] = {f"topic-{n}": cycle((0, 1, 2)).__next__ for n in range(TOPICS)}
    topics, handles = list(choices), list(choices.values())
    shifts, places = perfect(topics)
    table = [choices[topic] if topic is not None else None for topic in places]
    buckets, size = len(shifts), len(table)

    def by_dictionary() -> None:
        for topic in topics:
            choices[topic]()

    def by_perfect_hash() -> None:
        for topic in topics:
            hashed = hash(topic)
            table[(hashed + shifts[hashed % buckets] * (hashed >> 20)) % size]()  # type: ignore[misc]

    def by_handle() -> None:
        for choice in handles:
            choice()

    ways = {"a perfect hash": by_perfect_hash, "a handle that the caller keeps": by_handle}
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 1):
        for name, way in ways.items():
            rounds[name].append((_each_s(way), _each_s(by_dictionary)))
    warm = {name: of[1:] for name, of in rounds.items()}
    return [of_rounds(f"a topic's next partition by {name}", "by a dictionary", warm[name]) for name in ways]


def perfect(topics: Sequence[str]) -> tuple[list[int], list[str | None]]:
    """For each bucket its shift, and which topic each place holds."""
    buckets: list[list[str]] = [[] for _ in range(len(topics) // 4)]
    for topic in topics:
        buckets[hash(topic) % len(buckets)].append(topic)
    places: list[str | None] = [None] * (2 * len(topics) + 1)
    shifts = [0] * len(buckets)
    for number in sorted(range(len(buckets)), key=lambda n: -len(buckets[n])):
        for shift in count():
            wanted = [(hash(topic) + shift * (hash(topic) >> 20)) % len(places) for topic in buckets[number]]
            if len(set(wanted)) == len(wanted) and all(places[place] is None for place in wanted):
                break
        shifts[number] = shift
        for topic, place in zip(buckets[number], wanted, strict=True):
            places[place] = topic
    return shifts, places


def _each_s(way: Callable[[], None]) -> float:
    began = perf_counter()
    for _ in range(REPEATED):
        way()
    return (perf_counter() - began) / (REPEATED * TOPICS)
