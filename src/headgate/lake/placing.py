"""Which partitions the tables are to hold, and where those begin that no ledger knows yet."""

import logging
import math
import time
from collections.abc import Mapping

from confluent_kafka.admin import AdminClient

from headgate.config.pipeline import Pipeline
from headgate.errors import KafkaUnavailable
from headgate.kafka.offsets import beginning_offsets, end_offsets, partitions_where, topic_ids
from headgate.lake.table_state import TableState
from headgate.model import TopicPartition
from headgate.model.messages import LedgerState

log = logging.getLogger(__name__)


class Placing:
    def __init__(self, pipeline: Pipeline, admin: AdminClient) -> None:
        self._pipeline = pipeline
        self._admin = admin
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._looked_s: float | None = None
        self._tried: dict[str, frozenset[TopicPartition]] = {}
        """By table, what was there when new ones were last placed; once for each look, whether it went well or not."""

    def discover(self) -> dict[str, str]:
        """Looks for new topics and partitions, every now and then; then these are the ids of all topics."""
        if self._looked_s is not None and time.monotonic() - self._looked_s < self._pipeline.controller.discover_s:
            return {}
        self._partitions = partitions_where(self._admin, self._pipeline.matches)
        ids = topic_ids(self._admin, {p.topic for p in self._partitions})
        self._looked_s = time.monotonic()
        return ids.known

    def place(self, state: TableState, said: LedgerState | None) -> None:
        """Partitions begin at the beginning, unless the whole table is new (start_from)."""
        if state.last is None or self._tried.get(state.name) is self._partitions:
            return
        self._tried[state.name] = self._partitions
        (table,) = (table for table in self._pipeline.tables if table.name == state.name)
        try:
            self._place(state, {p for p in self._partitions if table.matches(p.topic)}, state.last.ledger.next, said)
        except KafkaUnavailable as error:  # one table's trouble does not stop the others
            log.warning("%s: new partitions wait: %s", state.name, error)

    def _place(
        self,
        state: TableState,
        partitions: set[TopicPartition],
        ledger: Mapping[TopicPartition, int],
        said: LedgerState | None,
    ) -> None:
        new_table = not state.placed and not ledger
        if new_table and said is not None:
            # An earlier committer placed them and consumers may have read from there: its word stands.
            state.partitions = {**state.partitions, **said.following}
        new = partitions - ledger.keys() - state.partitions.keys()
        if new:
            if new_table and not state.partitions and self._pipeline.start_from == "latest":
                origins = end_offsets(
                    self._admin, new, read_committed=self._pipeline.kafka.isolation == "read_committed"
                )
                if missing := new - origins.keys():
                    raise KafkaUnavailable(f"no end offset of {len(missing)} partitions yet")
            else:  # it came up while we were looking, so all of it is new
                origins = beginning_offsets(self._admin, new)
            state.partitions = {**state.partitions, **origins}
            state.published_at = -math.inf
        state.placed = True
