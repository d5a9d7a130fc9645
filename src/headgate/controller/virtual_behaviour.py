"""How a simulated world behaves: slow or quick consumers, late replies, lost ones."""

from collections.abc import Callable
from dataclasses import dataclass

from headgate.controller.ports import Event


@dataclass(slots=True)
class Behaviour:
    """How simulated consumers and their channel behave; each number is asked for anew every time."""

    start_s: Callable[[int], float] = lambda consumer_id: 5.0
    """From the request to the first report."""
    cycle_s: Callable[[int], float] = lambda consumer_id: 1.0
    heartbeat_s: float = 1.0
    commit_s: Callable[[], float] = lambda: 0.5
    """From an announcement to the ledger."""
    reply_s: Callable[[], float] = lambda: 0.0
    """How long an event travels; a consumer's events keep their order."""
    loses: Callable[[Event], bool] = lambda event: False
    speed_bytes_per_s: Callable[[int], float] = lambda consumer_id: 0.0
    """What a full cycle measures; 0 for a cycle that is not full."""
