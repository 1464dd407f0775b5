"""Plans for tables with a generated column, without Spark: its rule counts only where a record gives the column."""

from __future__ import annotations

from pathlib import Path

import pytest

import widen
from widen.errors import EngineUnsuitable
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType

GENERATED = StructType(
    (Field("id", parse_type("int")), Field("g", parse_type("int"), metadata={"delta.generationExpression": "id + 1"}))
)


def test_a_plan_of_a_table_with_a_generated_column_needs_spark_only_where_a_record_gives_it(tmp_path: Path) -> None:
    source, table = tmp_path / "a.json", str(tmp_path / "t")
    widen.create_table(table, GENERATED, properties={"delta.feature.generatedColumns": "supported"})
    for line in ('{"id": 1, "new": "x"}', '{"id": 1, "s": {"g": 7}}'):
        source.write_text(line)
        assert not widen.plan(source, table, engine="local").is_empty
    for line in ('{"id": 1, "new": "x", "G": 7}', '{"id": 1, "new": "x", "g": 2}\n{"id": 2}'):
        source.write_text(line)
        with pytest.raises(EngineUnsuitable, match="the column g is generated"):
            widen.plan(source, table, engine="local")


def test_a_plan_of_a_table_with_a_constraint_still_looks_at_the_rows(tmp_path: Path) -> None:
    source, table = tmp_path / "a.json", str(tmp_path / "t")
    rules = {"delta.constraints.odd": "id % 2 = 1", "delta.feature.checkConstraints": "supported"}
    properties = {"delta.feature.generatedColumns": "supported", **rules}
    widen.create_table(table, GENERATED, properties=properties)
    source.write_text('{"id": 1, "new": "x"}')
    with pytest.raises(EngineUnsuitable):
        widen.plan(source, table, engine="local")
