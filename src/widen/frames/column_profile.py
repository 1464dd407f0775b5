"""The profile of every leaf column, also inside arrays and maps; only a few numbers per leaf reach the driver.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

from widen.json.kinds import BINARY_WORD, word_of
from widen.model.column_path import KEY, VALUE, Path, children, leaves
from widen.model.types import TIMESTAMP, DataType, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.partition_values import Scalar
from widen.spark.errors import translate_spark_errors
from widen.spark.spark_types import DataFrame

SAMPLES, SAMPLED_ROWS, SAMPLE_LENGTH = 3, 200, 64
"""The most samples of a leaf, the rows that they come from, and the most characters of each."""

LEAVES_PER_PASS = 200
"""The most leaves that one pass over the rows profiles."""

_OPAQUE = (None, BINARY_WORD)
"""The kinds whose values are counted but not shown, because they are not readable."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """The profile of one leaf.

    Args:
        low: The smallest value; None if the type has no order.
        high: The largest value; None if the type has no order.
        distinct: The approximate number of distinct values; None inside arrays and maps.
    """

    written: int
    nulls: int
    low: Scalar | None
    high: Scalar | None
    distinct: int | None
    samples: tuple[str, ...]


def profile_columns(rows: DataFrame, schema: StructType) -> tuple[int, dict[Path, ColumnFacts]]:
    """Return the number of rows of a version, and the profile of each leaf."""
    all_leaves = [_Leaf.at(schema, path, data_type) for path, data_type in leaves(schema)]
    profiles: dict[Path, ColumnFacts] = {}
    number = 0
    for start in range(0, len(all_leaves), LEAVES_PER_PASS):
        batch = all_leaves[start : start + LEAVES_PER_PASS]
        number, facts = _profile_pass(rows, batch)
        profiles.update(facts)
    return number, profiles


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf, with the SQL expression of its value in a row, or of the array of its values."""

    path: Path
    type: DataType
    sql: str
    is_array: bool

    @classmethod
    def at(cls, schema: StructType, path: Path, data_type: DataType) -> _Leaf:
        sql, is_array = _values("", schema, path, 1)
        return cls(path, data_type, sql, is_array)

    def aggregates(self) -> Iterator[str]:
        """Yield the aggregates: rows with a value, smallest value, largest value, distinct values."""
        sql, order = self.sql, word_of(self.type) not in _OPAQUE
        low, high = (f"array_min({sql})", f"array_max({sql})") if self.is_array else (sql, sql)
        # Spark collects a timestamp as a local time of the driver, without its zone.
        wrap = "unix_micros({})" if self.type == TIMESTAMP else "{}"
        yield f"count_if(exists({sql}, x -> x IS NOT NULL))" if self.is_array else f"count({sql})"
        yield wrap.format(f"min({low})") if order else "NULL"
        yield wrap.format(f"max({high})") if order else "NULL"
        yield "NULL" if self.is_array or not order else f"approx_count_distinct({sql})"

    def sample(self) -> str:
        """Return the aggregate of sample values as texts."""
        value = f"try_element_at(filter({self.sql}, x -> x IS NOT NULL), 1)" if self.is_array else self.sql
        if word_of(self.type) in _OPAQUE:
            return "array()"
        text = f"substring(CAST({value} AS string), 1, {SAMPLE_LENGTH})"
        return f"slice(sort_array(collect_set({text})), 1, {SAMPLES})"


def _values(sql: str, data_type: DataType, path: Path, depth: int) -> tuple[str, bool]:
    if not path:
        return sql, False
    child = dict(children(data_type))[path[0]]
    if isinstance(data_type, StructType):
        return _values(f"{sql}.{quote_name(path[0])}" if sql else quote_name(path[0]), child, path[1:], depth)
    items = {KEY: f"map_keys({sql})", VALUE: f"map_values({sql})"}.get(path[0], sql)
    item = f"item_{depth}"
    inner, is_array = _values(item, child, path[1:], depth + 1)
    if inner == item:
        return items, True
    transformed = f"transform({items}, {item} -> {inner})"
    return (f"flatten(filter({transformed}, x -> x IS NOT NULL))" if is_array else transformed), True


def _profile_pass(rows: DataFrame, batch: Sequence[_Leaf]) -> tuple[int, dict[Path, ColumnFacts]]:
    aggregates = [f"{text} AS c{at}" for at, text in enumerate(text for leaf in batch for text in leaf.aggregates())]
    samples = [f"{leaf.sample()} AS c{at}" for at, leaf in enumerate(batch)]
    with translate_spark_errors():
        number, *results = rows.selectExpr("count(*) AS number", *aggregates).collect()[0]
        sample_texts = rows.limit(SAMPLED_ROWS).selectExpr(*samples).collect()[0]
    facts = {}
    for at, leaf in enumerate(batch):
        written, low, high, distinct = results[4 * at : 4 * at + 4]
        low, high = _scalar(low, leaf.type), _scalar(high, leaf.type)
        facts[leaf.path] = ColumnFacts(written, number - written, low, high, distinct, tuple(sample_texts[at]))
    return number, facts


def _scalar(value: Any, data_type: DataType) -> Scalar | None:
    scalar: Scalar | None = value
    return scalar if value is None or data_type != TIMESTAMP else _EPOCH + timedelta(microseconds=value)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
