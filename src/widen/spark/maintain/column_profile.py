"""What the rows of a table hold, leaf by leaf, also inside arrays and maps: only few numbers come to the driver.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from widen.log.read.snapshot import Snapshot
from widen.model.column_path import KEY, VALUE, Path, children, leaves
from widen.model.types import TIMESTAMP, DataType, StructType, quote_name
from widen.observe.kind import BINARY_WORD, word_of
from widen.protocol.partition_values import Scalar
from widen.spark.read.scan import read_snapshot
from widen.spark.spark_errors import translate_spark_errors

SAMPLES, SAMPLED_ROWS, SAMPLE_LENGTH = 3, 200, 64
"""How many values of a leaf are shown, among how many rows they are looked for, and how much of each is taken."""

LEAVES_PER_PASS = 200
"""How many leaves are looked at in one pass over the rows."""

_OPAQUE = (None, BINARY_WORD)
"""The words of types whose values say nothing to people: they are counted."""


@dataclass(frozen=True, slots=True)
class ColumnFacts:
    """What is known of one leaf.

    Args:
        written: In how many rows it has a value.
        nulls: In how many it has none.
        low: The smallest value; None if its type has no order.
        high: The largest.
        distinct: How many values differ, about; None inside arrays and maps.
        samples: Some of the values, as texts.
    """

    written: int
    nulls: int
    low: Scalar | None
    high: Scalar | None
    distinct: int | None
    samples: tuple[str, ...]


def profile_columns(spark: SparkSession, snapshot: Snapshot) -> tuple[int, dict[Path, ColumnFacts]]:
    """Return how many rows a version has, and what is known of each leaf.

    Args:
        spark: The session.
        snapshot: The version.

    Raises:
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish a job.
        StorageError: the store refused.
    """
    rows = read_snapshot(spark, snapshot.store, snapshot)
    known = [_Leaf.at(snapshot.schema, path, data_type) for path, data_type in leaves(snapshot.schema)]
    found: dict[Path, ColumnFacts] = {}
    number = 0
    for start in range(0, len(known), LEAVES_PER_PASS):
        some = known[start : start + LEAVES_PER_PASS]
        number, facts = _profile_pass(rows, some)
        found.update(facts)
    return number, found


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A leaf, and the expression of its value in a row, or of an array of its values."""

    path: Path
    type: DataType
    sql: str
    is_many: bool

    @classmethod
    def at(cls, schema: StructType, path: Path, data_type: DataType) -> _Leaf:
        sql, is_many = _values("", schema, path, 1)
        return cls(path, data_type, sql, is_many)

    def sums(self) -> Iterator[str]:
        """Yield the aggregates: rows with a value, the smallest, the largest, how many differ."""
        sql, order = self.sql, word_of(self.type) not in _OPAQUE
        low, high = (f"array_min({sql})", f"array_max({sql})") if self.is_many else (sql, sql)
        wrap = "unix_micros({})" if self.type == TIMESTAMP else "{}"
        yield f"count_if(exists({sql}, x -> x IS NOT NULL))" if self.is_many else f"count({sql})"
        yield wrap.format(f"min({low})") if order else "NULL"
        yield wrap.format(f"max({high})") if order else "NULL"
        yield "NULL" if self.is_many or not order else f"approx_count_distinct({sql})"

    def sample(self) -> str:
        """Return the aggregate of some values as texts."""
        one = f"try_element_at(filter({self.sql}, x -> x IS NOT NULL), 1)" if self.is_many else self.sql
        if word_of(self.type) in _OPAQUE:
            return "array()"
        text = f"substring(CAST({one} AS string), 1, {SAMPLE_LENGTH})"
        return f"slice(sort_array(collect_set({text})), 1, {SAMPLES})"


def _values(sql: str, data_type: DataType, path: Path, depth: int) -> tuple[str, bool]:
    if not path:
        return sql, False
    child = dict(children(data_type))[path[0]]
    if isinstance(data_type, StructType):
        return _values(f"{sql}.{quote_name(path[0])}" if sql else quote_name(path[0]), child, path[1:], depth)
    items = {KEY: f"map_keys({sql})", VALUE: f"map_values({sql})"}.get(path[0], sql)
    item = f"item_{depth}"
    inner, is_many = _values(item, child, path[1:], depth + 1)
    if inner == item:
        return items, True
    made = f"transform({items}, {item} -> {inner})"
    return (f"flatten(filter({made}, x -> x IS NOT NULL))" if is_many else made), True


def _profile_pass(rows: DataFrame, some: Sequence[_Leaf]) -> tuple[int, dict[Path, ColumnFacts]]:
    sums = [f"{text} AS c{at}" for at, text in enumerate(text for leaf in some for text in leaf.sums())]
    samples = [f"{leaf.sample()} AS c{at}" for at, leaf in enumerate(some)]
    with translate_spark_errors():
        number, *told = rows.selectExpr("count(*) AS number", *sums).collect()[0]
        shown = rows.limit(SAMPLED_ROWS).selectExpr(*samples).collect()[0]
    facts = {}
    for at, leaf in enumerate(some):
        written, low, high, distinct = told[4 * at : 4 * at + 4]
        low, high = _scalar(low, leaf.type), _scalar(high, leaf.type)
        facts[leaf.path] = ColumnFacts(written, number - written, low, high, distinct, tuple(shown[at]))
    return number, facts


def _scalar(value: Any, data_type: DataType) -> Scalar | None:
    found: Scalar | None = value
    return found if value is None or data_type != TIMESTAMP else _EPOCH + timedelta(microseconds=value)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
