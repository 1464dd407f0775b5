"""Scans: the files of a snapshot as one DataFrame in the current types, read by Spark's own vectorized reader.

Columns are read by their names in the files: the physical names, or with column mapping by ``id`` the names that the
field ids of each file resolve to.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping, #deletion-vectors
"""

from __future__ import annotations

import atexit
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial, reduce
from pathlib import Path
from typing import TypeAlias
from urllib.parse import unquote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import CorruptFile, StorageError
from widen.evolution.unify import unify_schema
from widen.files.deleted_rows import FILE, ROW, deleted_words, without_marked
from widen.files.footers import Names, names_in_file, read_files
from widen.files.predicates import bind_condition
from widen.files.scan_groups import (
    ScanGroup,
    ScanPlan,
    group_files,
    partition_values,
    slow_decimals,
    split_group,
    stored_types,
    unsafe_columns,
)
from widen.frames.file_filters import filter_stored_rows
from widen.frames.projection import VALUE, data_columns, projection
from widen.limits import DRIVER_SCHEMAS
from widen.log.commit_outcome import SCANS
from widen.log.file_list import filter_files
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, select_files
from widen.model.column_path import leaves
from widen.model.schema_json import to_identifier
from widen.model.types import DOUBLE, FLOAT, LONG, STRING, Field, StructType, quote_name
from widen.proof.column_digests import TableDigest, digest_batches
from widen.protocol.actions import DeletionVector
from widen.protocol.column_mapping import ID, TrackingColumns
from widen.protocol.data_skipping import Predicate, UnknownPredicate
from widen.protocol.type_widening import ensure_changes_readable
from widen.sources.listing import FILE_SOURCES, as_literal
from widen.spark.errors import RESTORE_FILE, translate_spark_errors
from widen.spark.expression import filter_frame
from widen.spark.session import READ_OPTIONS, hadoop_options, with_own_client
from widen.spark.spark_types import (
    Column,
    DataFrame,
    F,
    SparkSession,
    as_nullable,
    ensure_distinct_names,
    to_spark,
    visible_schema,
)

EXPLICIT_FILES = 32
"""Up to this many files, Spark gets their paths. It looks up each path in the store."""

_WITHOUT_DICTIONARY_FILTER = {"parquet.filter.dictionary.enabled": "false"}
"""The filter on dictionaries takes 0.0 and -0.0 for two values: `d = 0` would lose the rows of a file with only -0.0.

Source: docs/spark-facts.md#signed-zeros
"""

_EVERYTHING = UnknownPredicate()
_NO_OPTIONS: Mapping[str, str] = {}
_BASE_ROW_ID, _COMMIT_VERSION = "__widen_base_row_id", "__widen_row_version"


def read_snapshot(
    spark: SparkSession,
    store: LogStore,
    snapshot: Snapshot,
    where: str | Column | None = None,
    only: Collection[str] | None = None,
    *,
    has_lists: bool = False,
) -> DataFrame:
    """Return the rows of a version in its current types, with the columns in the order of the schema, all nullable.

    Args:
        where: The condition on rows. Spark SQL also skips files by partition values and statistics; a Column does not.
        has_lists: Whether another condition on the rows may have a list of values.
    """
    predicate = bind_condition(where, snapshot.schema)
    scan = _with_old_types(
        spark, snapshot, plan_read(snapshot, predicate, only), has_lists=has_lists or may_have_list(where)
    )
    whole = _union(spark, store, scan, is_located=False)
    return filter_frame(whole, where)


def digest_with_spark(spark: SparkSession, snapshot: Snapshot) -> TableDigest:
    """Return the digest of the rows of a version, as Spark reads them: each task sums its share."""
    # One struct column, since mapInArrow reads a dot in a column name as a nested field.
    rows = read_snapshot(spark, snapshot.store, snapshot).select(F.struct("*").alias("row"))
    digest = digest_batches((), [field.name for field in snapshot.schema])
    with translate_spark_errors():
        for part in rows.mapInArrow(_digest_rows, "digest string").toArrow()["digest"].to_pylist():
            digest.merge(TableDigest.from_json(part))
    return digest


def _digest_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    tables = (pa.Table.from_struct_array(batch.column(0)) for batch in batches)
    yield pa.RecordBatch.from_pydict({"digest": [digest_batches(tables).to_json()]})


def read_with_locations(spark: SparkSession, store: LogStore, snapshot: Snapshot, files: pa.Table) -> DataFrame:
    """Return the rows of files like `read_snapshot`, with the location of each row in the columns `FILE` and `ROW`."""
    scan = _with_old_types(spark, snapshot, _scan(snapshot, files), has_lists=True)
    return _union(spark, store, scan, is_located=True)


def read_data_files(spark: SparkSession, store: LogStore, snapshot: Snapshot, files: pa.Table) -> DataFrame:
    """Return the rows of files like `read_snapshot`; the files need not be live in the version."""
    return _union(spark, store, _with_old_types(spark, snapshot, _scan(snapshot, files)), is_located=False)


def location_keys(store: LogStore, files: pa.Table) -> list[str]:
    """Return the value of the column `FILE` for each file of a list."""
    return [location_key(store.uri(path)) for path in files["path"].to_pylist()]


def with_row_tracking(rows: DataFrame, store: LogStore, files: pa.Table, columns: TrackingColumns) -> DataFrame:
    """Return rows with their row ids and commit versions.

    A value that the file materializes wins; otherwise it follows from the file's base row id and the row's position.

    Args:
        rows: The rows of `read_with_locations`, with the columns that files use to materialize both values.

    Source: PROTOCOL.md#reader-requirements-for-row-tracking
    """
    if not files.num_rows:
        return rows
    defaults = {FILE: pa.array(location_keys(store, files), pa.string())}
    defaults |= {_BASE_ROW_ID: files["base_row_id"], _COMMIT_VERSION: files["default_row_commit_version"]}
    joined = rows.join(F.broadcast(rows.sparkSession.createDataFrame(pa.table(defaults))), FILE)
    row_id = F.coalesce(F.col(quote_name(columns.row_id)), F.col(_BASE_ROW_ID) + F.col(ROW))
    version = F.coalesce(F.col(quote_name(columns.version)), F.col(_COMMIT_VERSION))
    return joined.withColumns({columns.row_id: row_id, columns.version: version}).drop(_BASE_ROW_ID, _COMMIT_VERSION)


def unify_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows with one column for each source field, which coalesces all columns of the field.

    Source: docs/evolution-rules.md#one-interval
    """
    return rows.selectExpr(*(f"{column.sql} AS {to_identifier(column.name)}" for column in unify_schema(schema)))


def _union(spark: SparkSession, store: LogStore, scan: ScanPlan, *, is_located: bool) -> DataFrame:
    ensure_distinct_names(spark, store.location, scan.schema, scan.mode)
    frames = [_frame(spark, store, scan, group, is_located=is_located) for group in scan.groups]
    if frames:
        return reduce(DataFrame.unionAll, frames)
    columns = visible_schema(scan.schema).fields
    location = (Field(FILE, STRING), Field(ROW, LONG)) if is_located else ()
    return spark.createDataFrame([], to_spark(as_nullable(StructType((*columns, *location)))))


def plan_read(snapshot: Snapshot, predicate: Predicate, only: Collection[str] | None = None) -> ScanPlan:
    """Return which files a scan reads and how, without the files that cannot have a matching row."""
    files = snapshot.files()
    if only is not None:
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(only, pa.string())))
    return _scan(snapshot, filter_files(files, select_files(snapshot, predicate)), predicate)


def _scan(snapshot: Snapshot, files: pa.Table, predicate: Predicate = _EVERYTHING) -> ScanPlan:
    ensure_changes_readable(snapshot.schema)
    chosen = select_files(snapshot, predicate)
    scan = ScanPlan(predicate, chosen.schema, chosen.mode, chosen.partition_by)
    return replace(scan, groups=tuple(group_files(scan, files)))


def may_have_list(where: str | Column | None) -> bool:
    """Return whether a condition or a query may have a list of values. Spark checks only the first one.

    Source: docs/spark-facts.md#pushed-filters
    """
    return re.search(r"\bin\b", str(where), re.IGNORECASE) is not None


def _with_old_types(spark: SparkSession, snapshot: Snapshot, scan: ScanPlan, *, has_lists: bool = False) -> ScanPlan:
    """Return the scan with its groups split by column names and old types in the files, where these matter."""
    if scan.mode == ID:
        scan = replace(scan, groups=tuple(split_by_names(spark, snapshot, scan.groups)))
    scan = replace(scan, unsafe=unsafe_columns(scan.schema, scan.partition_by, has_lists=has_lists))
    wanted = scan.unsafe | slow_decimals(scan.schema, scan.partition_by)
    if not wanted or not scan.groups:
        return scan
    files = pa.concat_tables(group.files for group in scan.groups)
    stored = iter(stored_types(spark, snapshot, files, wanted))
    groups = [split_group(group, [next(stored) for _ in range(group.files.num_rows)]) for group in scan.groups]
    return replace(scan, groups=tuple(part for parts in groups for part in parts))


# ---- DataFrames of groups --------------------------------------------------------------------------


def _frame(spark: SparkSession, store: LogStore, scan: ScanPlan, group: ScanGroup, *, is_located: bool) -> DataFrame:
    frame = _source(spark, store, scan, group)
    frame = filter_stored_rows(frame, scan, group)
    joins_values = not group.is_hive and group.values is None
    if group.has_vectors or joins_values or is_located:
        frame = frame.select("*", row_location_key().alias(FILE), F.col("_metadata.row_index").alias(ROW))
    if group.has_vectors:
        frame = without_marked(frame, deleted_words(spark, store, _vectors(store, group.files)))
    if joins_values:
        frame = frame.join(F.broadcast(_values_frame(spark, store, scan, group.files)), FILE, "inner")
    location = (FILE, ROW) if is_located else ()
    return frame.select(*projection(scan, group), *location)


def _source(spark: SparkSession, store: LogStore, scan: ScanPlan, group: ScanGroup) -> DataFrame:
    """Return the files as Spark reads them: physical names, and partition columns as text if directories name them."""
    given, names = hadoop_options(store), group.files["path"].to_pylist()
    (root, *uris), options = with_own_client([store.uri(path) for path in ["", *names]], given)
    paths, _ = with_own_client(list_scan_files(spark, store, group.files, uris), given)
    # Not for a manifest: it is outside of the table, and Spark refuses a base that its path does not begin with.
    base = unquote(root) if group.is_hive and paths[0].startswith(root) else None
    return open_files(spark, scan, group, paths, base, options)


def open_files(
    spark: SparkSession,
    scan: ScanPlan,
    group: ScanGroup,
    paths: Sequence[str],
    base: str | None = None,
    store_options: Mapping[str, str] = _NO_OPTIONS,
) -> DataFrame:
    """Return files as Spark reads them: with the names that columns have in the files.

    Args:
        base: The directory that contains the directories that name partitions.
    """
    fields = [column.read for column in data_columns(scan, group).values()]
    if group.is_hive:
        fields += [Field(name, STRING) for name in scan.physical_partitions]
    schema = StructType(tuple(fields))
    reader = spark.read.schema(to_spark(schema)).options(**READ_OPTIONS, **store_options)
    if any(leaf in (FLOAT, DOUBLE) for _, leaf in leaves(schema)):
        reader = reader.options(**_WITHOUT_DICTIONARY_FILTER)
    # A recursive look-up keeps Spark from taking folders called key=value for columns.
    reader = reader.option("ignoreInvalidPartitionPaths" if group.is_hive else "recursiveFileLookup", "true")
    reader = reader if base is None else reader.option("basePath", base)
    with translate_spark_errors():  # the classic session looks a few files up already here
        return reader.format(FILE_SOURCES["parquet"]).load([as_literal(unquote(path)) for path in paths])


def list_scan_files(spark: SparkSession, store: LogStore, files: pa.Table, uris: Sequence[str]) -> Sequence[str]:
    """Return the URIs for Spark to open: the files, or for many files one manifest of them."""
    if len(uris) > EXPLICIT_FILES:
        sizes, times = (files[name].to_pylist() for name in ("size_bytes", "modification_time_ms"))
        manifest = write_manifest(spark, store, zip(uris, sizes, times, strict=True))
        if manifest is not None:
            return [manifest]
    _ensure_not_empty(uris)
    return uris


def _ensure_not_empty(uris: Iterable[str]) -> None:
    """Refuse empty files, which Spark skips silently; stores write a file completely or not at all.

    Raises:
        CorruptFile: A file on this machine is empty.
    """
    for uri in uris:
        path = Path("/" + location_key(uri))
        if uri.startswith("file:") and path.is_file() and path.stat().st_size == 0:
            raise CorruptFile(path=uri, reason="it is empty", fix=RESTORE_FILE)


def row_location_key() -> Column:
    """Return the value of `FILE` for a row: the decoded location of its file without the scheme.

    Spark and the log may write the scheme and the escapes of one location differently.
    """
    # It is evaluated for each row, where regular expressions and substrings of texts are slow.
    path = F.col("_metadata.file_path")
    after_scheme = F.expr("substring(CAST(_metadata.file_path AS BINARY), instr(_metadata.file_path, ':') + 1)")
    key = F.ltrim(after_scheme.cast("string"), F.lit("/"))
    # Spark's url_decode takes a plus sign for a space, as in forms.
    return F.when(path.contains("%"), F.url_decode(F.replace(key, F.lit("+"), F.lit("%2B")))).otherwise(key)


def location_key(uri: str) -> str:
    """Return the value of `FILE` for a location as Spark spells it."""
    return unquote(uri).partition(":")[2].lstrip("/")


def _vectors(store: LogStore, files: pa.Table) -> list[tuple[str, DeletionVector]]:
    keys, vectors = location_keys(store, files), files["deletion_vector"].to_pylist()
    return [(key, DeletionVector(**vector)) for key, vector in zip(keys, vectors, strict=True)]


def _values_frame(spark: SparkSession, store: LogStore, scan: ScanPlan, files: pa.Table) -> DataFrame:
    values = partition_values(files)
    keys = location_keys(store, files)
    columns = {VALUE + c: pa.array([v.get(c) or None for v in values], pa.string()) for c in scan.physical_partitions}
    return spark.createDataFrame(pa.table({FILE: pa.array(keys, pa.string()), **columns}))


# Manifests: lists of files that Spark trusts, so that it does not look every file up in the store.
#
# A manifest is a directory with a log like the log of Spark's file sink; scanning such a directory lists no files.
#
# Source: Spark's file sink log (``_spark_metadata``), which readers have followed since Spark 2.


IGNORED = "spark.sql.streaming.fileStreamSink.metadata.ignored"
"""Spark's setting to ignore such logs."""

_SINK_LOG = "_spark_metadata/0"
_BLOCK_BYTES = 128 * 1024 * 1024


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    size: int
    modification_time: int
    is_dir: bool = False
    block_replication: int = 1
    block_size: int = _BLOCK_BYTES
    action: str = "add"


def write_manifest(spark: SparkSession, store: LogStore, files: Iterable[tuple[str, int, int]]) -> str | None:
    """Write a manifest and return the path for Spark to read, or None if manifests cannot be used.

    The same files result in the same manifest. Manifests of local tables are removed when the process ends.

    Args:
        files: The URI in Spark's spelling, the size in bytes and the modification time in ms of each file.
    """
    if spark.conf.get(IGNORED, "false") == "true":
        return None
    lines = [_Line(path, size, modified) for path, size, modified in files]
    content = b"v1\n" + _encoder.encode_lines(lines).rstrip(b"\n")
    name = hashlib.sha256(content).hexdigest()[:32]
    if store.is_local and "=" not in store.location:
        return _write_local(name, content)
    try:
        store.put(f"{SCANS}/{name}/{_SINK_LOG}", content)
    except StorageError:
        return None
    return store.uri(f"{SCANS}/{name}")


_encoder = msgspec.json.Encoder()


def _write_local(name: str, content: bytes) -> str | None:
    path = os.path.join(_folder(), name)
    target = os.path.join(path, _SINK_LOG)
    try:
        if not os.path.exists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with open(target + ".part", "wb") as file:
                file.write(content)
            # Another thread may read the same manifest meanwhile.
            os.replace(target + ".part", target)
    except OSError:
        return None
    return f"file://{path}"


@cache
def _folder() -> str:
    path = tempfile.mkdtemp(prefix="widen-scans-")
    atexit.register(shutil.rmtree, path, ignore_errors=True)
    return path


# Column mapping by id: the names of columns in files, resolved by field id.
#
# Spark resolves by field id only for a whole session, and still matches pushed filters by name. So Widen reads the
# footers of a table in the mode ``id`` before its rows, and reads each file by the names that it has. The names are
# cached for as long as the schema stays the same.
#
# Source: PROTOCOL.md#reader-requirements-for-column-mapping


CACHED_FILES, CACHED_SCHEMAS = 100_000, 32
"""The maximum number of files, and of pairs of table and schema, in the cache of names."""

_Key: TypeAlias = tuple[str, int, int]


def split_by_names(spark: SparkSession, snapshot: Snapshot, groups: Sequence[ScanGroup]) -> Iterator[ScanGroup]:
    """Yield the groups, split by the names that their files have for columns."""
    if not groups:
        return
    files = pa.concat_tables(group.files for group in groups)
    names_by_file = iter(_cached_names(spark, snapshot, files))
    for group in groups:
        names = [next(names_by_file) for _ in range(group.files.num_rows)]
        for distinct in dict.fromkeys(names):
            mask = pa.array([name == distinct for name in names])
            yield replace(group, files=group.files.filter(mask), names=distinct)


def _cached_names(spark: SparkSession, snapshot: Snapshot, files: pa.Table) -> list[Names]:
    cache = _cache(snapshot.location, snapshot.metadata.schema_string)
    keys = list(zip(*(files[name].to_pylist() for name in _KEY), strict=True))
    new = [key for key in dict.fromkeys(keys) if key not in cache]
    if len(cache) + len(new) > CACHED_FILES:
        cache.clear()
        new = list(dict.fromkeys(keys))
    columns = StructType(tuple(f for f in snapshot.schema if f.name not in snapshot.partition_columns))
    read = partial(_read, snapshot.store, columns)
    layouts: dict[Names, Names] = {}
    paths = [path for path, _, _ in new]
    names_of_new = read_files(lambda: spark, read, paths, DRIVER_SCHEMAS)
    for key, names in zip(new, names_of_new, strict=True):
        cache[key] = layouts.setdefault(names, names)
    return [cache[key] for key in keys]


_KEY = ("path", "size_bytes", "modification_time_ms")


@lru_cache(CACHED_SCHEMAS)
def _cache(location: str, schema_string: str) -> dict[_Key, Names]:
    """Return the mutable cache of names for the files of a table under a schema."""
    return {}


def _read(store: LogStore, columns: StructType, path: str) -> Names:
    return names_in_file(store, columns, store.plain(path))
