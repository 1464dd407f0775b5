"""Conditions on new rows that tasks check with Arrow: comparisons of columns with constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import CheckViolated
from widen.evolution.policy import mask
from widen.files.data_reader import java_float, java_number
from widen.files.predicates import bind_condition
from widen.files.row_tests import RowTest, plan_test
from widen.model.types import DataType, DecimalType, Field, StructType, plain_name
from widen.model.value_classes import dataclass
from widen.protocol.table_configuration import TableConfiguration
from widen.schema.table_state import referenced_columns, row_conditions
from widen.spark.engine import Unsupported
from widen.spark.errors import SHOWN_CHARACTERS


@dataclass(frozen=True, slots=True)
class RowRule:
    """A condition that every row must fulfil. Picklable."""

    name: str
    expression: str
    test: RowTest
    columns: tuple[Field, ...]

    def find_broken(self, rows: pa.RecordBatch) -> pa.Array:
        """Return the rows that break the rule: their condition is false or null."""
        holds = self.test(pa.Table.from_batches([rows]))
        return pc.invert(pc.fill_null(holds, False)).combine_chunks()

    def refuse(self, row: Mapping[str, Any]) -> CheckViolated:
        """Return the error for a row that breaks the rule, with the values that Spark shows of it."""
        shown = {field.name: _masked(row[field.name], field.type) for field in self.columns}
        values = msgspec.json.encode(shown).decode()[:SHOWN_CHARACTERS] if shown else ""
        return CheckViolated(name=self.name, expression=self.expression, values=values)

    def explain(self, row: Mapping[str, Any]) -> str:
        """Return why a row is refused."""
        return self.refuse(row).message


def ensure_rules(rules: Sequence[RowRule], names: Sequence[str], columns: Sequence[pa.Array]) -> None:
    """Check that no row breaks a rule."""
    if not rules:
        return
    rows = pa.RecordBatch.from_arrays(columns, names)
    for rule in rules:
        broken = rows.filter(rule.find_broken(rows))
        if broken.num_rows:
            raise rule.refuse(broken.slice(0, 1).to_pylist()[0])


def row_rules(table: TableConfiguration) -> tuple[RowRule, ...]:
    """Return the conditions on the rows of a table."""
    schema = table.schema
    return tuple(
        _row_rule(label, text, schema) for label, text in row_conditions(schema, table.protocol, table.properties)
    )


def _row_rule(label: str, text: str, schema: StructType) -> RowRule:
    names = {path[0] for path in referenced_columns(text, schema)}
    used = tuple(field for field in schema if field.name in names)
    try:
        test = plan_test(bind_condition(text, schema))
    except Unsupported as error:
        raise Unsupported(f"its {label} does more than compare columns with constants") from error
    # Errors show the values of the columns as Spark writes them.
    if not all(plain_name(field.type) in _TEXTS or isinstance(field.type, DecimalType) for field in used):
        raise Unsupported(f"its {label} is about values of another type than numbers, texts, dates and times")
    return RowRule(f"The {label}", text, test, used)


def _masked(value: Any, data_type: DataType) -> str | None:
    if value is None:
        return None
    return mask(str(value) if isinstance(data_type, DecimalType) else _TEXTS[plain_name(data_type)](value))


def _time_text(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(" ")
    return text.rstrip("0") if "." in text else text


_TEXTS: Mapping[str, Callable[[Any], str]] = {
    **dict.fromkeys(("byte", "short", "integer", "long", "string", "date"), str),
    "boolean": lambda value: "true" if value else "false",
    "double": lambda value: java_number(value, repr(value)).strip('"'),
    "float": lambda value: java_float(value).strip('"'),
    "timestamp": _time_text,
    "timestamp_ntz": _time_text,
}
"""How Spark casts values to texts, by their type."""
