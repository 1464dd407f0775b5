"""Schemas for Spark: what PySpark does to the value that it is given, and what it does not know."""

from __future__ import annotations

import json
from typing import Any

import pytest

from widen.errors import UnsupportedColumnType
from widen.model.schema_json import from_json, to_json
from widen.spark.spark_types import to_spark

ID = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def schema(data_type: Any, metadata: Any = None) -> str:
    fields = [ID, {"name": "it", "type": data_type, "nullable": True, "metadata": metadata or {}}]
    return json.dumps({"type": "struct", "fields": fields})


def test_the_collations_of_a_table_stay_as_they_are() -> None:
    table = from_json(schema("string", {"__COLLATIONS": {"it": "spark.UTF8_LCASE"}}))
    before = to_json(table)
    first, second = to_spark(table), to_spark(table)
    assert first == second
    assert first["it"].dataType.simpleString() == "string collate UTF8_LCASE"
    assert to_json(table) == before


@pytest.mark.parametrize(
    ("data_type", "metadata"),
    [
        ("point", None),
        ({"type": "interval of ours"}, None),
        ({"type": "array", "elementType": "point", "containsNull": True}, None),
        ("string", {"__COLLATIONS": {"it": "nobody.BINARY"}}),
        ("string", {"__COLLATIONS": {"it": "UTF8_LCASE"}}),
        ("string", {"__COLLATIONS": "spark.UTF8_LCASE"}),
        ("string", {"__COLLATIONS": {"it": 5}}),
    ],
)
def test_a_type_that_spark_does_not_know_is_refused_by_the_name_of_its_column(data_type: Any, metadata: Any) -> None:
    with pytest.raises(UnsupportedColumnType, match="The column it cannot have the type"):
        to_spark(from_json(schema(data_type, metadata)))
