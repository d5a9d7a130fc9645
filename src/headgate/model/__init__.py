"""The words of Headgate as values: frozen, comparable, free of I/O, standard library only."""

from headgate.model.announcement import Announcement, CycleStats, Skip
from headgate.model.assignment import Assignment, Move, Plan
from headgate.model.decision import Alert, Alternative, Decision
from headgate.model.ledger import Ledger, Refusal, Totals
from headgate.model.observation import Abilities, ConsumerLoad, Observation, PartitionLoad
from headgate.model.partition import Range, TopicPartition

__all__ = [
    "Abilities",
    "Alert",
    "Alternative",
    "Announcement",
    "Assignment",
    "ConsumerLoad",
    "CycleStats",
    "Decision",
    "Ledger",
    "Move",
    "Observation",
    "PartitionLoad",
    "Plan",
    "Range",
    "Refusal",
    "Skip",
    "TopicPartition",
    "Totals",
]
