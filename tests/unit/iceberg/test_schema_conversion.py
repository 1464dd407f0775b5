"""Types of the model as Iceberg types, and the reverse; the expected types are those of Iceberg's specification."""

from __future__ import annotations

import pytest
from pyiceberg import types as ice
from pyiceberg.schema import Schema

from widen.errors import UnsupportedColumnType
from widen.iceberg.properties import ColumnSource
from widen.iceberg.schema_conversion import FIXED_LENGTHS, from_model, from_model_type, to_model
from widen.model import types as model
from widen.model.types import ArrayType, DecimalType, Field, MapType, StructType
from widen.protocol.column_mapping import COLUMN_ID, nested_ids
from widen.schema.source_metadata import COMMENT, EVOLVED_FROM, ROLE, SOURCE

# the type of the model, Iceberg's type
SAME = [
    (model.BOOLEAN, ice.BooleanType()),
    (model.INTEGER, ice.IntegerType()),
    (model.LONG, ice.LongType()),
    (model.FLOAT, ice.FloatType()),
    (model.DOUBLE, ice.DoubleType()),
    (model.STRING, ice.StringType()),
    (model.BINARY, ice.BinaryType()),
    (model.DATE, ice.DateType()),
    (model.TIMESTAMP, ice.TimestamptzType()),
    (model.TIMESTAMP_NTZ, ice.TimestampType()),
    (DecimalType(38, 6), ice.DecimalType(38, 6)),
]


@pytest.mark.parametrize(("ours", "theirs"), SAME, ids=lambda each: str(each))
def test_types_both_ways(ours: model.DataType, theirs: ice.IcebergType) -> None:
    assert from_model_type(ours) == theirs
    column = Field("a", ours, metadata={COLUMN_ID: 7})
    assert to_model(Schema(ice.NestedField(7, "a", theirs))) == StructType((column,))


@pytest.mark.parametrize(
    ("ours", "theirs"), [(model.BYTE, ice.IntegerType()), (model.SHORT, ice.IntegerType())], ids=str
)
def test_small_integers_become_int(ours: model.DataType, theirs: ice.IcebergType) -> None:
    assert from_model_type(ours) == theirs


@pytest.mark.parametrize(("theirs", "length"), [(ice.UUIDType(), 16), (ice.FixedType(20), 20)], ids=str)
def test_uuid_and_fixed_are_binary_of_one_length(theirs: ice.IcebergType, length: int) -> None:
    column = Field("a", model.BINARY, metadata={COLUMN_ID: 1, FIXED_LENGTHS: {"1": length}})
    assert to_model(Schema(ice.NestedField(1, "a", theirs))) == StructType((column,))
    inner = ice.MapType(3, ice.StringType(), 4, ice.ListType(5, theirs))
    (items,) = to_model(Schema(ice.NestedField(2, "m", inner)))
    assert items.metadata[FIXED_LENGTHS] == {"5": length}


@pytest.mark.parametrize(
    ("theirs", "name"),
    [
        (ice.TimeType(), "time"),
        (ice.TimestampNanoType(), "timestamp_ns"),
        (ice.TimestamptzNanoType(), "timestamptz_ns"),
        (ice.GeometryType(), r"geometry.*"),
        (ice.GeographyType(), r"geography.*"),
    ],
)
def test_types_that_spark_does_not_have_are_refused_by_their_path(theirs: ice.IcebergType, name: str) -> None:
    inner = ice.StructType(ice.NestedField(3, "at", theirs))
    schema = Schema(ice.NestedField(1, "days", ice.ListType(2, inner)))
    with pytest.raises(UnsupportedColumnType, match=rf"days\.element\.at has the type {name}, which Spark"):
        to_model(schema)


@pytest.mark.parametrize("ours", [model.VOID, model.VARIANT], ids=str)
def test_types_that_iceberg_does_not_have_are_refused(ours: model.DataType) -> None:
    with pytest.raises(UnsupportedColumnType, match=r"a\.element"):
        from_model(StructType((Field("a", ArrayType(ours)),)))


def test_every_level_has_its_id() -> None:
    struct = ice.StructType(ice.NestedField(6, "x", ice.LongType(), required=True, doc="In grams."))
    value = ice.ListType(5, struct, element_required=False)
    schema = Schema(
        ice.NestedField(1, "id", ice.LongType(), required=True),
        ice.NestedField(2, "m", ice.MapType(3, ice.StringType(), 4, value, value_required=False)),
    )
    result = to_model(schema)
    identifier, column = result.fields
    assert not identifier.nullable
    assert identifier.metadata == {COLUMN_ID: 1}
    assert column.metadata[COLUMN_ID] == 2
    assert nested_ids(column) == {("key",): 3, ("value",): 4, ("value", "element"): 5}
    weight = Field("x", model.LONG, nullable=False, metadata={COLUMN_ID: 6, COMMENT: "In grams."})
    assert column.type == MapType(model.STRING, ArrayType(StructType((weight,))), value_contains_null=True)


def test_a_new_schema_has_the_ids_of_pyiceberg_and_the_docs() -> None:
    inner = StructType((Field("x", model.LONG), Field("y", MapType(model.STRING, model.DATE))))
    schema = from_model(
        StructType((Field("a", ArrayType(inner), metadata={COMMENT: "evolved_from:b"}), Field("b", model.STRING)))
    )
    assert str(schema.find_type("a.element.y.value")) == "date"
    assert {number: schema.find_column_name(number) for number in range(1, 8)} == {
        1: "a",
        2: "b",
        3: "a.element",
        4: "a.element.x",
        5: "a.element.y",
        6: "a.element.y.key",
        7: "a.element.y.value",
    }
    assert schema.find_field("a").doc == "evolved_from:b"


def test_sources_stand_in_the_metadata() -> None:
    schema = Schema(
        ice.NestedField(1, "a", ice.StructType(ice.NestedField(2, "renamed", ice.LongType()))),
        ice.NestedField(3, "_rescued", ice.StringType()),
        ice.NestedField(4, "a_long", ice.LongType()),
    )
    sources = {1: ColumnSource("A"), 2: ColumnSource("x.y"), 3: ColumnSource(role="_rescued")}
    sources[4] = ColumnSource("A", is_evolved=True)
    columns = to_model(schema, sources).fields
    assert columns[0].metadata == {COLUMN_ID: 1, SOURCE: ["A"]}
    assert isinstance(columns[0].type, StructType)
    assert columns[0].type.fields[0].metadata == {COLUMN_ID: 2, SOURCE: ["A", "x.y"]}
    assert columns[1].metadata == {COLUMN_ID: 3, ROLE: "_rescued"}
    assert columns[2].metadata == {COLUMN_ID: 4, SOURCE: ["A"], EVOLVED_FROM: "A"}
