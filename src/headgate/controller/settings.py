"""How patient a controller is."""

from collections.abc import Callable
from dataclasses import dataclass


def _one(topic: str) -> int:
    return 1


@dataclass(frozen=True, slots=True)
class Settings:
    consumer_capacity_bytes_per_s: float
    """Only to write the Rscore down in both units (A-2); deciding is the policy's business."""
    packing_capacity_bytes_per_s: float
    warm: int = 0
    """Consumers kept ready beyond those that own partitions, so that growing does not wait for a start (L-55)."""
    start_deadline_s: float = 120.0
    """From a start request to the consumer's first report, after which it is started anew; a JVM or a pod needs its
    time (E4: up to 50 s, or 500 s when a node has to come first)."""
    ready_deadline_s: float = 120.0
    """How long a decision waits for its new consumers before it is dropped (L-47)."""
    ack_deadline_s: float = 60.0
    """From a command to its acknowledgement; at least two of the longest cycles (L-46)."""
    heartbeat_deadline_s: float = 15.0
    """Silence after which a consumer is replaced; several heartbeats."""
    stuck_deadline_s: float = 300.0
    """Standing cycles after which a consumer is replaced though its heart beats; far above the longest cycle."""
    stop_deadline_s: float = 30.0
    """The fleet's: how long a consumer that was asked to stop may still occupy its id."""
    start_attempts: int = 3
    """Starts in a row without success after which a consumer is given up and its partitions go to others."""
    down_deadline_s: float = 120.0
    """How long an owner may be without a life before it is given up all the same: until then nothing is decided, and
    its partitions stand still."""
    start_backoff_s: float = 2.0
    """Pause before the second start in a row; doubles with each."""
    avoid_s: float = 600.0
    """How long the id of a consumer that was given up is not used again."""
    alert_quiet_s: float = 60.0
    """An alert that was not raised for this long may be told again."""
    kept_quiet_s: float = 600.0
    """The same of a reason to keep what is; longer than timeouts are apart, or each would be told."""
    poll_s: float = 0.2
    """Pause between two steps."""
    slot_s: float = 1.0
    """Time between two measurements: how finely arrivals are known."""
    tables_of: Callable[[str], int] = _one
    """How many tables a topic feeds: each reads it for itself, so that is how often a consumer pays for it (L-4)."""
