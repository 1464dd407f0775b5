"""Read a table with one reader of another client, and print the digest of what it returns.

Each reader runs in a process of its own, since a client may crash, or need more memory than it should. The process
takes its question as JSON from the standard input.

Source: docs/guide/hand-over.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, TypeAlias

import pyarrow as pa

from widen.proof.column_digests import digest_batches

WHOLE_TABLE_ROWS = 1_000_000
"""The most rows for which readers that return the whole table at once are called, too: they hold it in memory."""

Question: TypeAlias = Mapping[str, Any]
Answer: TypeAlias = tuple[Iterable[str], Iterable[Any]]
"""The names of the columns, and batches."""


def run_readers() -> None:
    """Answer the question on the standard input."""
    asked = json.load(sys.stdin)
    columns, batches = _READERS[asked["client"]][asked["reader"]](asked)
    sys.stdout.write(f"\n{digest_batches(batches, columns).to_json()}\n")


def find_readers(client: str, rows: int) -> list[str]:
    """Return the readers of a client with which a table of so many rows is read."""
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
    # The types of Arrow tell integers beside nulls from doubles, and null from NaN; those of numpy do not.
    found = _delta_table(asked).to_pandas(types_mapper=import_module("pandas").ArrowDtype)
    return found.columns, [pa.Table.from_pandas(found, preserve_index=False)]


def _query_builder(asked: Question) -> Answer:
    builder = import_module("deltalake").QueryBuilder().register("handed_over", _delta_table(asked))
    return _streamed(builder.execute("SELECT * FROM handed_over"))


def _scan_delta(asked: Question) -> Answer:
    words = {"version": asked["version"], "storage_options": asked["settings"] or None}
    rows = import_module("polars").scan_delta(asked["location"], **words)
    frames = rows.collect_batches() if hasattr(rows, "collect_batches") else [rows.collect()]
    return rows.collect_schema().names(), (frame.to_arrow() for frame in frames)


def _read_delta(asked: Question) -> Answer:
    words = {"version": asked["version"], "storage_options": asked["settings"] or None}
    found = import_module("polars").read_delta(asked["location"], **words)
    return found.columns, [found.to_arrow()]


def _iceberg_scan(asked: Question) -> Any:
    catalog = import_module("pyiceberg.catalog").load_catalog(asked["name"], **asked["properties"])
    return catalog.load_table(asked["identifier"]).scan()


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
_WHOLE = frozenset({"to_pandas", "read_delta", "to_arrow"})

if __name__ == "__main__":
    run_readers()
