"""What the packing experiment's means say: reproduced or not, and which targets are met."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headgate.experiments import e3
from headgate.experiments.packing import DEFAULT_PRICE, PRICES, Mean, ours

R_BAND, CBS_BAND = 0.05, 0.015
SMALL_R = 0.5
"""At δ = 0 most packers move nothing after the first packings; values below 1 are compared by difference."""

Means = Mapping[tuple[str, int], Mean]


def reproduced(measured: Mean, published: e3.PublishedRow) -> bool:
    close_r = abs(measured.rscore - published.rscore) <= max(
        R_BAND * published.rscore, SMALL_R * (published.rscore < 1)
    )
    return close_r and abs(measured.cbs - published.cbs) <= CBS_BAND


@dataclass(frozen=True, slots=True)
class Verdict:
    what: str
    passed: bool
    shown_by: str


def ordering_verdicts(means: Means, deltas: Sequence[int]) -> list[Verdict]:
    """The findings the thesis states in words."""

    def everywhere(what: str, holds: Mapping[int, bool]) -> Verdict:
        failed = [str(delta) for delta, good in holds.items() if not good]
        return Verdict(what, not failed, "every δ > 0" if not failed else f"not at δ = {', '.join(failed)}")

    moving = [delta for delta in deltas if delta]
    cbs = {d: {p: means[p, d].cbs for p in e3.PUBLISHED} for d in moving}
    moved = {d: {p: means[p, d].rscore for p in e3.PUBLISHED} for d in moving}
    modified = ("MWF", "MBF", "MWFP", "MBFP")
    return [
        everywhere(
            "NF needs the most consumers, then NFD",
            {d: sorted(cbs[d], key=cbs[d].__getitem__)[-2:] == ["NFD", "NF"] for d in moving},
        ),
        everywhere("BFD needs the fewest", {d: cbs[d]["BFD"] == min(cbs[d].values()) for d in moving}),
        everywhere(
            "MBFP needs the fewest of the modified",
            {d: cbs[d]["MBFP"] == min(cbs[d][packer] for packer in modified) for d in moving},
        ),
        everywhere("MWF moves the least", {d: moved[d]["MWF"] == min(moved[d].values()) for d in moving}),
    ]


def dominating_price(means: Means, published: str, delta: int) -> float | None:
    """A price at which ours has both fewer consumers and fewer moves; the one with the least moves."""
    beaten = means[published, delta]
    better = [
        price
        for price in PRICES
        if means[ours(price), delta].cbs < beaten.cbs and means[ours(price), delta].rscore < beaten.rscore
    ]
    return min(better, default=None)


def target_verdicts(means: Means, deltas: Sequence[int]) -> list[Verdict]:
    verdicts = []
    for delta in (d for d in deltas if d):
        beaten = [p for p in e3.PUBLISHED if dominating_price(means, p, delta) is not None]
        missing = [p for p in e3.PUBLISHED if p not in beaten]
        verdicts.append(
            Verdict(
                f"δ = {delta}: for each of the twelve a price with lower CBS and lower E(R)",
                not missing,
                "all twelve" if not missing else f"not {', '.join(missing)}",
            )
        )
        mwf, default = means["MWF", delta], means[ours(DEFAULT_PRICE), delta]
        cbs_share, r_share = default.cbs / mwf.cbs, default.rscore / mwf.rscore
        limit = 0.7 if delta == 5 else 0.9
        verdicts += [
            Verdict(f"δ = {delta}: default's CBS at most a third of MWF's", cbs_share <= 1 / 3, f"{cbs_share:.3f}"),
            Verdict(f"δ = {delta}: default's E(R) at most {limit} of MWF's", r_share <= limit, f"{r_share:.3f}"),
        ]
    return verdicts
