"""Digests of the values of a table: exact, in any order of rows, and batch by batch in bounded memory.

Each value becomes 64 bits. A column is the sum of its values, and the rows are the sum of their rows, so values that
belong to different rows are also found. Null, NaN, 0.0 and -0.0 differ. Integers of all widths, ``float`` and
``double``, and Arrow's different layouts of one kind of text or list are alike, so that clients can be compared.

Source: docs/guide/hand-over.md
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from hashlib import blake2b
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.model.value_classes import dataclass
from widen.proof.client_filters import (
    Counter,
    FilterProof,
    count_in_dataset,
    count_in_polars,
    count_in_pyiceberg,
    count_in_sql,
)

_MASK = 2**64 - 1
_BATCH_ROWS = 65_536


@dataclass
class TableDigest:
    """The digest of some rows; the digests of parts of a table add up to the digest of the table.

    Args:
        records: The digest of the rows as wholes.
    """

    rows: int = 0
    columns: dict[str, int] = field(default_factory=dict)
    records: int = 0

    def add(self, batch: pa.RecordBatch | pa.Table) -> None:
        """Add the rows of a batch.

        Raises:
            pyarrow.ArrowInvalid: the batch has other columns than those before.
        """
        names = batch.schema.names
        if self.columns and set(names) != self.columns.keys():
            raise pa.ArrowInvalid(f"a batch has the columns {names}")
        for part in batch.slice(0).to_batches(_BATCH_ROWS) if isinstance(batch, pa.Table) else _slices(batch):
            self._add(part)
        for name in names:  # a table without rows also has columns
            self.columns.setdefault(name, 0)

    def _add(self, batch: pa.RecordBatch) -> None:
        records = pa.repeat(_word(0), batch.num_rows)
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            words = hash_values(values)
            self.columns[name] = (self.columns.get(name, 0) + _total(words)) & _MASK
            # Mixed with the name, since a plain sum would not show two columns with their values exchanged.
            records = pc.add(records, _mixed(words, f"column {name}"))
        self.rows += batch.num_rows
        self.records = (self.records + _total(_mixed(records, "record"))) & _MASK

    def merge(self, other: TableDigest) -> None:
        """Add the rows of another digest."""
        self.rows += other.rows
        self.records = (self.records + other.records) & _MASK
        for name, digest in other.columns.items():
            self.columns[name] = (self.columns.get(name, 0) + digest) & _MASK

    def to_json(self) -> str:
        """Return the digest as text, for another process."""
        return json.dumps({"rows": self.rows, "columns": self.columns, "records": self.records})

    @staticmethod
    def from_json(text: str) -> TableDigest:
        """Return the digest of a text that `to_json` made."""
        return TableDigest(**json.loads(text))


def digest_batches(batches: Iterable[pa.RecordBatch | pa.Table], schema: Iterable[str] = ()) -> TableDigest:
    """Return the digest of batches.

    Args:
        schema: The names of the columns, for an answer without batches.
    """
    digest = TableDigest(columns=dict.fromkeys(schema, 0))
    for batch in batches:
        digest.add(batch)
    return digest


def describe_difference(expected: TableDigest, found: TableDigest) -> str | None:
    """Return what distinguishes the rows found from those expected, as the end of a sentence; None if they agree."""
    missing = [name for name in expected.columns if name not in found.columns]
    extra = [name for name in found.columns if name not in expected.columns]
    if missing or extra:
        texts = [f"no column {_names(missing)}"] * bool(missing) + [f"the column {_names(extra)}"] * bool(extra)
        return f"returns {' but '.join(texts)}"
    if found.rows != expected.rows:
        return f"returns {found.rows} rows, and the table has {expected.rows}"
    if wrong := [name for name, digest in expected.columns.items() if found.columns[name] != digest]:
        return f"returns wrong values in {_names(wrong)}"
    return None if found.records == expected.records else "returns values of different rows as one row"


def _names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _slices(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (batch.slice(start, _BATCH_ROWS) for start in range(0, batch.num_rows, _BATCH_ROWS))


# ---- one value -------------------------------------------------------------------------------------


def hash_values(values: pa.Array) -> pa.Array:
    """Return 64 bits for each value of an array, also for nulls.

    Raises:
        pyarrow.ArrowInvalid: a timestamp has a part of a microsecond, or an integer exceeds 64 bits with a sign.
    """
    values = _plain(values)
    kind = values.type
    if pa.types.is_struct(kind):
        names, parts = [each.name for each in kind], values.flatten()
        words = pa.repeat(_word("struct"), len(values))
        for name, part in zip(names, parts, strict=True):
            words = pc.add(words, _mixed(hash_values(part), f"field {name}"))
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        words = _hash_lists(values)
    else:
        words = _mixed(*_bits(values))
    return pc.if_else(pc.is_null(values), _word("null"), words)


def _plain(values: pa.Array) -> pa.Array:
    """Return the values in one layout for each kind of type."""
    if isinstance(values, pa.ExtensionArray):
        return _plain(values.storage)
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain(values.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return _plain(pc.run_end_decode(values))
    if pa.types.is_map(kind):
        entry = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return values.cast(pa.list_(entry))
    target = next((target for is_kind, target in _LAYOUTS if is_kind(kind)), None)
    if target is not None:
        return values.cast(target)
    if pa.types.is_fixed_size_list(kind) or str(kind).startswith(("list_view", "large_list_view")):
        return values.cast(pa.large_list(kind.value_field))
    return values


_LAYOUTS = (
    (pa.types.is_large_string, pa.string()),
    (pa.types.is_string_view, pa.string()),
    (pa.types.is_large_binary, pa.binary()),
    (pa.types.is_binary_view, pa.binary()),
    (pa.types.is_fixed_size_binary, pa.binary()),
    (pa.types.is_date64, pa.date32()),
    (pa.types.is_float16, pa.float64()),
    (pa.types.is_float32, pa.float64()),
    (pa.types.is_integer, pa.int64()),
)


def _bits(values: pa.Array) -> tuple[pa.Array, str]:
    """Return 64 bits for each value of a type without parts (any bits for a null), and the name of its kind."""
    kind = values.type
    if pa.types.is_null(kind):
        return pa.repeat(_word(0), len(values)), "null"
    if pa.types.is_floating(kind):
        # By their bits, so that 0.0 and -0.0 differ. Clients make NaNs with different bits, so all of them are one.
        words = pc.fill_null(values, 0.0).view(pa.uint64())
        return pc.if_else(pc.fill_null(pc.is_nan(values), False), _word("NaN"), words), "float"
    if pa.types.is_integer(kind):
        return pc.fill_null(values, 0).view(pa.uint64()), "integer"
    if pa.types.is_boolean(kind):
        return pc.fill_null(values, False).cast(pa.uint64()), "boolean"
    if pa.types.is_timestamp(kind):
        # Clients return other units of one column; the cast fails if it would lose digits.
        micros = values.cast(pa.timestamp("us", kind.tz)).view(pa.int64())
        return pc.fill_null(micros, 0).view(pa.uint64()), "timestamp" if kind.tz else "timestamp without zone"
    if pa.types.is_date32(kind):
        return pc.fill_null(values.view(pa.int32()), 0).cast(pa.int64()).view(pa.uint64()), "date"
    if pa.types.is_decimal(kind):
        return _hash_distinct(values.cast(pa.string())), f"decimal of {kind.scale} digits"
    is_bytes = pa.types.is_string(kind) or pa.types.is_binary(kind)
    return _hash_distinct(values), "binary" if pa.types.is_binary(kind) else "string" if is_bytes else str(kind)


def _hash_distinct(values: pa.Array) -> pa.Array:
    # Arrow has no digest of texts, so Python makes one of each different text; most columns repeat theirs.
    encoded = values.dictionary_encode()
    words = pa.array([_digest(_to_bytes(value)) for value in encoded.dictionary.to_pylist()], pa.uint64())
    return pc.fill_null(words.take(encoded.indices), 0)


def _to_bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _hash_lists(values: pa.Array) -> pa.Array:
    """Return hash words for lists, from their lengths and from each item with its position."""
    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int64())
    ends = pc.cumulative_sum(lengths)
    starts = pc.subtract(ends, lengths)
    items = hash_values(values.flatten())
    offsets = pa.concat_arrays([pa.array([0], pa.int64()), ends])
    owners = pc.list_parent_indices(pa.LargeListArray.from_arrays(offsets, items))
    ones = pa.repeat(pa.scalar(1, pa.int64()), len(items))
    positions = pc.subtract(pc.cumulative_sum(ones), starts.take(owners)).view(pa.uint64())
    # With its position, or [1, 2] would be [2, 1]; with the length below, or [0] could be [].
    items = _mixed(pc.bit_wise_xor(items, _mixed(positions, "position")), "item")
    sums = pa.concat_arrays([pa.array([0], pa.uint64()), pc.cumulative_sum(items)])
    inside = pc.subtract(sums.take(ends), sums.take(starts))
    return _mixed(pc.add(inside, _mixed(lengths.view(pa.uint64()), "length")), "list")


def _mixed(words: pa.Array, salt: str) -> pa.Array:
    """Return words whose bits are mixed by the finalizer of SplitMix64, differently for each salt."""
    words = pc.bit_wise_xor(words, _word(salt))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = pc.multiply(pc.bit_wise_xor(words, pc.shift_right(words, _word(shift))), _word(factor))
    return pc.bit_wise_xor(words, pc.shift_right(words, _word(31)))


def _word(value: int | str) -> pa.Scalar:
    return pa.scalar(value if isinstance(value, int) else _digest(value.encode()), pa.uint64())


def _digest(text: bytes) -> int:
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "little")


def _total(words: pa.Array) -> int:
    return int(pc.sum(words, min_count=0).as_py()) & _MASK


WHOLE_TABLE_ROWS = 1_000_000
"""Up to this many rows, readers that return the whole table at once are also called: they hold it in memory."""

Question: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = tuple[Iterable[str], Iterable[Any]]
"""The names of the columns, and batches."""


def run_readers() -> None:
    """Answer the question on the standard input: the filters that lose rows, and the digest of all rows."""
    asked = json.load(sys.stdin)
    columns, batches = _READERS[asked["client"]][asked["reader"]](asked)
    filters, counter = FilterProof(), _COUNTERS.get(asked["reader"])
    digest = digest_batches(batches if counter is None else filters.watch(batches), columns)
    lost = [] if counter is None else filters.find_lost(counter(asked))
    sys.stdout.write(f"\n{json.dumps(lost)}\n{digest.to_json()}\n")
    sys.stdout.flush()
    os._exit(0)  # threads of the clients that outlive their reads can abort a process that ends in order


def find_readers(client: str, rows: int) -> list[str]:
    """Return the readers of a client that can read a table of so many rows."""
    return [
        name
        for name in _READERS[client]
        if name not in _WHOLE or (rows <= WHOLE_TABLE_ROWS and (name != "to_pandas" or find_spec("pandas") is not None))
    ]


def _delta_table(asked: Question) -> Any:
    words = {"version": asked["version"], "storage_options": asked["settings"] or None}
    return import_module("deltalake").DeltaTable(asked["location"], **words)


def _to_pyarrow_dataset(asked: Question) -> Answer:
    found = _delta_table(asked).to_pyarrow_dataset()
    return found.schema.names, found.to_batches()


def _to_pandas(asked: Question) -> Answer:
    # Arrow's types distinguish integers beside nulls from doubles, and null from NaN; numpy's types do not.
    found = _delta_table(asked).to_pandas(types_mapper=import_module("pandas").ArrowDtype)
    return found.columns, [pa.Table.from_pandas(found, preserve_index=False)]


def _query_builder(asked: Question) -> Answer:
    builder = import_module("deltalake").QueryBuilder().register("handed_over", _delta_table(asked))
    return _streamed(builder.execute("SELECT * FROM handed_over"))


def _count_in_queries(asked: Question) -> Counter:
    builder = import_module("deltalake").QueryBuilder().register("handed_over", _delta_table(asked))
    return count_in_sql(lambda query: pa.table(builder.execute(query).read_all()).column(0)[0].as_py(), "handed_over")


def _lazy_frame(asked: Question) -> Any:
    words = {"version": asked["version"], "storage_options": asked["settings"] or None}
    return import_module("polars").scan_delta(asked["location"], **words)


def _scan_delta(asked: Question) -> Answer:
    rows = _lazy_frame(asked)
    frames = rows.collect_batches() if hasattr(rows, "collect_batches") else [rows.collect()]
    return rows.collect_schema().names(), (frame.to_arrow() for frame in frames)


def _read_delta(asked: Question) -> Answer:
    words = {"version": asked["version"], "storage_options": asked["settings"] or None}
    found = import_module("polars").read_delta(asked["location"], **words)
    return found.columns, [found.to_arrow()]


def _iceberg_table(asked: Question) -> Any:
    catalog = import_module("pyiceberg.catalog").load_catalog(asked["name"], **asked["properties"])
    return catalog.load_table(asked["identifier"])


def _iceberg_scan(asked: Question) -> Any:
    return _iceberg_table(asked).scan()


def _to_arrow_batch_reader(asked: Question) -> Answer:
    return _streamed(_iceberg_scan(asked).to_arrow_batch_reader())


def _to_arrow(asked: Question) -> Answer:
    found = _iceberg_scan(asked).to_arrow()
    return found.column_names, [found]


def _streamed(batches: Any) -> Answer:
    reader = pa.RecordBatchReader.from_stream(batches)
    return reader.schema.names, reader


_READERS: Mapping[str, Mapping[str, Callable[[Question], Answer]]] = {
    "deltalake": {
        "to_pyarrow_dataset": _to_pyarrow_dataset,
        "to_pandas": _to_pandas,
        "QueryBuilder": _query_builder,
    },
    "polars": {"scan_delta": _scan_delta, "read_delta": _read_delta},
    "pyiceberg": {"to_arrow_batch_reader": _to_arrow_batch_reader, "to_arrow": _to_arrow},
}
_COUNTERS: Mapping[str, Callable[[Question], Counter]] = {
    "to_pyarrow_dataset": lambda asked: count_in_dataset(_delta_table(asked).to_pyarrow_dataset()),
    "QueryBuilder": _count_in_queries,
    "scan_delta": lambda asked: count_in_polars(_lazy_frame(asked)),
    "to_arrow_batch_reader": lambda asked: count_in_pyiceberg(_iceberg_table(asked).scan),
}
"""How the readers that filter count rows."""
_WHOLE = frozenset({"to_pandas", "read_delta", "to_arrow"})

if __name__ == "__main__":
    run_readers()
