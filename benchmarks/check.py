"""What is wrong with what was measured, beside what was committed: values in, values out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarks.ratio import Ratio


@dataclass(frozen=True, slots=True)
class Finding:
    benchmark: str
    kind: Literal["worse than committed", "target missed", "gone"]
    what: str
    peer: str
    why: str

    def sentence(self) -> str:
        return f"{self.kind}: {self.benchmark}: {self.what} against {self.peer}: {self.why}"


def findings(now: Mapping[str, Sequence[Ratio]], before: Mapping[str, Sequence[Ratio]]) -> list[Finding]:
    """Of the benchmarks that ran. A row that was not there before cannot be worse, but it can miss its target; one that
    is there no more, or by another name, is compared with nothing, and would hide whatever became of it."""
    found = []
    for name, ratios in now.items():
        known = {(r.what, r.peer): r for r in before.get(name, ())}
        for ratio in ratios:
            last = known.pop((ratio.what, ratio.peer), None)
            if last is not None and ratio.regressed_from(last):
                why = f"{ratio.ratio:.2f}, before {last.ratio:.2f} ({last.low:.2f} … {last.high:.2f})"
                found.append(Finding(name, "worse than committed", ratio.what, ratio.peer, why))
            if ratio.met is False:
                why = f"{ratio.ratio:.2f}, asked for is {ratio.asked}"
                found.append(Finding(name, "target missed", ratio.what, ratio.peer, why))
        found += [
            Finding(name, "gone", what, peer, f"it was {last.ratio:.2f}, and no row has its names now")
            for (what, peer), last in known.items()
        ]
    return found
