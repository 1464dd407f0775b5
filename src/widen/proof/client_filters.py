"""Filters of a client, compared with the rows that it returns without a filter: the proof that it skips no row.

From the unfiltered rows follows how many rows each filter at the bounds of a column must return. A client that compares
rounded bounds, or a file in another type, returns fewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.model.value_classes import dataclass

EQUAL, MORE, LESS, NULL = "=", ">", "<", "is null"
Counter: TypeAlias = Callable[[str, str, pa.Scalar | None], int]
"""Returns how many rows of a client fulfil a comparison of a column with a constant."""


@dataclass
class ColumnRange:
    """What the unfiltered rows say of one column.

    Args:
        nan: How many are NaN, which some clients order above every number, and others nowhere.
        low: The smallest value, and how often it is there; None without a value.
        high: The greatest value likewise.
    """

    rows: int = 0
    nulls: int = 0
    nan: int = 0
    low: tuple[pa.Scalar, int] | None = None
    high: tuple[pa.Scalar, int] | None = None

    def add(self, values: pa.Array) -> None:
        """Add the values of a batch."""
        self.rows += len(values)
        self.nulls += values.null_count
        if pa.types.is_floating(values.type):
            is_nan = pc.fill_null(pc.is_nan(values), False)
            self.nan += pc.sum(is_nan).as_py() or 0
            values = values.filter(pc.invert(is_nan))
        values = values.drop_null()
        if not len(values):
            return
        bounds = pc.min_max(values)
        self.low = _extreme(self.low, bounds["min"], values, pc.less)
        self.high = _extreme(self.high, bounds["max"], values, pc.greater)

    def expected(self) -> Iterator[tuple[str, pa.Scalar | None, frozenset[int]]]:
        """Yield filters: operator, constant, and the numbers of rows that are right."""
        yield NULL, None, frozenset((self.nulls,))
        if self.low is None or self.high is None:
            return
        numbers = self.rows - self.nulls - self.nan
        yield EQUAL, self.low[0], frozenset((self.low[1],))
        yield EQUAL, self.high[0], frozenset((self.high[1],))
        more = numbers - self.low[1]
        yield MORE, self.low[0], frozenset((more, more + self.nan))
        yield LESS, self.high[0], frozenset((numbers - self.high[1],))


def _extreme(
    known: tuple[pa.Scalar, int] | None, found: pa.Scalar, values: pa.Array, is_beyond: Callable[..., pa.Scalar]
) -> tuple[pa.Scalar, int]:
    count = pc.sum(pc.equal(values, found)).as_py()
    if known is None or is_beyond(found, known[0]).as_py():
        return found, count
    return (known[0], known[1] + count) if pc.equal(found, known[0]).as_py() else known


class FilterProof:
    """Collects the ranges of columns while rows are read, and then asks for filtered rows."""

    def __init__(self) -> None:
        self.rows = 0
        self.columns: dict[str, ColumnRange] = {}

    def watch(self, batches: Iterable[pa.RecordBatch | pa.Table]) -> Iterator[pa.RecordBatch | pa.Table]:
        """Yield batches, and note what they say of each column that can be compared."""
        for batch in batches:
            self.rows += batch.num_rows
            for field in batch.schema:
                if is_comparable(field.type):
                    values = batch.column(field.name)
                    chunk = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
                    self.columns.setdefault(field.name, ColumnRange()).add(plain_values(chunk))
            yield batch

    def find_lost(self, count: Counter) -> list[str]:
        """Return the filters that return another number of rows than they must."""
        return [
            f"{name} {operator}{'' if constant is None else f' {constant}'}: {found} instead of {max(right)} rows"
            for name, each in self.columns.items()
            for operator, constant, right in each.expected()
            if (found := count(name, operator, constant)) not in right
        ]


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether filters compare values of a type with constants."""
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_integer(plain)
        or pa.types.is_floating(plain)
        or pa.types.is_decimal(plain)
        or pa.types.is_date(plain)
        or pa.types.is_timestamp(plain)
        or _is_text(plain)
    )


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view())


def plain_values(values: pa.Array) -> pa.Array:
    """Return values in a type that compute functions have."""
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.large_string()) if _is_text(values.type) else values


# How clients count.


def count_in_dataset(dataset: Any) -> Counter:
    """Return how an Arrow dataset counts."""

    def count(name: str, operator: str, constant: pa.Scalar | None) -> int:
        column = pc.field(name)
        kind = dataset.schema.field(name).type
        return int(dataset.count_rows(filter=_compare(column, operator, constant and constant.cast(kind))))

    return count


def _compare(column: Any, operator: str, constant: Any) -> Any:
    if operator == NULL:
        return column.is_null()
    return {EQUAL: column == constant, MORE: column > constant, LESS: column < constant}[operator]


def count_in_polars(frame: Any) -> Counter:
    """Return how a lazy frame of polars counts."""
    polars = import_module("polars")

    def count(name: str, operator: str, constant: pa.Scalar | None) -> int:
        value = None if constant is None else polars.from_arrow(pa.array([constant.as_py()], constant.type))[0]
        literal = polars.lit(value, dtype=frame.collect_schema()[name])
        return int(frame.filter(_compare(polars.col(name), operator, literal)).select(polars.len()).collect().item())

    return count


def count_in_sql(run: Callable[[str], int], table: str) -> Counter:
    """Return how SQL of DataFusion counts."""

    def count(name: str, operator: str, constant: pa.Scalar | None) -> int:
        column = '"' + name.replace('"', '""') + '"'
        right = "" if constant is None else f" {_sql_constant(constant)}"
        return run(f"SELECT count(*) FROM {table} WHERE {column} {operator}{right}")

    return count


def _sql_constant(constant: pa.Scalar) -> str:
    kind, text = constant.type, str(constant.cast(pa.string()))
    if _is_text(kind):
        return "'" + text.replace("'", "''") + "'"
    if pa.types.is_timestamp(kind):
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        unit = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}[kind.unit]
        return f"arrow_cast('{text}', 'Timestamp({unit}, {zone})')"
    if pa.types.is_decimal(kind):
        return f"CAST('{text}' AS DECIMAL({kind.precision}, {kind.scale}))"
    if pa.types.is_floating(kind):
        return f"CAST('{constant.as_py()!r}' AS DOUBLE)"
    return f"CAST('{text}' AS DATE)" if pa.types.is_date(kind) else text


def count_in_pyiceberg(scan: Callable[..., Any]) -> Counter:
    """Return how a table of PyIceberg counts.

    Args:
        scan: Starts a scan with a ``row_filter``.
    """
    terms = import_module("pyiceberg.expressions")

    def count(name: str, operator: str, constant: pa.Scalar | None) -> int:
        if constant is None:
            return sum(batch.num_rows for batch in scan(row_filter=terms.IsNull(name)).to_arrow_batch_reader())
        value = constant.as_py()
        value = value.isoformat() if hasattr(value, "isoformat") else value
        term = {EQUAL: terms.EqualTo, MORE: terms.GreaterThan, LESS: terms.LessThan}[operator]
        return sum(batch.num_rows for batch in scan(row_filter=term(name, value)).to_arrow_batch_reader())

    return count
