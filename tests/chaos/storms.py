"""When a long run hurts and when it leaves the pipeline alone: storms of faults that overlap, with calm in between.

A plan is a value made of the seed alone, so that a seed repeats it.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

ROUND_S = 150.0
"""From the beginning of one storm to that of the next."""
STORM_S = 45.0
"""Faults begin within this time; the rest of the round is for recovery, and for calm."""
FIRST_S = 20.0
PER_STORM = 10
"""Some cannot happen when their time comes (nobody to be killed, a step not reached); 200 an hour must be left."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault as far as planning goes."""

    name: str
    ends_a_role: bool = False
    """It ends a process whose growth with age is to be seen: only in the first half of the run."""
    most: int | None = None
    """How often in one run."""


@dataclass(frozen=True, slots=True)
class Planned:
    at_s: float
    kind: str
    seed: int
    """For what the fault itself leaves to chance."""


def plan(kinds: Sequence[Kind], minutes: float, seed: int) -> list[Planned]:
    """Kinds are dealt like cards, so that each comes about as often as any other."""
    chance = random.Random(seed)
    lasts_s = 60 * minutes
    planned: list[Planned] = []
    dealt: dict[str, int] = {}
    deck: list[Kind] = []
    begin_s = FIRST_S
    while begin_s + STORM_S < lasts_s:
        spares = begin_s >= lasts_s / 2
        for at_s in sorted(begin_s + chance.uniform(0, STORM_S) for _ in range(PER_STORM)):
            kind = _deal(deck, kinds, spares, dealt, chance)
            dealt[kind.name] = dealt.get(kind.name, 0) + 1
            planned.append(Planned(at_s, kind.name, chance.randrange(1 << 30)))
        begin_s += ROUND_S
    return planned


def _deal(deck: list[Kind], kinds: Sequence[Kind], spares: bool, dealt: dict[str, int], chance: random.Random) -> Kind:
    def fits(kind: Kind) -> bool:
        return not (spares and kind.ends_a_role) and (kind.most is None or dealt.get(kind.name, 0) < kind.most)

    while True:
        while deck:
            kind = deck.pop()
            if fits(kind):
                return kind
        deck += chance.sample(kinds, len(kinds))
        if not any(fits(kind) for kind in deck):
            raise ValueError("no kind of fault is left to deal: allow one of them more often")
