"""Columns of Parquet files that tasks copy, what is left to Spark, and that the proof sees each damage."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from widen.batches.column_copy import ColumnCopy, find_column_copy
from widen.evolution.policy import Policy
from widen.files.arrow_types import to_arrow_schema
from widen.files.data_writer import PartSink, describe_columns
from widen.frames.table_writers import TaskFiles
from widen.log.log_store import LogStore
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
)
from widen.proof.record_digests import ALL
from widen.proof.row_encoder import RecordLayout
from widen.rows.row import build_routes
from widen.schema.source_metadata import SOURCE
from widen.sources.listing import SourceFile
from widen.spark.engine import Engine, LocalSession
from widen.verification.records import ColumnFiles, TaskShare, _sum_column_files, _sum_table_files

ROWS = 1000


def struct(**types: DataType) -> StructType:
    return StructType(tuple(Field(name, data_type) for name, data_type in types.items()))


def no_session(reason: str) -> object:
    raise AssertionError(f"Spark was started: {reason}")


SESSION = LocalSession(Engine.LOCAL, no_session)  # type: ignore[arg-type]

SOURCE_TYPES = struct(
    n=INTEGER,
    s=SHORT,
    f=FLOAT,
    d=DOUBLE,
    t=STRING,
    b=BOOLEAN,
    raw=BINARY,
    price=DecimalType(9, 2),
    day=DATE,
    at=TIMESTAMP,
    local=TIMESTAMP_NTZ,
    r=struct(x=INTEGER, words=ArrayType(STRING)),
    items=ArrayType(struct(k=STRING, v=INTEGER)),
    m=MapType(STRING, INTEGER),
)
WIDER_TYPES = struct(
    more=STRING,
    n=LONG,
    s=INTEGER,
    f=DOUBLE,
    d=DOUBLE,
    t=STRING,
    b=BOOLEAN,
    raw=BINARY,
    price=DecimalType(12, 2),
    day=DATE,
    at=TIMESTAMP,
    local=TIMESTAMP_NTZ,
    r=struct(words=ArrayType(STRING), y=DOUBLE, x=LONG),
    items=ArrayType(struct(v=LONG, k=STRING, w=STRING)),
    m=MapType(STRING, LONG),
)


def record(n: int) -> dict[str, object]:
    full = {
        "n": n,
        "s": n % 100,
        "f": n / 256,
        "d": n + 0.5,
        "t": f"text {n}",
        "b": n % 2 == 0,
        "raw": bytes([n % 256]),
        "price": Decimal(n) / 100,
        "day": date(2026, 1, 1 + n % 28),
        "at": datetime(2026, 1, 1, n % 24, tzinfo=timezone.utc),
        "local": datetime(2026, 1, 1, n % 24),
        "r": {"x": n, "words": ["a", None, str(n)]},
        "items": [{"k": "k", "v": n}, None, {"k": None, "v": None}][: n % 4],
        "m": [("a", n), ("b", None)][: n % 3],
    }
    # Every thirteenth value is null, at all depths.
    return {key: None if (n + at) % 13 == 0 else value for at, (key, value) in enumerate(full.items())}


def rows_of(types: StructType, count: int = ROWS) -> pa.Table:
    return pa.Table.from_pylist([record(n) for n in range(count)], schema=to_arrow_schema(types))


def source_file(path: Path, rows: pa.Table, **options: object) -> SourceFile:
    pq.write_table(rows, path, **({"row_group_size": 170} | options))
    return SourceFile(str(path), path.stat().st_size, 0, path.as_uri())


def find_copy(path: Path, file: SourceFile, schema: StructType, source: StructType = SOURCE_TYPES) -> ColumnCopy | None:
    sink = PartSink(LogStore(str(path / "table")), "job", "snappy", describe_columns(frozenset({("n",)})))
    return find_column_copy(SESSION, [file], source, schema, build_routes(schema, Policy()), sink)  # type: ignore[arg-type]


def copy_rows(path: Path, file: SourceFile, schema: StructType) -> tuple[pa.Table, tuple[str, ...]]:
    copy = find_copy(path, file, schema)
    assert copy is not None
    paths = tuple(part.path for part in copy.run().parts)
    return pa.concat_tables([pq.read_table(path / "table" / each) for each in paths]), paths


@pytest.mark.parametrize("wanted", [SOURCE_TYPES, WIDER_TYPES], ids=["the same types", "wider types, more fields"])
def test_values_are_copied(tmp_path: Path, wanted: StructType) -> None:
    found, _ = copy_rows(tmp_path, source_file(tmp_path / "a.parquet", rows_of(SOURCE_TYPES)), wanted)
    assert [(each.name, each.type) for each in found.schema] == [
        (each.name, each.type) for each in to_arrow_schema(wanted)
    ]
    expected = [without_nulls(record(n)) for n in range(ROWS)]
    assert [without_nulls(each) for each in found.to_pylist()] == expected


def without_nulls(value: object) -> object:
    """Return a value without the fields that are null, so that columns with more of them have the same values."""
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    if isinstance(value, list):
        return [without_nulls(each) for each in value]
    return value


ARROW_FORMS: dict[str, tuple[str, pa.DataType]] = {
    "large lists": ("items", pa.large_list(pa.struct([("k", pa.large_string()), ("v", pa.int32())]))),
    "large strings": ("t", pa.large_string()),
    "views of strings": ("t", pa.string_view()),
    "dictionaries": ("t", pa.dictionary(pa.int32(), pa.string())),
    "large bytes": ("raw", pa.large_binary()),
    "fewer digits": ("price", pa.decimal128(8, 2)),
}
"""Columns of another Arrow type that Parquet stores alike, or that a reader takes for the type of the source."""


@pytest.mark.parametrize("case", ARROW_FORMS)
def test_other_forms_of_arrow_are_copied(tmp_path: Path, case: str) -> None:
    name, data_type = ARROW_FORMS[case]
    rows = rows_of(SOURCE_TYPES)
    values = pa.chunked_array([pa.array(rows.column(name).to_pylist(), data_type)])
    changed = rows.set_column(rows.schema.get_field_index(name), name, values)
    found, _ = copy_rows(tmp_path, source_file(tmp_path / "a.parquet", changed), WIDER_TYPES)
    expected, _ = copy_rows(tmp_path / "other", source_file(tmp_path / "b.parquet", rows), WIDER_TYPES)
    assert found.equals(expected)


def test_a_file_may_lack_fields_of_records(tmp_path: Path) -> None:
    rows = pa.table({"r": pa.array([{"x": 1}, None], pa.struct([("x", pa.int32())]))})
    found, _ = copy_rows(tmp_path, source_file(tmp_path / "a.parquet", rows), SOURCE_TYPES)
    assert found.column("r").to_pylist() == [{"x": 1, "words": None}, None]
    assert found.column("n").null_count == len(found) == 2


def test_slices_of_nested_values_are_copied(tmp_path: Path) -> None:
    # One row group of more rows than a batch: the later batches are slices.
    rows = rows_of(SOURCE_TYPES, 40_000)
    found, _ = copy_rows(tmp_path, source_file(tmp_path / "a.parquet", rows, row_group_size=40_000), WIDER_TYPES)
    assert found["items"].to_pylist()[39_999] == [
        {**each, "w": None} if each else None for each in rows["items"].to_pylist()[39_999]
    ]
    assert found["r"].to_pylist()[30_000:30_010] == [
        each and {"words": each["words"], "y": None, "x": each["x"]} for each in rows["r"].to_pylist()[30_000:30_010]
    ]


RENAMED = StructType(
    tuple(Field("number", each.type, metadata={SOURCE: ["n"]}) if each.name == "n" else each for each in SOURCE_TYPES)
)
TWICE = StructType((*SOURCE_TYPES, Field("n__string", STRING, metadata={SOURCE: ["n"]})))
LEFT_TO_SPARK: dict[str, StructType] = {
    "a column of another kind": struct(**{each.name: each.type for each in SOURCE_TYPES} | {"n": STRING}),
    "a column that is wrapped in an array": struct(
        **{each.name: each.type for each in SOURCE_TYPES} | {"n": ArrayType(INTEGER)}
    ),
    "a narrower column": struct(**{each.name: each.type for each in SOURCE_TYPES} | {"n": SHORT}),
    "a date in a column of timestamps": struct(
        **{each.name: each.type for each in SOURCE_TYPES} | {"day": TIMESTAMP_NTZ}
    ),
    "a column with another name": RENAMED,
    "two columns": TWICE,
    "a field without a column": StructType(SOURCE_TYPES.fields[1:]),
    "a field of a record without a column": struct(
        **{each.name: each.type for each in SOURCE_TYPES} | {"r": struct(x=INTEGER)}
    ),
}


@pytest.mark.parametrize("case", LEFT_TO_SPARK)
def test_columns_that_are_converted_are_left_to_spark(tmp_path: Path, case: str) -> None:
    assert find_copy(tmp_path, source_file(tmp_path / "a.parquet", rows_of(SOURCE_TYPES)), LEFT_TO_SPARK[case]) is None


FOREIGN: dict[str, tuple[Callable[[pa.Table], pa.Table], dict[str, object]]] = {
    "the hybrid calendar": (
        lambda rows: rows.replace_schema_metadata(
            {"org.apache.spark.legacyDateTime": "", **(rows.schema.metadata or {})}
        ),
        {},
    ),
    "INT96 that Spark did not write": (lambda rows: rows, {"use_deprecated_int96_timestamps": True}),
    "nanoseconds": (lambda rows: with_type(rows, "local", pa.timestamp("ns")), {}),
    "an unsigned number": (lambda rows: with_type(rows, "s", pa.uint16()), {}),
    "a column more": (lambda rows: rows.append_column("other", pa.nulls(len(rows), pa.int32())), {}),
}


def with_type(rows: pa.Table, name: str, data_type: pa.DataType) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(data_type))


@pytest.mark.parametrize("case", FOREIGN)
def test_files_that_arrow_reads_otherwise_are_left_to_spark(tmp_path: Path, case: str) -> None:
    change, options = FOREIGN[case]
    file = source_file(tmp_path / "a.parquet", change(rows_of(SOURCE_TYPES)), **options)
    assert find_copy(tmp_path, file, SOURCE_TYPES) is None


def test_a_damaged_file_is_left_to_spark(tmp_path: Path) -> None:
    file = source_file(tmp_path / "a.parquet", rows_of(SOURCE_TYPES))
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-100])
    assert find_copy(tmp_path, file, SOURCE_TYPES) is None


# ---- the proof -------------------------------------------------------------------------------------

DAMAGES: dict[str, Callable[[pa.Table], pa.Table]] = {
    "a row is dropped": lambda rows: rows.slice(1),
    "a row is there twice": lambda rows: pa.concat_tables([rows, rows.slice(0, 1)]),
    "a text is cut": lambda rows: changed(rows, "t", pc.replace_substring(rows["t"], "text 77", "text 7")),
    "two rows have each other's numbers": lambda rows: changed(
        rows, "n", pa.chunked_array([[*rows["n"].to_pylist()[1::-1], *rows["n"].to_pylist()[2:]]], pa.int64())
    ),
    "an item is lost": lambda rows: changed(
        rows, "items", pa.chunked_array([[each and each[:1] for each in rows["items"].to_pylist()]], rows["items"].type)
    ),
    "a null is zero": lambda rows: changed(rows, "d", pc.fill_null(rows["d"], 0.0)),
    "a time is rounded": lambda rows: changed(rows, "at", pc.ceil_temporal(rows["at"], 1, "day")),
    "bytes are lost": lambda rows: changed(rows, "raw", pc.fill_null(pc.binary_slice(rows["raw"], 0, 0), b"")),
}


def changed(rows: pa.Table, name: str, values: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), values)


def source_sum(file: SourceFile, tasks: int) -> tuple[int, int]:
    sums = [
        _sum_column_files((ColumnFiles([file], SOURCE_TYPES),), TaskShare(task, tasks, RecordLayout(), ALL))
        for task in range(tasks)
    ]
    return sum(each.digest for each in sums) % 2**128, sum(each.records for each in sums)


def table_sum(path: Path, paths: tuple[str, ...], schema: StructType) -> tuple[int, int]:
    found = _sum_table_files(
        TaskFiles(LogStore(str(path)), paths), schema, Policy(), TaskShare(0, 1, RecordLayout(), ALL)
    )
    return found.digest, found.records


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("path", ["native", "python"])
def test_the_sums_agree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, tasks: int) -> None:
    if path == "python":
        monkeypatch.setenv("WIDEN_KERNEL", "off")
    same = struct(**{each.name: each.type for each in WIDER_TYPES} | {"f": FLOAT})
    file = source_file(tmp_path / "a.parquet", rows_of(SOURCE_TYPES))
    _, paths = copy_rows(tmp_path, file, same)
    assert source_sum(file, tasks) == table_sum(tmp_path / "table", paths, same)


@pytest.mark.parametrize("damage", DAMAGES)
def test_each_damage_changes_the_sum(tmp_path: Path, damage: str) -> None:
    file = source_file(tmp_path / "a.parquet", rows_of(SOURCE_TYPES))
    rows, paths = copy_rows(tmp_path, file, WIDER_TYPES)
    pq.write_table(DAMAGES[damage](rows), tmp_path / "table" / paths[0])
    assert source_sum(file, 1) != table_sum(tmp_path / "table", paths, WIDER_TYPES)
