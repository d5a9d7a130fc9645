"""One table's DataFrames: records read from Kafka, decoded, then good, as the table holds them, or rejected."""

import json
import re
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from headgate.config.clients import java_settings
from headgate.config.pipeline import Pipeline, Table
from headgate.config.transform import import_transform
from headgate.consumer.decode import META, RAW_KEY, RAW_VALUE, REASON, decoder
from headgate.consumer.spark import first_line, settle, ship_modules
from headgate.errors import ConfigError, ConsumerError, LakeError
from headgate.lake.spark_types import iceberg_schema
from headgate.model import Range, TopicPartition

_MOVING_DATE = re.compile(r"['\"]\s*(now|today|yesterday|tomorrow)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """A record the transform fails on."""

    partition: TopicPartition
    offset: int
    reason: str


class TableQuery:
    def __init__(self, spark: SparkSession, pipeline: Pipeline, table: Table) -> None:
        # A session of its own, so that the view `input` of inline SQL cannot meet another table's.
        self.is_remote = not hasattr(spark, "newSession")
        self.spark = spark if self.is_remote else spark.newSession()
        self._naming = threading.Lock()
        settle(self.spark, pipeline.consumer.spark.conf)
        self._table = table
        self.decode, self._columns = decoder(table)
        self._transform = import_transform(table.transform, pipeline.folder) if table.transform else None
        if self._transform is not None:
            ship_modules(spark, pipeline.folder)
        self._options = {f"kafka.{key}": value for key, value in java_settings(pipeline).items()}
        # A fixed group lets the connector keep its consumers between cycles; it neither joins nor commits.
        self._options["kafka.group.id"] = f"{pipeline.group}-reader"
        self._options |= {"failOnDataLoss": "true", "includeHeaders": "true"}
        self.schema = self._checked_schema()

    @property
    def may_fail(self) -> bool:
        """Whether anything of the user's runs on the records."""
        return bool(self._transform or self._table.sql or self._table.where)

    @property
    def may_be_planned_once(self) -> bool:
        """Unless a function of the user's puts the query together, or it says `DATE 'today'`, which is a constant once
        planned."""
        texts = f"{self._table.sql or ''} {self._table.where or ''}"
        return self._transform is None and not _MOVING_DATE.search(texts)

    def _checked_schema(self) -> str:
        """The table's schema as Spark's JSON; refuses what cannot work or loses where a record came from."""
        name = self._table.name
        try:
            good = self.good(self.decoded((Range(TopicPartition("unread", 0), 0, 0),)))
        except AnalysisException as error:
            raise ConfigError(f"table {name}: {first_line(error)}; check where, sql and transform") from error
        except Exception as error:  # the user's function may fail in any way
            raise ConfigError(f"table {name}: the transform fails with {type(error).__name__}: {error}") from error
        if not isinstance(good, DataFrame):
            raise ConfigError(f"table {name}: the transform gives a {type(good).__name__}; it must return a DataFrame")
        missing = [column for column in META if column not in good.columns]
        if missing:
            raise ConfigError(
                f"table {name}: the transform drops {', '.join(missing)}; keep {', '.join(META)}, "
                f"they are how every record is accounted for"
            )
        if unknown := [by.column for by in self._table.partition_by if by.column not in good.columns]:
            raise ConfigError(
                f"table {name}: partition_by names {', '.join(unknown)}; the columns are {', '.join(good.columns)}"
            )
        schema = str(good.schema.json())
        try:
            iceberg_schema(schema)
        except LakeError as error:
            raise ConfigError(f"table {name}: {error}") from error
        return schema

    def read(self, ranges: Iterable[Range]) -> DataFrame:
        """Kafka's records as the connector gives them."""
        assign: dict[str, list[int]] = {}
        starts: dict[str, dict[str, int]] = {}
        ends: dict[str, dict[str, int]] = {}
        for part in ranges:
            topic, number = part.partition.topic, part.partition.partition
            assign.setdefault(topic, []).append(number)
            starts.setdefault(topic, {})[str(number)] = part.start
            ends.setdefault(topic, {})[str(number)] = part.end
        offsets = {"assign": assign, "startingOffsets": starts, "endingOffsets": ends}
        texts = {key: json.dumps(value) for key, value in offsets.items()}
        return self.spark.read.format("kafka").options(**self._options, **texts).load()

    def decoded(self, ranges: Iterable[Range]) -> DataFrame:
        return self.decode(self.read(ranges))

    def made_up(self, records: int) -> DataFrame:
        """Records that no topic holds, decoded."""
        return self.decode(
            self.spark.range(records).selectExpr(
                "CAST(NULL AS BINARY) AS key",
                "CAST(if(id < 0, '', '{}') AS BINARY) AS value",  # or Spark would compute all at once, beforehand
                "'made up' AS topic",
                "0 AS partition",
                "id AS offset",
                "timestamp_seconds(id) AS timestamp",
                "CAST(NULL AS ARRAY<STRUCT<key: STRING, value: BINARY>>) AS headers",
            )
        )

    def good(self, decoded: DataFrame, bad: Sequence[BadRecord] = ()) -> DataFrame:
        """The table's rows, without the records known to be bad."""
        good = decoded.filter(F.col(REASON).isNull())
        if bad:
            good = good.filter(~_is_one_of(bad))
        if self._table.where:
            good = good.filter(self._table.where)
        good = good.select(*(f"`{name}`" for name in self._columns), *META)
        if self._transform is not None:
            good = self._transformed(good)
        elif self._table.sql:
            with self._naming:
                good.createOrReplaceTempView("input")
                good = self.spark.sql(self._table.sql)
        return good

    def _transformed(self, good: DataFrame) -> DataFrame:
        """The user's code, in our process: whatever it raises costs this table's cycle and nothing else."""
        assert self._transform is not None
        try:
            made: DataFrame = self._transform(good)
            return made
        except (PySparkException, Py4JError):
            raise  # an analysis error, told like those of inline SQL
        except Exception as error:
            raise ConsumerError(f"table {self._table.name}: {self._table.transform} raised {error!r}") from error

    def rejected(self, decoded: DataFrame, bad: Sequence[BadRecord]) -> DataFrame:
        """Records that could not be decoded, and those known to be bad, as they came and with the reason."""
        reason = F.col(REASON)
        for one in bad:
            reason = F.when(_is_one_of([one]), F.lit(one.reason)).otherwise(reason)
        return (
            decoded.withColumn(REASON, reason)
            .filter(F.col(REASON).isNotNull())
            .select(
                F.col(RAW_KEY).alias("key"),
                F.col(RAW_VALUE).alias("value"),
                F.col(REASON).alias("reason"),
                F.current_timestamp().alias("rejected_at"),
                *META,
            )
        )


def _is_one_of(bad: Sequence[BadRecord]) -> Column:
    conditions = (
        f"_offset = {one.offset} AND _kafka_partition = {one.partition.partition} AND _topic = '{one.partition.topic}'"
        for one in bad
    )
    return F.expr(" OR ".join(f"({one})" for one in conditions))
