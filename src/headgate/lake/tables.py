"""Creating tables, and the names and places of what belongs to a table."""

import logging
from collections.abc import Sequence
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NamespaceAlreadyExistsError, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.partitioning import PartitionField as IcebergPartitionField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform

from headgate.config.pipeline import Lake, PartitionField
from headgate.errors import LakeError
from headgate.lake.ledger import MANAGED
from headgate.lake.spark_types import iceberg_schema

log = logging.getLogger(__name__)

_TRANSFORMS: dict[str, Transform[Any, Any]] = {
    "identity": IdentityTransform(),
    "day": DayTransform(),
    "hour": HourTransform(),
}


def table_location(lake: Lake, table: str) -> str:
    """Where Headgate keeps a table; computed, so that consumers can write files without asking a catalog."""
    return f"{lake.warehouse.rstrip('/')}/{table.replace('.', '/')}"


def load_table(catalog: Catalog, name: str) -> Table | None:
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None
    except FileNotFoundError as error:
        raise LakeError(
            f"{name}: the metadata that the catalog names is not there: {_first_line(error)}. Is the warehouse away, "
            f"or the catalog older than the lake? docs/recover.md, A catalog that is lost, or new, says what to do"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error) or repr(error)).splitlines()[0]


def create_table(
    catalog: Catalog, lake: Lake, name: str, spark_schema: str, partition_by: Sequence[PartitionField] = ()
) -> Table:
    """Creates the table, or loads it if another committer was faster."""
    schema = iceberg_schema(spark_schema)
    _ensure_namespace(catalog, name.rsplit(".", 1)[0])
    try:
        return catalog.create_table(
            name,
            schema=schema,
            location=table_location(lake, name),
            partition_spec=partition_spec(schema, partition_by),
            properties={
                "format-version": "2",
                MANAGED: "true",
                "write.parquet.compression-codec": "zstd",
                # One small manifest per commit would make every later commit and scan slower.
                "commit.manifest-merge.enabled": "true",
                "commit.manifest.min-count-to-merge": "50",
                "write.metadata.delete-after-commit.enabled": "true",
                "write.metadata.previous-versions-max": "20",
            },
        )
    except TableAlreadyExistsError:
        return catalog.load_table(name)


def _ensure_namespace(catalog: Catalog, namespace: str) -> None:
    try:
        catalog.create_namespace(namespace)
    except NamespaceAlreadyExistsError:
        log.debug("namespace %s is there", namespace)
    except Exception:  # two at once: PostgreSQL, for one, says so in words of its own
        if not catalog.namespace_exists(namespace):
            raise


def partition_spec(schema: Schema, partition_by: Sequence[PartitionField]) -> PartitionSpec:
    fields = []
    for number, wanted in enumerate(partition_by):
        try:
            source = schema.find_field(wanted.column)
        except ValueError as error:
            names = ", ".join(f.name for f in schema.fields)
            raise LakeError(f"partition_by names column {wanted.column}; the table has {names}") from error
        suffix = "" if wanted.transform == "identity" else f"_{wanted.transform}"
        fields.append(
            IcebergPartitionField(source.field_id, 1000 + number, _TRANSFORMS[wanted.transform], wanted.column + suffix)
        )
    return PartitionSpec(*fields)


def layout_problem(table: Table, partition_by: Sequence[PartitionField]) -> str | None:
    """Why files written for `partition_by` do not belong into this table."""
    schema = table.schema()
    have = [(schema.find_column_name(f.source_id), str(f.transform)) for f in table.spec().fields]
    asked = [(wanted.column, wanted.transform) for wanted in partition_by]
    if have == asked:
        return None
    return (
        f"the table is partitioned by {_in_words(have)} and partition_by says {_in_words(asked)}; set it back, or "
        f"change the table first (ALTER TABLE ... ADD or DROP PARTITION FIELD)"
    )


def _in_words(fields: Sequence[tuple[str | None, str]]) -> str:
    return ", ".join(f"{name}" if how == "identity" else f"{how}({name})" for name, how in fields) or "nothing"
