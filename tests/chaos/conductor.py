"""Begins the faults of a plan when their time comes, lets them overlap, and remembers what happened when."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from tests.chaos.faults import FAULTS, FaultKind
from tests.chaos.judgement import Fault
from tests.chaos.soak_run import NotNow, Pauses, SoakRun
from tests.chaos.storms import Planned

_TOO_LATE_S = 20.0
"""A fault that waited this long for its room is left out: the calm after the storm is not to be disturbed."""


@dataclass
class _Active:
    of: FaultKind
    planned: Planned
    began_s: float
    pauses: Pauses
    resume_s: float = inf
    """Until it has paused for the first time, infinite."""


class Conductor:
    """One thread, one turn after another: a fault is a generator, and each of its values is a pause."""

    def __init__(self, run: SoakRun, plan: Sequence[Planned]) -> None:
        self._run = run
        self._kinds = {fault.kind.name: fault for fault in FAULTS}
        self._left = list(plan)
        self._active: list[_Active] = []
        self.faults: list[Fault] = []
        self.not_now: Counter[str] = Counter()

    @property
    def is_over(self) -> bool:
        return not self._left and not self._active

    def cut_short(self) -> None:
        """No more faults; those under way come to their end."""
        self._left.clear()

    def close(self) -> None:
        """Whatever did not come to its end by itself is undone now."""
        for active in self._active:
            self._run.say(f"cut short: {active.of.kind.name}")
            active.pauses.close()
            self.faults.append(Fault(active.of.kind.name, active.began_s, self._run.now_s()))
        self._active.clear()

    def turn(self) -> None:
        now_s = self._run.now_s()
        for active in [active for active in self._active if active.resume_s <= now_s]:
            self._resume(active)
        busy = {active.of.room for active in self._active}
        for planned in [planned for planned in self._left if planned.at_s <= now_s]:
            of = self._kinds[planned.kind]
            if of.room in busy:
                if now_s > planned.at_s + _TOO_LATE_S:
                    self._left.remove(planned)
                    self._leave_out(of, "another one of its kind took too long")
                continue
            self._left.remove(planned)
            active = _Active(of, planned, now_s, of.harm(self._run, random.Random(planned.seed)))
            self._active.append(active)
            busy.add(of.room)
            self._resume(active)

    def _resume(self, active: _Active) -> None:
        name = active.of.kind.name
        try:
            active.resume_s = self._run.now_s() + next(active.pauses)
            return
        except StopIteration:
            now_s = self._run.now_s()
            self.faults.append(Fault(name, active.began_s, now_s))
            lasted_s = now_s - active.began_s
            self._run.say(f"{name}" + (f", for {lasted_s:.0f} s" if lasted_s >= 1 else ""))
        except NotNow as reason:
            if active.resume_s == inf and self._run.now_s() <= active.planned.at_s + _TOO_LATE_S:
                self._left.append(active.planned)  # somebody to suffer it may still come
            else:
                self._leave_out(active.of, str(reason), active.began_s)
        except Exception as error:  # noqa: BLE001  harm done at the same time may be in its way, in any manner
            self._leave_out(active.of, repr(error), active.began_s)
        self._active.remove(active)

    def _leave_out(self, of: FaultKind, reason: str, began_s: float | None = None) -> None:
        self.not_now[of.kind.name] += 1
        self._run.say(f"not now: {of.kind.name}: {reason}")
        if began_s is not None:  # what it did on the way, such as more load, may have been felt
            self.faults.append(Fault(of.kind.name, began_s, self._run.now_s(), happened=False))
