"""Python's garbage collector in a process that measures and decides every second."""

import gc

_OBJECTS_BETWEEN_LOOKS = 100_000
"""More than one turn with 10,000 partitions makes before the last turn's are let go of."""


def collect_seldom() -> None:
    """For a process that is set up by now: what there is stays, and what comes is looked through less often.

    A turn makes objects for every partition and lets go of them; none of them refer to each other in a circle, which
    is all that the collector is there for. Left to itself it looks through the whole process several times a turn:
    with 10,000 partitions that takes as long as all the rest.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS_BETWEEN_LOOKS, 5, 5)
