"""Virtual time, in which hours of a pipeline pass in a moment and always in the same order."""

import heapq
import itertools
from collections.abc import Callable


class VirtualClock:
    """Time that passes only while someone waits; what was planned for a moment happens at that moment."""

    def __init__(self, start_s: float = 1000.0) -> None:
        self._now_s = start_s
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def now_s(self) -> float:
        return self._now_s

    def now_ms(self) -> int:
        return int(self._now_s * 1000)

    def after(self, seconds: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._planned, (self._now_s + seconds, next(self._order), act))

    def wait(self, seconds: float) -> None:
        until = self._now_s + seconds
        while self._planned and self._planned[0][0] <= until:
            self._now_s, _, act = heapq.heappop(self._planned)
            act()
        self._now_s = until
