"""A Delta table as the source of a flow.

Source: docs/guide/flow.md; PROTOCOL.md#add-file-and-remove-file, #add-cdc-file
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

from widen.errors import SourceHistoryLost, VersionNotFound
from widen.frames.scan import read_data_files, read_snapshot
from widen.log.file_list import concat_files, from_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.log.version_changes import VersionChanges, missing_files, removed_file, version_changes
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_mapping import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from widen.protocol.table_features import supported_features
from widen.schema.growth import is_readable_in
from widen.spark.spark_types import DataFrame, SparkSession
from widen.targets.table_format import (
    FlowSource,
    RangeLimits,
    SourceVersion,
    TableLocation,
    VersionRange,
    split_files,
    take_until_full,
)


@dataclass(frozen=True, slots=True)
class DeltaFlowSource(FlowSource):
    """A Delta table that a flow reads."""

    store: LogStore

    @property
    def location(self) -> str:
        return self.store.location

    def is_at(self, table: TableLocation) -> bool:
        return self.location == table.location

    def newest(self) -> SourceVersion:
        snapshot = open_snapshot(self.store)
        return SourceVersion(snapshot.metadata.id, snapshot.version, frozenset(supported_features(snapshot.protocol)))

    def parts(self, version: int, max_bytes: int | None) -> Sequence[Sequence[str]]:
        files = self._open(version).files()
        columns = (files[name].to_pylist() for name in ("modification_time_ms", "path", "size_bytes"))
        return split_files([(path, size) for _, path, size in sorted(zip(*columns, strict=True))], max_bytes)

    def rows(self, spark: SparkSession, version: int, paths: Collection[str] | None = None) -> DataFrame:
        return read_snapshot(spark, self.store, self._open(version), only=paths)

    def range_after(self, version: int, limits: RangeLimits) -> DeltaVersionRange:
        before = self._open(version)
        with _explain_loss(self.location):
            later = version_changes(self.store, version + 1, limits.last)
            changes = list(take_until_full(before.schema, _with_schemas(before, later), limits))
        last = self._open(changes[-1].version)
        schemas = (from_json(each.metadata.schema_string) for each in changes if each.metadata is not None)
        is_growth = all(is_readable_in(schema, last.schema) for schema in [before.schema, *schemas])
        return DeltaVersionRange(before, last, tuple(changes), is_growth)

    def _open(self, version: int) -> Snapshot:
        with _explain_loss(self.location):
            return open_snapshot(self.store, version)


@dataclass(frozen=True, slots=True)
class DeltaVersionRange(VersionRange):
    """The changes of rows in versions of a Delta table.

    Args:
        is_growth: Whether all rows can be read in the schema of the last version.
    """

    before: Snapshot
    newest: Snapshot
    changes: tuple[VersionChanges, ...]
    is_growth: bool

    @property
    def last(self) -> int:
        return self.newest.version

    @property
    def removing_versions(self) -> Sequence[int]:
        return [each.version for each in self.changes if each.removed]

    @property
    def is_empty(self) -> bool:
        """Whether no version changes rows or renames, drops or replaces a column."""
        return self.is_growth and not any(each.added or each.removed for each in self.changes)

    def added_rows(self, spark: SparkSession) -> DataFrame:
        adds = [add for each in self.changes if not each.removed for add in each.added]
        self._ensure_present(adds)
        return read_data_files(spark, self.newest.store, self.newest, concat_files([from_adds(adds)]))

    def changed_rows(self, spark: SparkSession) -> Sequence[DataFrame]:
        """Return frames that together have every added and every removed row.

        If columns were renamed, dropped or replaced, these are all rows of the versions before and after: every row may
        then be another one, although its file is not touched.
        """
        if not self.is_growth:
            return [read_snapshot(spark, each.store, each) for each in (self.before, self.newest)]
        if not self.removing_versions:
            return [self.added_rows(spark)]
        # A version with change data files has all of its changes there; its removed files are not read.
        derived = [each for each in self.changes if not each.change_files]
        self._ensure_present([add for each in derived for add in each.added])
        self._ensure_present([removed_file(remove) for each in derived for remove in each.removed])
        from widen.frames.change_feed import read_changed_rows

        changed = read_changed_rows(spark, self.newest, self.changes)
        return [changed.drop(CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)]

    def _ensure_present(self, adds: Sequence[Add]) -> None:
        """Raise if a file that is not live any more was deleted by a vacuum."""
        # A vacuum keeps live files, so only the others need a look at the store.
        live = set(self.newest.files()["path"].to_pylist())
        missing = missing_files(self.newest.store, [add for add in adds if add.path not in live])
        if missing:
            reason = f"the file {missing[0]} was deleted by a vacuum"
            raise SourceHistoryLost(location=self.newest.location, reason=reason)


def _with_schemas(
    before: Snapshot, changes: Iterable[VersionChanges]
) -> Iterator[tuple[VersionChanges, StructType, int]]:
    """Yield each version with its schema and the size of the files that it added."""
    schema = before.schema
    for each in changes:
        schema = schema if each.metadata is None else from_json(each.metadata.schema_string)
        yield each, schema, sum(add.size for add in each.added)


@contextmanager
def _explain_loss(location: str) -> Iterator[None]:
    """Translate the error of a version that the log no longer has."""
    try:
        yield
    except VersionNotFound as error:
        raise SourceHistoryLost(location=location, reason=str(error.message).rstrip(".")) from error
