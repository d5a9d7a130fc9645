"""Built-in traffic by name, scaled to what a pipeline's consumers can do."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches

import numpy as np

from headgate.errors import ConfigError
from headgate.model import TopicPartition
from headgate.simulation.arrivals import Floats, even, skewed
from headgate.simulation.recorded import Trace
from headgate.simulation.traces import correlated, regime_switch, spiky, trending, w1, w2_stand_in

PUBLISHED_CAPACITY = 200.0
"""Records per second of the consumers that the profiles were made for (E-1)."""

Profile = Callable[[int, int], tuple[Floats, Floats]]
"""(seed, partitions) → records per second for each second, shares of the partitions."""

PROFILES: Mapping[str, tuple[int, Profile]] = {
    "w1": (5, lambda seed, n: (w1(), even(n))),
    "w1-skewed": (9, lambda seed, n: (w1(), skewed(n))),
    "w2-stand-in": (5, lambda seed, n: (w2_stand_in(seed), even(n))),
    "spiky": (5, lambda seed, n: spiky(seed, partitions=n)),
    "trending": (5, lambda seed, n: trending(seed, partitions=n)),
    "regime-switch": (5, lambda seed, n: regime_switch(seed, partitions=n)),
    "correlated-bursts": (9, lambda seed, n: correlated(seed, partitions=n)),
}
"""With the number of partitions each was made for."""


def profile(
    name: str,
    capacity_bytes_per_s: float,
    scale: float = 1.0,
    record_bytes: float = 1000.0,
    partitions: int | None = None,
    seed: int = 0,
    topic: str = "profile",
) -> Trace:
    """The profile, with as many bytes for a consumer's worth of its load as one of the pipeline's does, times scale."""
    if name not in PROFILES:
        near = get_close_matches(name.lower(), PROFILES, n=1, cutoff=0.4)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ConfigError(f"unknown profile {name!r}: {hint}known are {', '.join(PROFILES)}")
    for what, value in (("scale", scale), ("record size", record_bytes), ("capacity", capacity_bytes_per_s)):
        if not (value > 0 and np.isfinite(value)):
            raise ConfigError(f"the {what} must be above 0 and finite, not {value:g}")
    usual, make = PROFILES[name]
    count = partitions or usual
    try:
        rates, shares = make(seed, count)
    except ValueError as error:
        raise ConfigError(f"profile {name!r} cannot have {count} partitions: {error}") from error
    sent = rates[:, None] * np.broadcast_to(shares, (len(rates), count))
    sent = sent * capacity_bytes_per_s / PUBLISHED_CAPACITY * scale
    names = tuple(TopicPartition(topic, n) for n in range(count))
    return Trace(names, np.arange(len(rates) + 1, dtype=np.float64), sent / record_bytes, sent)
