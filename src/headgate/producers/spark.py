"""Spark's Kafka sink with a partitioner of ours: a `partition` column of Spark's own expressions, no Python per row.

A task takes its topic's turns one after the other, every task from another turn on. Who leads what is asked once for
every write, and so for every micro-batch of a stream; whoever leads a partition later, its records find it.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headgate.errors import ConfigError, KafkaUnavailable
from headgate.producers.live import ask
from headgate.producers.nodes import refuse_key
from headgate.producers.protocol import ClusterView
from headgate.producers.turns import NodeTurns, SqfTurns, Turns

ANSWER_S = 15.0
ROW_IN_TASK = (1 << 33) - 1
"""The bits of Spark's increasing id that count rows; those above are the task."""


class Balance(Protocol):
    """Sinks that are given one object share what it knows."""

    def counted(self, topics: Sequence[str]) -> frozenset[str]: ...

    def seen(self, view: ClusterView, ends: Mapping[tuple[str, int], int]) -> None: ...

    def turns(self, topic: str, view: ClusterView) -> Turns: ...


BALANCES: dict[str, Callable[[], Balance]] = {"node": NodeTurns, "sqf": SqfTurns}


class BalancedSink:
    """Writes DataFrames with the columns of Spark's Kafka sink (value; topic, key, headers) so that nodes get the same.

    >>> sink = BalancedSink({"kafka.bootstrap.servers": "kafka-1:9092"}, "node")  # doctest: +SKIP
    >>> sink.write(frame, "orders")  # doctest: +SKIP
    >>> stream.writeStream.foreachBatch(sink.each_batch("orders")).start()  # doctest: +SKIP
    """

    def __init__(
        self,
        options: Mapping[str, str],
        balance: str | Balance = "node",
        client: Mapping[str, Any] | None = None,
        allow_keys: bool = False,
        answer_s: float = ANSWER_S,
    ) -> None:
        """`options` are those of Spark's sink; `client` is what librdkafka needs to ask the same brokers, such as a
        login. `balance`: node, sqf, or an object that several sinks share."""
        brokers = options.get("kafka.bootstrap.servers")
        if not brokers:
            raise ConfigError('the options of the sink lack "kafka.bootstrap.servers": add the brokers')
        if isinstance(balance, str) and balance not in BALANCES:
            raise ConfigError(f"no balance named {balance!r} for Spark's sink; there are {', '.join(BALANCES)}")
        self._balance = BALANCES[balance]() if isinstance(balance, str) else balance
        self._options, self._allow_keys, self._answer_s = dict(options), allow_keys, answer_s
        self._admin = AdminClient({"bootstrap.servers": brokers, "log_level": 0, **(client or {})})

    def write(self, frame: DataFrame, *topics: str) -> None:
        """To one topic, or to those that the frame's column `topic` names."""
        self.placed(frame, *topics).write.format("kafka").mode("append").options(**self._options).save()

    def each_batch(self, *topics: str) -> Callable[[DataFrame, int], None]:
        """For a stream's `foreachBatch`: at least once, like Spark's own sink."""
        return lambda frame, batch: self.write(frame, *topics)

    def placed(self, frame: DataFrame, *topics: str) -> DataFrame:
        """The frame with `topic` and `partition`, for those who write it themselves. Good for one write, soon."""
        if not topics:
            raise ConfigError("which topics? Name one, or all that the column `topic` may hold")
        if "topic" not in frame.columns and len(topics) > 1:
            raise ConfigError(f"for the topics {', '.join(topics)} the frame needs a column `topic`")
        if "key" in frame.columns and not self._allow_keys:
            raise refuse_key(" or ".join(topics))
        if "partition" in frame.columns:
            raise ConfigError("the frame has a column `partition` already: drop it, or write without a balance")
        counted = self._balance.counted(topics)
        view = self._view(topics, counted)
        self._balance.seen(view, self._ends(view, counted))
        turns = {topic: self._balance.turns(topic, view) for topic in topics}
        tasks = tasks_of(frame) if any(turn.rows for turn in turns.values()) else None
        if "topic" not in frame.columns:
            return frame.withColumns({"topic": F.lit(topics[0]), "partition": partition_of(turns[topics[0]], tasks)})
        # Each topic counts its own rows: an expression within a branch counts only when the branch is taken.
        chosen = F.when(F.lit(False), F.lit(0))
        for topic in topics:
            chosen = chosen.when(F.col("topic") == topic, partition_of(turns[topic], tasks))
        unknown = F.concat(F.lit("no turns for topic "), F.col("topic"), F.lit(": name it when writing"))
        return frame.withColumn("partition", chosen.otherwise(F.raise_error(unknown).cast("int")))

    def _view(self, topics: Sequence[str], counted: frozenset[str]) -> ClusterView:
        try:
            view = ask(self._admin, counted.union(topics), self._answer_s)
        except KafkaException as error:
            raise KafkaUnavailable(
                f"nobody said who leads {', '.join(topics)} within {self._answer_s:g} s ({error.args[0].str()}): check "
                "the brokers and the login in `client`"
            ) from error
        if missing := sorted(set(topics) - view.partitions.keys()):
            raise ConfigError(f"there is no topic {', '.join(missing)}: create it before writing")
        return view

    def _ends(self, view: ClusterView, topics: frozenset[str]) -> dict[tuple[str, int], int]:
        """Of the partitions that somebody leads and answers for; the others get nothing at the moment."""
        asked = {
            TopicPartition(topic, index): OffsetSpec.latest()
            for topic in topics & view.available.keys()
            for index in view.available[topic]
        }
        if not asked:
            return {}
        ends = {}
        for at, answer in self._admin.list_offsets(asked, request_timeout=self._answer_s).items():
            try:
                ends[at.topic, at.partition] = answer.result(self._answer_s + 1).offset
            except (KafkaException, TimeoutError):
                continue
        return ends


def tasks_of(frame: DataFrame) -> int | None:
    """How many tasks will write it; None where only running it would tell: Spark adapts plans that shuffle while they
    run, and Spark Connect does not say."""
    described = getattr(frame, "_jdf", None)
    if described is None:
        return None
    execution = described.queryExecution()
    if execution.executedPlan().nodeName() == "AdaptiveSparkPlan":
        return None
    return max(1, int(execution.toRdd().getNumPartitions()))  # an empty frame has none


def partition_of(turns: Turns, tasks: int | None) -> Column:
    """Of each row, for a frame that so many tasks write."""
    if not turns.rows:
        return _in_turn(turns.rounds)
    task = F.spark_partition_id()
    if tasks is None:  # as `Turns.first_rows`
        first_rows = F.floor(F.lit(turns.rows) / ((task + 1) * (task + 2)))
    else:
        first_rows = F.lit(turns.rows // tasks) + (task < turns.rows % tasks).cast("int")
    return F.when(_row() < first_rows, _in_turn(turns.first)).otherwise(_in_turn(turns.rounds))


def _in_turn(partitions: Sequence[int]) -> Column:
    start = random.randrange(len(partitions))
    turn = F.pmod(_row() + F.spark_partition_id() + start, F.lit(len(partitions)))
    return F.get(F.expr(f"array({','.join(map(str, partitions))})"), turn.cast("int"))


def _row() -> Column:
    """How often this very expression was asked in this task."""
    return F.monotonically_increasing_id().bitwiseAND(ROW_IN_TASK)
