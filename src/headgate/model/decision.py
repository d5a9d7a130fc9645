"""What a policy answers: keep, or a new assignment, with its reason and the alternatives it beat."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from headgate.model.assignment import Assignment


@dataclass(frozen=True, slots=True)
class Alternative:
    """Something the policy looked at and did not choose, and why not."""

    what: str
    why_not: str


@dataclass(frozen=True, slots=True)
class Decision:
    assignment: Assignment | None
    """None keeps what is."""
    reason: str
    """Why, in a sentence with numbers."""
    trigger: str = ""
    """Short name of what fired ("overload", "unassigned", "timeout"); empty when nothing did."""
    inputs: Mapping[str, float] = field(default_factory=dict)
    rejected: tuple[Alternative, ...] = ()
    alerts: tuple[str, ...] = ()
    """What scaling cannot mend, for a person to read."""

    @property
    def keeps(self) -> bool:
        return self.assignment is None
