"""What the controller asks of a fleet, whatever it is made of."""

from typing import Protocol


class Fleet(Protocol):
    def start(self, consumer_id: int) -> None:
        """Asks for this consumer and returns; it is ready once it reports to the controller.

        Nothing happens if it already runs. An earlier life that is still stopping is ended at once: it was drained
        before it was stopped (L-21), and the ledger makes the rest safe. FleetError if it cannot even be asked for.
        """
        ...

    def stop(self, consumer_id: int, force: bool = False) -> None:
        """Asks it to finish its cycle and end, and returns; it is ended by force when it misses the stop deadline.

        With `force` it is ended at once, with everything it started, before this returns. Stopping a consumer that
        does not run is fine; leftovers of its last life are removed.
        """
        ...

    def running(self) -> frozenset[int]:
        """Consumers that live and were not asked to stop, ready or not, also those a former controller started."""
        ...

    def last_words(self, consumer_id: int) -> str:
        """Why its last life ended by its own account, in a line; empty if it had no time to say, or lives."""
        ...

    def close(self, force: bool = False) -> None:
        """Ends every consumer: asks all of them, waits for the stop deadline, forces the rest."""
        ...

    def hand_over(self) -> None:
        """Another controller took over: consumers that can outlive this process are left to it, others are ended."""
        ...
