"""Spark's schema JSON as an Iceberg schema, so that consumers need no catalog and the committer needs no Spark."""

import json
import re
from itertools import count
from typing import Any

from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from headgate.errors import LakeError

_PRIMITIVES: dict[str, IcebergType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "byte": IntegerType(),
    "short": IntegerType(),
    "integer": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "date": DateType(),
    "timestamp": TimestamptzType(),
    "timestamp_ntz": TimestampType(),
}
_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


def iceberg_schema(spark_json: str) -> Schema:
    """All columns optional: a table may gain columns that older files lack (additive evolution)."""
    spark = json.loads(spark_json)
    ids = count(1)
    return Schema(*_fields(spark["fields"], ids))


def _fields(fields: list[dict[str, Any]], ids: "count[int]") -> list[NestedField]:
    return [
        NestedField(field_id=next(ids), name=f["name"], field_type=_type(f["type"], ids, f["name"]), required=False)
        for f in fields
    ]


def _type(spark: Any, ids: "count[int]", column: str) -> IcebergType:
    if isinstance(spark, str):
        if spark in _PRIMITIVES:
            return _PRIMITIVES[spark]
        if decimal := _DECIMAL.fullmatch(spark):
            return DecimalType(int(decimal[1]), int(decimal[2]))
    elif spark["type"] == "struct":
        return StructType(*_fields(spark["fields"], ids))
    elif spark["type"] == "array":
        return ListType(
            element_id=next(ids), element_type=_type(spark["elementType"], ids, column), element_required=False
        )
    elif spark["type"] == "map":
        return MapType(
            key_id=next(ids),
            key_type=_type(spark["keyType"], ids, column),
            value_id=next(ids),
            value_type=_type(spark["valueType"], ids, column),
            value_required=False,
        )
    raise LakeError(f"column {column}: Iceberg has no type for Spark's {spark}; cast it in the transform")
