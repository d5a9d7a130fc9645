"""Changes of a table in one attempt, computed once.

PyIceberg's transaction works out the metadata anew whenever somebody looks at it, two dozen times in a commit, and
copies every snapshot each time: with 100 snapshots nine tenths of a commit.
"""

from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableUpdate


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


def _without_retries(table: Table) -> Table:
    """The property is changed in memory only."""
    single = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    metadata = table.metadata.model_copy(update={"properties": single})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)
