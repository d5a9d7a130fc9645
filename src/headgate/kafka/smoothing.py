"""Smoothed rates of many counters at once: the box mean and the exponentially weighted one.

Counters come as arrays of two rows, bytes and records, with a column for each partition; NaN is one that was not
sampled this time. The same for one counter at a time is in `rates_reference`.
"""

from collections import deque
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Smoothing(Protocol):
    @property
    def per_s(self) -> Array:
        """Two rows; 0 until two samples were added."""

    @property
    def span_s(self) -> Array:
        """How much history each rate rests on."""

    def add(self, at_s: float, totals: Array) -> None:
        """A sample; counters that it does not have keep their rates."""

    def forget(self, some: NDArray[np.bool_]) -> None:
        """These counters begin again: what was sampled so far means nothing for them."""

    def arrange(self, places: NDArray[np.int64]) -> None:
        """From now on the counters are those that had these places, in this order; -1 is a new one."""


def arranged(values: Array, places: NDArray[np.int64], of_new: float) -> Array:
    """The last axis in a new order: the values of these places, `of_new` for -1."""
    if values.shape[-1] == 0:
        return np.full((*values.shape[:-1], len(places)), of_new)
    moved = values[..., places]
    moved[..., places < 0] = of_new
    return moved


class BoxMean:
    """Difference between the newest and the oldest sample kept, over the time between them (L-7).

    Samples older than the window are evicted before computing (A-8). Two always stay: after an outage longer than the
    window, the mean over the outage is still true, where a lone sample would read as "nothing was written".
    """

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._samples: deque[tuple[float, Array]] = deque()
        """Those within the window."""
        self._last_s, self._last = np.empty(0), np.empty((2, 0))
        """Of each counter the newest sample, however old."""
        self.per_s: Array = np.empty((2, 0))
        self.span_s: Array = np.empty(0)

    def add(self, at_s: float, totals: Array) -> None:
        here = ~np.isnan(totals[0])
        while self._samples and self._samples[0][0] < at_s - self._window_s:
            self._samples.popleft()
        oldest_s, oldest = self._oldest(here)
        span_s = np.nan_to_num(at_s - oldest_s)
        grown = np.divide(totals - oldest, span_s, out=np.zeros_like(totals), where=span_s > 0)
        self.per_s = np.where(here, grown, self.per_s)
        self.span_s = np.where(here, span_s, self.span_s)
        self._samples.append((at_s, totals))
        self._last_s, self._last = np.where(here, at_s, self._last_s), np.where(here, totals, self._last)

    def _oldest(self, wanted: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Of each counter the oldest sample within the window; its last one if there is none."""
        oldest_s, oldest = self._last_s, self._last
        missing = wanted
        for at_s, totals in self._samples:
            found = missing & ~np.isnan(totals[0])
            oldest_s, oldest = np.where(found, at_s, oldest_s), np.where(found, totals, oldest)
            missing = missing & ~found
            if not missing.any():
                break
        return oldest_s, oldest

    def forget(self, some: NDArray[np.bool_]) -> None:
        for values in (self._last_s, self._last, *(totals for _, totals in self._samples)):
            values[..., some] = np.nan
        self.per_s[:, some] = self.span_s[some] = 0.0

    def arrange(self, places: NDArray[np.int64]) -> None:
        self._samples = deque((at_s, arranged(totals, places, np.nan)) for at_s, totals in self._samples)
        self._last_s, self._last = (arranged(values, places, np.nan) for values in (self._last_s, self._last))
        self.per_s, self.span_s = (arranged(values, places, 0.0) for values in (self.per_s, self.span_s))


class Ewma:
    """Exponentially weighted mean of the rate between successive samples (L-11).

    Weights halve every `half_life_s` of age, whatever the spacing of the samples. Dividing by the weight gathered so
    far makes it right from the second sample on, where the usual form would climb slowly from zero.
    """

    def __init__(self, half_life_s: float) -> None:
        self._half_life_s = half_life_s
        self._first_s, self._last_s, self._last = np.empty(0), np.empty(0), np.empty((2, 0))
        self._weighted, self._weight = np.empty((2, 0)), np.empty(0)

    def add(self, at_s: float, totals: Array) -> None:
        here = ~np.isnan(totals[0])
        begins = here & np.isnan(self._first_s)
        elapsed_s = np.where(begins, 0.0, at_s - self._last_s)
        goes_on = here & (elapsed_s > 0)
        kept = 0.5 ** (elapsed_s / self._half_life_s)
        rate = np.divide(totals - self._last, elapsed_s, out=np.zeros_like(totals), where=goes_on)
        self._weighted = np.where(goes_on, kept * self._weighted + (1 - kept) * rate, self._weighted)
        self._weight = np.where(goes_on, kept * self._weight + (1 - kept), self._weight)
        self._first_s = np.where(begins, at_s, self._first_s)
        taken = begins | goes_on
        self._last_s, self._last = np.where(taken, at_s, self._last_s), np.where(taken, totals, self._last)

    @property
    def per_s(self) -> Array:
        return np.divide(self._weighted, self._weight, out=np.zeros_like(self._weighted), where=self._weight > 0)

    @property
    def span_s(self) -> Array:
        return np.nan_to_num(self._last_s - self._first_s)

    def forget(self, some: NDArray[np.bool_]) -> None:
        for values in (self._first_s, self._last_s, self._last):
            values[..., some] = np.nan
        self._weighted[:, some] = self._weight[some] = 0.0

    def arrange(self, places: NDArray[np.int64]) -> None:
        self._first_s, self._last_s, self._last = (
            arranged(values, places, np.nan) for values in (self._first_s, self._last_s, self._last)
        )
        self._weighted, self._weight = (arranged(values, places, 0.0) for values in (self._weighted, self._weight))
