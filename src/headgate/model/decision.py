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
class Alert:
    """Something scaling cannot mend, for a person to read."""

    about: str
    """What it is about; as long as it lasts, an alert about the same thing is told once, though its numbers change."""
    text: str


@dataclass(frozen=True, slots=True)
class Decision:
    assignment: Assignment | None
    """None keeps what is."""
    reason: str
    """Why, in a sentence with numbers."""
    trigger: str = ""
    """Short name of what fired ("overload", "unassigned", "vanished", "timeout"); empty when nothing did."""
    inputs: Mapping[str, float] = field(default_factory=dict)
    rejected: tuple[Alternative, ...] = ()
    alerts: tuple[Alert, ...] = ()
    """Everything worth an alert now, also what was said before."""

    @property
    def keeps(self) -> bool:
        return self.assignment is None
