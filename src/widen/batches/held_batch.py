"""Rows in memory as a batch: columns that go to the table as they are are written from memory, in threads.

Everything else reads the rows from files, to which they are written first: it converts values record by record, in
several processes, or compares them with the table.

Source: docs/guide/memory.md
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import partial, reduce

import pyarrow as pa

from widen.batches.column_copy import ColumnCopy, CopiedRows, PathFields, SourceFooter, write_typed_rows
from widen.batches.column_values import fit
from widen.batches.corrupt_texts import ensure_utf8
from widen.batches.frame_batch import TypedBatch
from widen.batches.parquet_batch import ColumnPart, ParquetBatch, ensure_case_distinct, to_read_schema
from widen.batches.text_batch import BatchResult, ContractReport
from widen.batches.text_tasks import BatchWriteSpec
from widen.evolution.plan import BadFile, ReadAs
from widen.evolution.policy import Policy
from widen.files.arrow_types import stored_type, to_arrow_schema
from widen.frames.table_writers import TableRows, TableWriter
from widen.json.observation import Observation
from widen.log.commit_outcome import discard_folder
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.sources.file_ranges import RawTexts
from widen.sources.held_rows import CHUNK_ROWS, RowsInMemory
from widen.sources.listing import SourceFile
from widen.spark.engine import Rows, Session, Unsupported, is_local, translate_os_errors
from widen.verification.records import Side

_THREAD_BYTES = 64 * 2**20
"""A thread writes a file of about this many bytes of rows, or more."""


@dataclass(frozen=True)
class HeldBatch:
    """A batch of rows that are whole in memory.

    Args:
        here: The same batch, whose only part reads the rows from memory.
        stage: Writes the rows to files, once, and returns the batch that reads them from there.
    """

    here: ParquetBatch
    rows: RowsInMemory
    stage: Callable[[], ParquetBatch | TypedBatch]
    bad_files: tuple[BadFile, ...] = ()
    source_table: str = ""
    read_as: tuple[ReadAs, ...] = ()

    has_types = True
    left_out: tuple[str, ...] = ()
    files: tuple[SourceFile, ...] = ()

    @property
    def spark(self) -> Session:
        """The session that reads the records."""
        return self.here.spark

    @property
    def name(self) -> str:
        """The name of the source in errors."""
        return self.here.name

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields that records get from their files."""
        return self.here.names

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what the types say, and how many values there are if the table changes; see `Batch`."""
        return self.here.prior_observation(base, policy)

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return the observation of all values; see `Batch`."""
        return self.here.observe(attempt)

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Write the rows; see `Batch`."""
        copies = self._find_copies(attempt, writer)
        if any(copy.conversion is not None for copy in copies) or not copies:
            return self.stage().write(attempt, writer)
        return self.here.copy(copies, writer, partial(_write, self.rows))

    def _find_copies(self, attempt: BatchWriteSpec, writer: TableWriter) -> list[ColumnCopy]:
        if not is_local(self.spark):
            return []
        try:
            return self.here.find_copies(attempt, writer)
        except Unsupported:
            return []

    def find_broken(self, attempt: BatchWriteSpec, writer: TableWriter, *, by_rules: bool = True) -> None:
        """Return None: the types of the source decide the columns, regardless of the records."""

    def check_contract(self, contract: object, policy: Policy) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        return self.stage().check_contract(contract, policy)

    def split_corrupt(self) -> tuple[TypedBatch | ParquetBatch, RawTexts]:
        """Return the batch without the records with a text that is not UTF-8, and these as a raw batch."""
        return self.stage().split_corrupt()

    def prepare_proof(self) -> None:
        """Write the rows to files, which the proof reads; see `Batch`."""
        self.stage().prepare_proof()

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records; see `Batch`."""
        return self.stage().source_digests(schema, policy)

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows; see `Batch`."""
        return self.stage().table_digests(table, paths, policy, quarantined_records)


def hold_part(rows: RowsInMemory, name: str) -> ColumnPart:
    """Return rows in memory as a part of a batch, as if a file had them."""
    columns = [each.with_type(stored_type(each.type)) for each in rows.schema]
    schema = to_read_schema(columns, name)
    ensure_case_distinct([schema])
    file = SourceFile(name, rows.size_bytes, uri=name)
    footer = SourceFooter([], rows.count, {(column,): values for column, values in rows.values.items()})
    return ColumnPart((file,), schema, (footer,), PathFields(), read_rows=partial(_read_rows, rows))


def _read_rows(
    rows: RowsInMemory, file: SourceFile, source: StructType, most: int
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield some or all columns of the rows; see `RowReader`."""
    return _read_columns(rows, to_arrow_schema(source), frozenset(source.names), most, file.uri)


def _read_columns(
    rows: RowsInMemory, schema: pa.Schema, names: frozenset[str], most: int, name: str
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for first, batch in rows.read(names, most):
        found = {key: values for key, values in zip(batch.schema.names, batch.columns, strict=True) if key in names}
        ensure_utf8(found.values(), name)
        columns = [fit(found.get(each.name), each.type, batch.num_rows) for each in schema]
        yield first, pa.RecordBatch.from_arrays(columns, schema=schema)


def _write(rows: RowsInMemory, copy: ColumnCopy) -> CopiedRows:
    """Write the files of the table, and return them. On failure, they are deleted where the store allows it."""
    count = max(1, min(os.cpu_count() or 1, rows.size_bytes // _THREAD_BYTES))

    def write(part: RowsInMemory) -> CopiedRows:
        read = _read_columns(part, copy.schema, copy.copied, CHUNK_ROWS, copy.sink.job)
        return write_typed_rows(copy.sink, copy.schema, ((batch, CopiedRows()) for _, batch in read))

    with ExitStack() as undo, translate_os_errors():
        undo.callback(discard_folder, copy.sink.store, copy.sink.job)
        with ThreadPoolExecutor(count, "widen-held") as pool:
            written = [pool.submit(copy_context().run, write, part) for part in rows.split(count)]
        copied = reduce(CopiedRows.merged, [each.result() for each in written])
        undo.pop_all()
    return copied
