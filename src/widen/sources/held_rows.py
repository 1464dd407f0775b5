"""Rows that are whole in memory, read from there as often as needed, without a copy of them in a file.

Only their types are known before a plan. Columns whose values decide whether a table holds them are looked at first.

Source: docs/guide/memory.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from widen.model.value_classes import dataclass

CHUNK_ROWS = 2**17
"""The maximum number of rows of a row group of a staged file, and of rows that are converted together."""

CHUNK_BYTES = 32 * 2**20
"""The maximum number of bytes of these rows."""

ToRows = Callable[[pa.RecordBatch], Sequence[pa.Table]]
"""Returns rows in the types that Parquet sources have, those with the same types together."""


def slices(rows: pa.RecordBatch, most: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
    """Yield rows in parts that a row group of a Parquet file holds."""
    if not rows.num_rows:
        return
    count = max(1, min(most, rows.num_rows * CHUNK_BYTES // max(rows.nbytes, 1)))
    for start in range(0, rows.num_rows, count):
        yield rows.slice(start, count)


@dataclass(frozen=True, slots=True)
class RowsInMemory:
    """Rows that are whole in memory.

    Args:
        schema: The columns in the types that Parquet sources have.
        batches: The rows as they came.
        to_rows: Returns rows in the types of the schema.
    """

    schema: pa.Schema
    batches: Sequence[pa.RecordBatch]
    values: Mapping[str, int | None]
    to_rows: ToRows

    @property
    def count(self) -> int:
        """The number of rows."""
        return sum(batch.num_rows for batch in self.batches)

    @property
    def size_bytes(self) -> int:
        """The size of the rows as they came."""
        return sum(batch.nbytes for batch in self.batches)

    def split(self, count: int) -> list[RowsInMemory]:
        """Return the rows in about equal parts, in order."""
        size = -(-self.count // count)
        table = pa.Table.from_batches(self.batches)
        parts = [table.slice(start, size).to_batches() for start in range(0, self.count, size)]
        return [RowsInMemory(self.schema, part, self.values, self.to_rows) for part in parts]

    def read(self, names: frozenset[str], rows: int) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield some columns in the types of the schema, each batch with the index of its first row."""
        first = 0
        for batch in self.batches:
            # A batch without columns would not know how many rows it has.
            chosen = [name for name in batch.schema.names if name in names] or batch.schema.names[:1]
            for part in slices(batch.select(chosen), rows):
                (table,) = self.to_rows(part)
                (converted,) = table.to_batches()
                yield first, converted
                first += part.num_rows


def keep_in_memory(schema: pa.Schema, batches: Sequence[pa.RecordBatch], to_rows: ToRows) -> RowsInMemory | None:
    """Return rows to keep in memory; None if there are none, or if not their types alone say how they are stored.

    Args:
        schema: The columns as they came.
        to_rows: Returns rows in the types that Parquet sources have.
    """
    filled = [batch for batch in batches if batch.num_rows and batch.num_columns]
    if not filled:
        return None
    (empty,) = to_rows(filled[0].slice(0, 0))
    unsure = [field.name for field in schema if not _is_certain(field.type)]
    parts = (part for batch in filled for part in slices(batch.select(unsure))) if unsure else ()
    if any(len(to_rows(part)) > 1 for part in parts):
        return None
    known = {
        field.name: sum(batch.num_rows - batch.column(at).null_count for batch in filled)
        for at, field in enumerate(schema)
        if _keeps_nulls(field)
    }
    return RowsInMemory(empty.schema, filled, dict.fromkeys(empty.schema.names) | known, to_rows)


_CERTAIN: Sequence[Callable[[pa.DataType], bool]] = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_date32),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view),
    *(pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary),
    lambda found: pa.types.is_timestamp(found) and found.unit == "us",
    lambda found: pa.types.is_decimal128(found) and found.scale >= 0,
)
"""The types that a table holds without a loss."""


def _is_certain(found: pa.DataType) -> bool:
    if pa.types.is_dictionary(found):
        return _is_certain(found.value_type)
    if pa.types.is_struct(found) or pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_map(found):
        return all(_is_certain(found.field(at).type) for at in range(found.num_fields))
    return any(is_such(found) for is_such in _CERTAIN)


def _keeps_nulls(field: pa.Field) -> bool:
    """Return whether a column is stored with as many nulls: NaN may become null, dictionaries hide theirs."""
    found = field.type
    return _is_certain(found) and not (pa.types.is_floating(found) or pa.types.is_dictionary(found))
