"""Changes of a table in one attempt, computed once, and only cleaned up after if they are not in the table.

PyIceberg's transaction works out the metadata anew whenever somebody looks at it, two dozen times in a commit, and
copies every snapshot each time: with 100 snapshots nine tenths of a commit.
"""

import logging
from typing import Any

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate
from pyiceberg.table.update.snapshot import _SnapshotProducer

log = logging.getLogger(__name__)


class Attempt(Transaction):
    """A transaction whose commit is tried exactly once; whoever is refused must look at the ledger first."""

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(_without_retries(table), autocommit)
        self._computed: tuple[TableMetadata, tuple[TableUpdate, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        base, updates = self._table.metadata, self._updates
        if not updates:
            return base
        if self._computed is None or self._computed[0] is not base or self._computed[1] is not updates:
            self._computed = base, updates, super().table_metadata
        return self._computed[2]

    def commit_transaction(self) -> Table:
        """A refused commit may have landed all the same: its answer was lost, the client sent it again by itself, and
        that was refused. PyIceberg would remove the manifests of what is now the current snapshot."""
        producers, self._snapshot_producers = self._snapshot_producers, []
        try:
            return super().commit_transaction()
        except CommitFailedException:
            self._clean_up(producers)
            raise
        except ValueError as error:  # it looks at the table again before it commits, and this does not go with it
            self._clean_up(producers)
            raise CommitFailedException(str(error)) from error

    def _clean_up(self, producers: list[_SnapshotProducer[Any]]) -> None:
        try:
            now = self._table.catalog.load_table(self._table.name()).metadata
        except Exception as error:  # noqa: BLE001 — catalogs fail in ways of their own; a sweep finds what is left
            log.debug("what a refused commit wrote is left: %r", error)
            return
        for producer in producers:
            if now.snapshot_by_id(producer._snapshot_id) is None:
                producer._clean_all_uncommitted()


def _without_retries(table: Table) -> Table:
    """The property is changed in memory only."""
    single = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": single})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)
