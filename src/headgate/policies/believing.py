"""From what consumers measure of themselves to what they are believed to do (L-26), so that a consumer that became slow
counts as slow within a few of its cycles, and neither noise nor the fleet's own growth moves anything.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from headgate.model import Abilities, Alert, ConsumerLoad
from headgate.model.observation import FULL
from headgate.policies.crowding import FleetLevel, rate_text

CYCLES = 3
"""Full cycles of a life before they are believed; a change of speed takes as many to show (CYCLES_OF_A_STEP)."""
SLOW = 0.75
"""Below this share of the usual a consumer is slow: down to here the gap between the two capacities covers it (L-2)."""
CONFIRMED = 2
"""Further full cycles in which it must be slow: if all become slower, one of them shows it first."""
RECOVERED = 0.9
NOISE = 0.1
"""A belief changes only if what is measured is off by more than this share of it."""
SLOWEST = 0.05
"""No consumer counts less than this share of the usual: no measurement is trusted further."""
FORGET_S = 300.0
"""A consumer that was relieved has no full cycles that could show its recovery: it is tried again after this long."""
LONGEST_FORGET_S = 3600.0
"""What that grows to, doubling each time in vain."""


@dataclass(slots=True)
class _Evidence:
    """A consumer's newest full cycles."""

    bytes_per_s: float
    full_cycles: int
    at_s: float
    forget_s: float = FORGET_S
    is_forgotten: bool = False
    """It showed that the consumer is slow, and that was long ago."""

    def holds(self, now_s: float) -> bool:
        return now_s - self.at_s <= self.forget_s


class Believing:
    """Asked once per observation, in order of time."""

    def __init__(self, configured_bytes_per_s: float) -> None:
        self._configured = configured_bytes_per_s
        self._evidence: dict[int, _Evidence] = {}
        self._speed: dict[int, float] = {}
        """Of those that are slow."""
        self._suspected: dict[int, int] = {}
        """Of those that may be, their full cycles when that began."""
        self._level = FleetLevel(configured_bytes_per_s)
        self._is_fleet_slow = False
        self._outdated_s = FORGET_S
        """After so long without a full cycle a measurement is outdated; longer each time that proves to be in vain."""
        self.believed = Abilities()
        self.alerts: tuple[Alert, ...] = ()
        """What holds now, and at one look each recovery."""

    def look(self, now_s: float, consumers: Mapping[int, ConsumerLoad], working: Collection[int]) -> Abilities:
        """`working` are those that own partitions."""
        self._take(now_s, consumers)
        self._level.resize(now_s, len(working))
        fresh = {c: e.bytes_per_s for c in sorted(working) if (e := self._evidence.get(c)) and e.holds(now_s)}
        measured = self._usual(fresh, working) if fresh else None
        if self._level.is_settled(now_s):
            self._suspect(fresh, measured)
        recovered = [*self._forgotten(fresh), *self._compare(fresh, measured)]
        usual = self._level.look(now_s, measured)
        outdated = frozenset(c for c, e in self._evidence.items() if self._is_outdated(e, now_s))
        self.believed = Abilities(usual, dict(self._speed), self._level.crowding, outdated)
        self.alerts = (*self._slow_ones(fresh, measured), *self._whole_fleet(), *recovered)
        return self.believed

    def _take(self, now_s: float, consumers: Mapping[int, ConsumerLoad]) -> None:
        told = {c: load for c, load in consumers.items() if load.capacity_bytes_per_s and load.full_cycles >= CYCLES}
        self._evidence = {c: e for c, e in self._evidence.items() if c in told}  # another life begins anew
        for c, load in told.items():
            known = self._evidence.get(c)
            if known is None or known.full_cycles != load.full_cycles:
                if known is not None and not known.is_forgotten and self._is_outdated(known, now_s):
                    in_vain = (load.capacity_bytes_per_s or 0.0) < FULL * self._configured
                    self._outdated_s = min(2 * self._outdated_s, LONGEST_FORGET_S) if in_vain else FORGET_S
                forget_s = FORGET_S if known is None else known.forget_s
                self._evidence[c] = _Evidence(load.capacity_bytes_per_s or 0.0, load.full_cycles, now_s, forget_s)

    def _is_outdated(self, evidence: _Evidence, now_s: float) -> bool:
        return evidence.is_forgotten or now_s - evidence.at_s > self._outdated_s

    def _usual(self, fresh: Mapping[int, float], working: Collection[int]) -> float:
        """What the faster half does. Who has no full cycles keeps up with its load, and passes for usual."""
        passing = (self._level.believed_bytes_per_s or self._configured) / self._level.crowding
        return sorted(fresh.get(c, passing) for c in working)[len(working) // 2]

    def _forgotten(self, fresh: Mapping[int, float]) -> list[Alert]:
        found = []
        for c in [c for c in self._speed if c not in fresh]:
            del self._speed[c]
            if c in self._evidence:
                self._evidence[c].is_forgotten = True
                waited_s = self._evidence[c].forget_s
                self._evidence[c].forget_s = min(2 * waited_s, LONGEST_FORGET_S)
                text = f"consumer {c} had no full cycle for {waited_s:.0f} s: it counts in full again until it has some"
                found.append(Alert(f"recovered consumer {c}", text))
        return found

    def _suspect(self, fresh: Mapping[int, float], measured: float | None) -> None:
        """Who is slow, and for how long already."""
        slow = {c: v / measured for c, v in fresh.items() if measured and v < SLOW * measured and c not in self._speed}
        cycles = {c: self._evidence[c].full_cycles for c in slow}
        self._suspected = {c: self._suspected.get(c, cycles[c]) for c in slow}
        for c, share in slow.items():
            if cycles[c] >= self._suspected[c] + CONFIRMED:
                self._speed[c] = max(share, SLOWEST)
                del self._suspected[c]

    def _compare(self, fresh: Mapping[int, float], measured: float | None) -> list[Alert]:
        """Slow consumers against the usual one."""
        found = []
        for c, held in [(c, held) for c, held in self._speed.items() if c in fresh and measured]:
            bytes_per_s = fresh[c]
            share = bytes_per_s / (measured or 1.0)
            if share >= RECOVERED:
                del self._speed[c]
                self._evidence[c].forget_s = FORGET_S
                found.append(Alert(f"recovered consumer {c}", f"consumer {c} does {rate_text(bytes_per_s)} again"))
            elif abs(share - held) > NOISE * held:
                self._speed[c] = max(share, SLOWEST)
        return found

    def _slow_ones(self, fresh: Mapping[int, float], measured: float | None) -> list[Alert]:
        return [
            Alert(
                f"slow consumer {c}",
                f"consumer {c} does {rate_text(fresh[c])} where {rate_text(measured or 0.0)} is usual: it is given no "
                f"more than {speed:.0%} of a consumer's load; look at its machine and its disk",
            )
            for c, speed in sorted(self._speed.items())
        ]

    def _whole_fleet(self) -> list[Alert]:
        usual, said = self._level.believed_bytes_per_s, self._level.alert
        found = [] if said is None else [said]
        if usual is not None and usual < SLOW * self._configured:
            self._is_fleet_slow = True
            text = (
                f"consumers do {rate_text(usual)} each and {rate_text(self._configured)} is configured: plans go by "
                "what they do; look for what slows them all (the lake, the network, the records), or run "
                "headgate calibrate"
            )
            return [*found, Alert("slow fleet", text)]
        if self._is_fleet_slow and (usual is None or usual >= FULL * self._configured):
            self._is_fleet_slow = False
            found.append(Alert("recovered fleet", f"consumers count {rate_text(self._configured)} each again"))
        return found
