"""The one question a policy answers."""

from typing import Protocol

from headgate.model import Decision, Observation


class Policy(Protocol):
    def decide(self, seen: Observation) -> Decision:
        """Keep, or a new assignment, from the observation and what the policy remembers of earlier ones."""
        ...
