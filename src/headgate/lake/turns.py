"""How upkeep gets its turn at a table that a committer never lets rest. In one process a lock for each table is enough.

Between processes it is asked for. Exchanging files takes longer than adding some, so beside a busy committer it would
lose every time. After a few losses it asks: a property of the table, which takes no longer to set than any commit. The
committer sees it when it next reads the table, and waits until the exchange has taken the property away again, in the
same commit. It waits once for each call and never long, so that whoever asked and died holds nobody up.
"""

import logging
import threading
import time
from contextlib import AbstractContextManager

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.table import Table, Transaction

from headgate.config.table import REJECTED_SUFFIX, SKIPPED_SUFFIX
from headgate.lake.attempts import Attempt
from headgate.lake.tables import load_table

log = logging.getLogger(__name__)

CALL = "headgate.turn-asked-at-ms"
_MOST_ATTEMPTS = 20
_POLL_S = 0.1
_OLD_S = 60.0
"""A call older than this was left by somebody who died."""


def ask_for_turn(catalog: Catalog, name: str) -> None:
    """From now on committers wait, for a while."""
    for _ in range(_MOST_ATTEMPTS):
        table = load_table(catalog, name)
        if table is None:
            return
        try:
            call = Attempt(table).set_properties({CALL: str(_now_ms())})
            call.commit_transaction()
            return
        except (CommitFailedException, CommitStateUnknownException) as error:
            log.debug("%s: the call for a turn met another commit: %s", name, error)


def end_turn(transaction: Transaction) -> None:
    """To be part of the commit that the turn was for."""
    if CALL in transaction.table_metadata.properties:
        transaction.remove_properties(CALL)


class Turns:
    """For committer and upkeep of one process: they change a table, and what belongs to it, one after the other."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}

    def of(self, table: str) -> AbstractContextManager[object]:
        main = table.removesuffix(REJECTED_SUFFIX).removesuffix(SKIPPED_SUFFIX)
        return self._locks.setdefault(main, threading.Lock())


class GivingWay:
    """A committer's side."""

    def __init__(self, longest_s: float = 10.0) -> None:
        self._longest_s = longest_s
        self._heard = ""

    def wait(self, catalog: Catalog, table: Table) -> Table:
        """The table as it is once nobody asks for a turn, or once it was waited long enough."""
        call = table.properties.get(CALL, "")
        if call == self._heard or not call.isdecimal() or abs(_now_ms() - int(call)) > 1000 * _OLD_S:
            return table
        self._heard = call
        log.info("%s: upkeep asks for its turn; commits wait up to %g s", ".".join(table.name()), self._longest_s)
        until = time.monotonic() + self._longest_s
        while time.monotonic() < until and table.properties.get(CALL) == call:
            time.sleep(_POLL_S)
            table = catalog.load_table(table.name())
        return table


def _now_ms() -> int:
    return int(time.time() * 1000)
