"""Groups that feed each other (E-47): what a group has done, when it has done it, is what arrives at the next one.

A parent's backlog therefore reaches its children late and bunched, as it would. Groups are simulated one after the
other, parents first, which is exact as long as nobody pushes back: a queue between two groups takes everything. Each
path through the graph has a latency budget; a group gets the smallest share that a path through it leaves it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter

import numpy as np

from headgate.errors import ConfigError
from headgate.simulation.arrivals import Arrivals, Floats, Ints
from headgate.simulation.outcome import Outcome
from headgate.simulation.run import Decides, RunSettings, simulate


@dataclass(frozen=True)
class ChainedGroup:
    name: str
    make_policy: Callable[[float], Decides]
    """From the group's share of the budget, in seconds."""
    source: Arrivals | None = None
    """What arrives from outside."""
    after: Mapping[str, float] = field(default_factory=dict)
    """Groups whose output arrives here: how many records for each one they have done."""
    partitions: int = 5
    """Of a group without a source; keys are at random."""
    weight: float = 1.0
    """Its share of a path's budget, relative to the others on the path."""
    settings: RunSettings = field(default_factory=lambda: RunSettings(protocol="cooperative"))


@dataclass(frozen=True, slots=True)
class Path:
    """From a group with a source to any group after it, and how long a record may take from end to end."""

    through: tuple[str, ...]
    latency_s: float


@dataclass(frozen=True, eq=False)
class PathOutcome:
    path: Path
    latency_s: Floats
    """Of every record at the path's end: from the arrival of the record it came from at the path's beginning."""

    @property
    def sla_percent(self) -> float:
        if not len(self.latency_s):
            return 100.0
        return 100.0 * float(np.mean(self.latency_s <= self.path.latency_s + 1e-6))

    def quantile_s(self, q: float) -> float:
        return float(np.quantile(self.latency_s, q)) if len(self.latency_s) else 0.0


@dataclass(frozen=True, eq=False)
class ChainOutcome:
    budgets_s: Mapping[str, float]
    groups: Mapping[str, Outcome]
    """Each judged by its own budget."""
    paths: tuple[PathOutcome, ...]

    @property
    def replica_minutes(self) -> float:
        return sum(outcome.replica_minutes for outcome in self.groups.values())


@dataclass(frozen=True, eq=False)
class _Records:
    """Records between two groups: when they come, when what they are about began, and which way they took."""

    at_s: Floats
    origin_s: Floats
    trail: Ints
    trails: tuple[tuple[str, ...], ...]
    """What the numbers in `trail` stand for."""


def simulate_chain(groups: Sequence[ChainedGroup], paths: Sequence[Path], seed: int = 0) -> ChainOutcome:
    """Every group once, parents before children; then the paths from end to end."""
    by_name = {group.name: group for group in groups}
    if len(by_name) != len(groups):
        raise ConfigError("two groups of a chain have the same name")
    budgets_s = budgets(groups, paths)
    outcomes: dict[str, Outcome] = {}
    done: dict[str, _Records] = {}
    lasts_s: dict[str, float] = {}
    for n, name in enumerate(_parents_first(by_name)):
        group, rng = by_name[name], np.random.default_rng([seed, n])
        incoming = [_emitted(done[parent], ratio, name) for parent, ratio in group.after.items()]
        arrivals, sent = _arrivals(group, incoming, [lasts_s[p] for p in group.after], rng)
        lasts_s[name] = arrivals.duration_s
        settings = replace(group.settings, slo_s=budgets_s[name], seed=seed)
        outcomes[name] = simulate(arrivals, group.make_policy(budgets_s[name]), settings)
        done[name] = _finished(outcomes[name], sent)
    return ChainOutcome(budgets_s, outcomes, tuple(_along(path, done[path.through[-1]]) for path in paths))


def budgets(groups: Iterable[ChainedGroup], paths: Sequence[Path]) -> dict[str, float]:
    """Per group the smallest share that a path leaves it: the path's budget in proportion to its groups' weights."""
    by_name = {group.name: group for group in groups}
    for path in paths:
        _check(path, by_name)
    found: dict[str, float] = {}
    for path in paths:
        whole = sum(by_name[name].weight for name in path.through)
        for name in path.through:
            share_s = path.latency_s * by_name[name].weight / whole
            found[name] = min(share_s, found.get(name, share_s))
    missing = sorted(by_name.keys() - found.keys())
    if missing:
        raise ConfigError(f"no path leads through {', '.join(missing)}: say what latency is allowed there")
    return found


def _check(path: Path, groups: Mapping[str, ChainedGroup]) -> None:
    unknown = [name for name in path.through if name not in groups]
    if unknown or not path.through:
        raise ConfigError(f"the path {' → '.join(path.through)} names no group {', '.join(unknown)}")
    if not path.latency_s > 0 or any(not groups[name].weight > 0 for name in path.through):
        raise ConfigError(f"budget and weights of the path {' → '.join(path.through)} must be above 0")
    if groups[path.through[0]].source is None:
        raise ConfigError(f"the path {' → '.join(path.through)} must begin where records come from outside")
    for parent, child in zip(path.through, path.through[1:], strict=False):
        if parent not in groups[child].after:
            raise ConfigError(f"{child} does not come after {parent}, as a path says")


def _parents_first(groups: Mapping[str, ChainedGroup]) -> list[str]:
    for group in groups.values():
        unknown = [parent for parent in group.after if parent not in groups]
        if unknown:
            raise ConfigError(f"{group.name} comes after {', '.join(unknown)}, which does not exist")
        if any(not ratio > 0 for ratio in group.after.values()):
            raise ConfigError(f"{group.name} must get more than 0 records for each of its parents'")
        if (group.source is None) == (not group.after):
            raise ConfigError(f"{group.name} needs either a source or parents")
    try:
        return list(TopologicalSorter({name: group.after.keys() for name, group in groups.items()}).static_order())
    except CycleError as error:
        raise ConfigError(f"groups feed each other in a circle: {' → '.join(error.args[1])}") from error


def _emitted(parent: _Records, ratio: float, child: str) -> _Records:
    """What a parent sends on: of every record so many that the ratio holds from the first to the last."""
    order = np.argsort(parent.at_s, kind="stable")
    copies = np.diff(np.floor(ratio * np.arange(len(order) + 1) + 1e-9)).astype(np.int64)
    chosen = np.repeat(order, copies)
    trails = tuple((*trail, child) for trail in parent.trails)
    return _Records(parent.at_s[chosen], parent.origin_s[chosen], parent.trail[chosen], trails)


def _arrivals(
    group: ChainedGroup, incoming: Sequence[_Records], until_s: Sequence[float], rng: np.random.Generator
) -> tuple[Arrivals, tuple[_Records, ...]]:
    """What arrives at a group, and the same per partition with where it came from."""
    if group.source is not None:
        own = ((group.name,),)
        sent = tuple(_Records(t, t, np.zeros(len(t), dtype=np.int64), own) for t in group.source.times_s)
        return group.source, sent
    trails = tuple(dict.fromkeys(trail for records in incoming for trail in records.trails))
    at_s = np.concatenate([r.at_s for r in incoming])
    origin_s = np.concatenate([r.origin_s for r in incoming])
    trail = np.concatenate([np.array([trails.index(t) for t in r.trails])[r.trail] for r in incoming])
    order = np.argsort(at_s, kind="stable")
    partition = rng.integers(group.partitions, size=len(order))
    parts = [order[partition == p] for p in range(group.partitions)]
    sent = tuple(_Records(at_s[part], origin_s[part], trail[part], trails) for part in parts)
    duration_s = max(*until_s, float(at_s.max(initial=0.0)) + 1.0)
    return Arrivals(tuple(r.at_s for r in sent), duration_s, group.name), sent


def _finished(outcome: Outcome, sent: Sequence[_Records]) -> _Records:
    done_s = [a + took for a, took in zip(outcome.arrived_s, outcome.latency_s, strict=True)]
    return _Records(
        np.concatenate(done_s),
        np.concatenate([r.origin_s for r in sent]),
        np.concatenate([r.trail for r in sent]),
        sent[0].trails,
    )


def _along(path: Path, end: _Records) -> PathOutcome:
    if path.through not in end.trails:
        return PathOutcome(path, np.empty(0))
    mine = end.trail == end.trails.index(path.through)
    return PathOutcome(path, end.at_s[mine] - end.origin_s[mine])
