"""The keys of a flow: which rows of the source and of the target belong together.

Source: docs/guide/flow.md#keys
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

from widen.changes.overwrite import anti_join_keys, semi_join_keys
from widen.errors import FlowKeyRefused, InvalidOption
from widen.errors.tables import first_line
from widen.evolution.key_rules import KEY
from widen.model.column_path import as_nullable, leaves
from widen.model.types import VOID, DataType, Field, StructType, name_key, quote_name, similarity_key
from widen.model.value_classes import dataclass
from widen.protocol.table_features import required_features
from widen.protocol.type_widening import is_widening
from widen.schema.source_metadata import (
    COMMENT,
    ROLES,
    SOURCE,
    NameAllocator,
    TableFormat,
    reserved_names,
    source_field,
)
from widen.spark.errors import translate_spark_errors
from widen.spark.spark_types import DataFrame, F, SparkSession, from_spark, spark_errors


@dataclass(frozen=True, slots=True)
class FlowKeys:
    """The keys of a flow.

    Args:
        expressions: Over the rows of the source, in Spark SQL, by the column of the target.
    """

    into: str
    expressions: Mapping[str, str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The key columns of the target."""
        return tuple(self.expressions)

    def find_changed(self, frames: Sequence[DataFrame]) -> DataFrame:
        """Return the keys of rows, each once, in columns named `KEY` and a number."""
        keys = [self._keys(frame) for frame in frames]
        first, *others = (from_spark(each.schema) for each in keys)
        for other in others:
            for name, old, new in zip(self.columns, first, other, strict=True):
                if old.type != new.type and not (is_widening(old.type, new.type) or is_widening(new.type, old.type)):
                    reason = f"its type has changed from {old.type.sql} to {new.type.sql}"
                    raise self._refusal(name, reason, _REBUILD)
        return reduce(DataFrame.unionAll, keys).distinct()

    def rows_of(self, rows: DataFrame, keys: DataFrame) -> DataFrame:
        """Return the rows of the source with some keys."""
        return semi_join_keys(rows, list(self.expressions.values()), keys)

    def ensure_kept(self, result: DataFrame, keys: DataFrame) -> None:
        """Check that every row of the target has a key of the rows that it was computed from."""
        returned = {name_key(name) for name in result.columns}
        for name in self.columns:
            if name_key(name) not in returned:
                raise self._refusal(name, "the query does not return it", "Select it, or correct keys.")
        names = [quote_name(name) for name in self.columns]
        with translate_spark_errors():
            (others,) = anti_join_keys(result, names, keys).agg(F.count(F.lit(1))).collect()
        if others[0]:
            reason = "the query returns rows whose key is not that of the source rows that they are computed from"
            raise self._refusal(", ".join(self.columns), reason, _SAME)

    def _keys(self, frame: DataFrame) -> DataFrame:
        columns = [F.expr(text).alias(f"{KEY}{number}") for number, text in enumerate(self.expressions.values())]
        try:
            keys = frame.select(*columns)
            _ = keys.schema
        except spark_errors() as error:
            reason = f"Spark says: {first_line(error).rstrip('.')}"
            raise self._refusal(", ".join(self.columns), reason, _SAME) from error
        return keys

    def _refusal(self, key: str, reason: str, fix: str) -> FlowKeyRefused:
        return FlowKeyRefused(key=key, into=self.into, reason=reason, fix=fix)


_SAME = (
    "A key is a column of the source that the query returns as it is, or an expression over the source, e.g. "
    "keys={'day': 'to_date(placed_at)'}."
)
_REBUILD = "Cast the key in the query and in keys, and use rebuild=True (--rebuild)."


# The query of a flow: from the rows of the source to the rows of the target.
#
# Source: Spark's parameterized queries (``{name}`` for a DataFrame).


Transform: TypeAlias = Callable[[DataFrame], DataFrame]
"""Computes the rows of the target from the rows of the source."""


def type_features(rows: DataFrame) -> frozenset[str]:
    """Return the table features that the types of rows need."""
    types = {leaf for _, leaf in leaves(from_spark(rows.schema))}
    return required_features({}, StructType(tuple(Field(str(leaf), leaf) for leaf in types)))


def layout_of_rows(rows: DataFrame, table_format: TableFormat) -> StructType:
    """Return the columns that a table for rows begins with; those without a type are left out.

    Columns with the name of a role, such as ``_corrupt_record``, hold a field of these rows like any other: the
    table would otherwise take them for its own, and give the values of the source another column. Columns whose name
    the format reserves get another one, as in an ingestion.

    Source: docs/evolution-rules.md#d22
    """
    begun = [field for field in as_nullable(from_spark(rows.schema)) if _has_type(field.type)]
    reserved = {similarity_key(name) for name in reserved_names(table_format) if name not in ROLES}
    taken = [field.name for field in begun if similarity_key(field.name) not in reserved]
    names = NameAllocator((*taken, *reserved_names(table_format)))
    return StructType(
        tuple(_begin_column(field, field.name if field.name in taken else None, names) for field in begun)
    )


def _begin_column(field: Field, name: str | None, names: NameAllocator) -> Field:
    """Return the column for a field; without a name it gets a free one."""
    if name is None:
        column = source_field(names.take(field.name), field.type, (field.name,), is_evolved=False)
    else:
        column = Field(name, field.type, metadata={SOURCE: [name]} if name in ROLES else {})
    comment = field.metadata.get(COMMENT)
    return column if comment is None else column.with_metadata(**{COMMENT: comment})


def _has_type(data_type: DataType) -> bool:
    return all(leaf != VOID for _, leaf in leaves(data_type))


@dataclass(frozen=True, slots=True)
class FlowQuery:
    """What a flow makes of the rows of its source: a function, a query, or nothing.

    Args:
        sql: The query, if there is one; its table is ``source``.
    """

    transform: Transform | None = None
    sql: str | None = None

    @property
    def text(self) -> str:
        """The query, or the name of the function: what a checkpoint remembers."""
        if self.sql is not None:
            return self.sql
        if self.transform is None:
            return ""
        return str(getattr(self.transform, "__qualname__", type(self.transform).__qualname__))

    def run(self, spark: SparkSession, source: DataFrame) -> DataFrame:
        """Return the rows of the target.

        Raises:
            InvalidOption: Spark cannot run the query, or the function does not return a DataFrame.
        """
        if self.sql is None:
            result = source if self.transform is None else self.transform(source)
            if not isinstance(result, DataFrame):
                raise InvalidOption(option="transform", value=result, expected="Must return a DataFrame.")
            return result
        escaped = self.sql.strip().rstrip(";").replace("{", "{{").replace("}", "}}")
        # The query is on its own line, so that a comment at its end does not hide the bracket.
        template = f"WITH source AS (SELECT * FROM {{widen_source}}) SELECT * FROM (\n{escaped}\n)"
        try:
            return spark.sql(template, None, widen_source=source)
        except spark_errors() as error:
            expected = f"Spark says: {first_line(error)}"
            raise InvalidOption(option="sql", value=self.sql, expected=expected) from error
