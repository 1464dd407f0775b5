"""Records of typed sources with a text that is not UTF-8: such a record is corrupt, as in JSON and CSV.

Who reads the texts of a batch checks them. Only if one is not UTF-8, the batch is split: its records are read without
those records, and these are texts that are not records, so that they go into the column of corrupt records.

Source: docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import field, replace
from typing import TypeVar

from widen.batches.corrupt_texts import NOT_UTF8
from widen.batches.frame_batch import TypedBatch
from widen.batches.held_batch import HeldBatch
from widen.batches.parquet_batch import ParquetBatch
from widen.batches.text_batch import BatchResult, ContractReport, TextBatch, TextReaders, union_rows
from widen.batches.text_tasks import BatchWriteSpec
from widen.errors import CorruptFile
from widen.evolution.plan import BadFile, ReadAs
from widen.evolution.policy import Policy
from widen.frames.table_writers import TableRows, TableWriter
from widen.json.field_rules import FileFields
from widen.json.observation import Observation, merge_observations
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.proof.proof_files import FileValueReader
from widen.proof.record_digests import DigestSum
from widen.rows.row_builder import ORIGIN_FIELDS
from widen.sources.converted_files import ConvertedFiles
from widen.sources.listing import SourceFile, file_key_column, source_file_key
from widen.spark.engine import Rows, Session
from widen.spark.spark_types import DataFrame, F
from widen.verification.converted_records import ensure_converted
from widen.verification.records import Side, TaskReader, TaskShare

_T = TypeVar("_T")


@dataclass
class _Split:
    """Holds the batch of the corrupt records, once one is found, and the folders of the files that hold them."""

    typed: TypedBatch | ParquetBatch | HeldBatch
    corrupt: TextBatch | None = None
    folders: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class CheckedBatch:
    """A batch of typed records. Records with a text that is not UTF-8 are corrupt.

    Args:
        converted: The Parquet files that the records are read from; None if these are the files of the source.
    """

    typed: TypedBatch | ParquetBatch | HeldBatch
    name: str
    file_fields: FileFields | None = None
    bad_files: tuple[BadFile, ...] = ()
    source_table: str = ""
    read_as: tuple[ReadAs, ...] = ()
    converted: ConvertedFiles | None = None
    _split: _Split = field(init=False)

    has_types = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "_split", _Split(self.typed))

    @property
    def spark(self) -> Session:
        """The session that reads the records."""
        return self.typed.spark

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the files that are not read."""
        return self.typed.left_out

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields that records get from their files."""
        return self.typed.names

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that are read."""
        return self.typed.files

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what the types say; see `Batch`."""
        return self._checked(lambda: self._split.typed.prior_observation(base, policy))

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return the observation of all records; see `Batch`."""
        seen = self._checked(lambda: self._split.typed.observe(attempt))
        corrupt = self._split.corrupt
        return seen if corrupt is None else merge_observations([seen, corrupt.observe(attempt)])

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Write the records; see `Batch`."""
        result = self._checked(lambda: self._split.typed.write(attempt, writer))
        if self.converted is not None:
            result = replace(result, quarantined_records=_with_origins(result.quarantined_records, self.converted))
        corrupt = self._split.corrupt
        if corrupt is None:
            return result
        with ExitStack() as undo:
            undo.callback(writer.discard, result.files)
            rest = corrupt.write(attempt, writer)
            undo.pop_all()
        self._split.folders.update(_folder_of(file.path) for file in rest.files)
        return BatchResult(
            [*result.files, *rest.files],
            merge_observations([result.seen, rest.seen]),
            union_rows(result.quarantined_records, rest.quarantined_records),
            result.is_complete and rest.is_complete,
        )

    def find_broken(self, attempt: BatchWriteSpec, writer: TableWriter, *, by_rules: bool = True) -> Rows | None:
        """Return the records that violate a rule; see `Batch`."""
        return self._checked(lambda: self._split.typed.find_broken(attempt, writer, by_rules=by_rules))

    def check_contract(self, contract: object, policy: Policy) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        report = self._checked(lambda: self._split.typed.check_contract(contract, policy))
        corrupt = self._split.corrupt
        return report if corrupt is None else report.merged(corrupt.check_contract(contract, policy))

    def prepare_proof(self) -> None:
        """Get ready for the proof; see `Batch`."""
        self.typed.prepare_proof()

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records; see `Batch`."""
        if self.converted is not None:
            ensure_converted(self.converted)
        side = self._split.typed.source_digests(schema, policy)
        corrupt = self._split.corrupt
        return side if corrupt is None else _join_sides(side, corrupt.source_digests(schema, policy))

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows; see `Batch`."""
        typed, corrupt = self._split.typed, self._split.corrupt
        if corrupt is None:
            return typed.table_digests(table, paths, policy, quarantined_records)
        own = [path for path in paths if _folder_of(path) in self._split.folders]
        rest = [path for path in paths if _folder_of(path) not in self._split.folders]
        side = typed.table_digests(table, rest, policy, quarantined_records)
        return _join_sides(side, corrupt.table_digests(table, own, policy, None))

    def _checked(self, read: Callable[[], _T]) -> _T:
        if self._split.corrupt is None:
            try:
                return read()
            except CorruptFile as error:
                if error.fields["reason"] != NOT_UTF8:
                    raise
            typed, texts = self._split.typed.split_corrupt()
            fields = self.file_fields
            values = FileValueReader(fields.has_folders, fields.loaded_at) if fields else None
            readers = TextReaders(lambda: texts)
            corrupt = TextBatch(self.spark, readers, self.name, (), fields, self.names, file_values=values)
            self._split.typed, self._split.corrupt = typed, corrupt
        return read()


def _with_origins(quarantined_records: Rows | None, converted: ConvertedFiles) -> Rows | None:
    """Return quarantined records with the files of the source instead of those that Spark has read.

    A file that was split has no order that Spark knows, so that the positions of its records are 0.
    """
    if not isinstance(quarantined_records, DataFrame):
        return quarantined_records  # this process has found their origins
    own = {source_file_key(each.file.uri): each for each in converted.files}
    _, file, position, _ = ORIGIN_FIELDS
    key = file_key_column(F.col(file))
    names = F.create_map(*(F.lit(text) for uri, each in own.items() for text in (uri, each.source)))
    split = [uri for uri, each in own.items() if each.numbers]
    return quarantined_records.withColumns(
        {
            file: F.coalesce(names[key], F.col(file)),
            position: F.when(key.isin(split), 0).otherwise(F.col(position)),
        }
    )


def _folder_of(path: str) -> str:
    return path.partition("/")[0]


def _join_sides(one: Side, other: Side) -> Side:
    """Return the records of both."""

    def digests() -> DataFrame:
        return one.digests().unionAll(other.digests())

    if not (one.has_sums and other.has_sums):
        return Side(digests)
    readers = [side.reader for side in (one, other) if side.reader is not None]
    reader = readers[0] if readers else None
    if len(readers) > 1:
        count = max(each.count for each in readers)
        is_local = any(each.is_local for each in readers)
        reader = TaskReader(readers[0].spark, count, _JoinedReaders(tuple(each.read for each in readers)), is_local)
    return Side(digests, one.parts + other.parts, reader)


@dataclass(frozen=True, slots=True)
class _JoinedReaders:
    """Sums the results of several readers for their shares of a task. Picklable."""

    reads: tuple[Callable[[TaskShare], DigestSum], ...]

    def __call__(self, share: TaskShare) -> DigestSum:
        """Return the sum of a share; see `TaskReader`."""
        total = DigestSum(share.limit)
        for read in self.reads:
            found = read(share)
            total.merge(found.digest, found.records, found.values, found.converted)
        return total
