"""The schemas in which Parquet files are read without Spark: those that Spark finds, or none."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from widen.batches import column_copy, parquet_batch
from widen.batches.column_copy import SourceFooter, to_source_footer
from widen.batches.parquet_batch import find_bad_parquet, find_file_parts
from widen.errors import CorruptFile, SourceContentError
from widen.json.field_rules import FileFields
from widen.sources.arrow_columns import ColumnRules, Nanos
from widen.sources.converted_files import OddTypes
from widen.sources.listing import FileFormat, SourceFile, SourceFiles
from widen.spark.engine import Unsupported

INT, LONG, TEXT = pa.int32(), pa.int64(), pa.string()


def source(place: Path, tables: Mapping[str, Any], **options: Any) -> SourceFiles:
    files = []
    for name, types in tables.items():
        path = place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        table = types if isinstance(types, pa.Table) else pa.schema(types).empty_table()
        pq.write_table(table, path, **options)
        files.append(SourceFile(f"file:{path}", path.stat().st_size, 0, path.as_uri()))
    return SourceFiles((), tuple(files), (), FileFormat.PARQUET)


def parts(found: SourceFiles, fields: FileFields | None = None) -> list[tuple[list[str], str]]:
    return [
        ([each.path.rpartition("/")[2] for each in part.files], part.schema.sql)
        for part in find_file_parts(found, fields or FileFields(False))
    ]


def test_schemas_merge_in_the_order_of_the_names(tmp_path: Path) -> None:
    files = {
        "b": {"b": TEXT, "r": pa.struct({"y": INT})},
        "a": {"r": pa.struct({"x": pa.list_(LONG)}), "n": pa.decimal128(5, 2)},
        "c": {"n": pa.decimal128(9, 2), "c": pa.map_(TEXT, pa.large_string())},
    }
    merged = "struct<r: struct<x: array<bigint>, y: int>, n: decimal(9,2), b: string, c: map<string,string>>"
    assert parts(source(tmp_path, files)) == [(["a", "b", "c"], merged)]


def test_unsigned_numbers_are_wider_and_bytes_have_any_length(tmp_path: Path) -> None:
    columns = {"a": pa.uint8(), "b": pa.list_(pa.uint16()), "c": pa.uint32(), "d": pa.map_(TEXT, pa.uint64())}
    found = source(tmp_path, {"a": {**columns, "e": pa.binary(3)}})
    read = "struct<a: smallint, b: array<int>, c: bigint, d: map<string,decimal(20,0)>, e: binary>"
    assert parts(found) == [(["a"], read)]


def test_elements_may_have_the_name_that_arrow_gave_them(tmp_path: Path) -> None:
    found = source(tmp_path, {"a": {"v": pa.list_(pa.list_(INT))}}, use_compliant_nested_type=False)
    assert parts(found) == [(["a"], "struct<v: array<array<int>>>")]


@pytest.mark.parametrize(
    ("one", "other"),
    [(INT, LONG), (pa.decimal128(5, 2), pa.decimal128(5, 1)), (TEXT, pa.struct({"a": INT})), (pa.list_(INT), INT)],
    ids=str,
)
def test_files_whose_schemas_do_not_merge_are_read_apart(tmp_path: Path, one: pa.DataType, other: pa.DataType) -> None:
    found = parts(source(tmp_path, {"a": {"v": one}, "b": {"v": other}, "c": {"v": one}}))
    assert sorted(names for names, _ in found) == [["a", "c"], ["b"]]


def test_parts_are_in_the_order_of_their_schemas_as_json(tmp_path: Path) -> None:
    found = parts(source(tmp_path, {"a": {"v": TEXT}, "b": {"v": INT}, "c": {"u": TEXT, "v": LONG}}))
    assert [names for names, _ in found] == [["c"], ["b"], ["a"]]


def test_folders_and_the_load_give_fields(tmp_path: Path) -> None:
    found = source(tmp_path, {"k=1/z=a/k=2/f": {"v": INT}})
    [part] = find_file_parts(found, FileFields(True, "2024-05-06T07:08:09Z"))
    assert part.given.schema.names == ("k=", "k==", "z=", "_source_file=", "_loaded_at=")
    values = {name: value.as_py() for name, value in part.given.values_of(part.files[0].uri).items()}
    assert (values["k="], values["k=="], values["z="]) == ("1", "2", "a")
    assert values["_source_file="] == part.files[0].uri.replace("file:///", "file:/")
    assert values["_loaded_at="].isoformat() == "2024-05-06T07:08:09+00:00"


SPARK = "org.apache.spark.sql.parquet.row.metadata"


def spark_schema(**field: Any) -> dict[str, str]:
    fields = [{"name": "v", "type": "integer", "nullable": False, "metadata": {}} | field]
    return {SPARK: json.dumps({"type": "struct", "fields": fields})}


def with_metadata(entries: Mapping[str, str]) -> pa.Table:
    return pa.schema({"v": INT}, metadata=dict(entries)).empty_table()


def test_a_schema_of_spark_with_the_same_types_needs_no_spark(tmp_path: Path) -> None:
    assert parts(source(tmp_path, {"a": with_metadata(spark_schema())})) == [(["a"], "struct<v: int>")]


NOT_HERE: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any], str]] = {
    "nulls": ({"a": {"v": pa.null()}}, {}, "columns of the type null only"),
    "INT96": ({"a": {"v": pa.timestamp("us")}}, {"use_deprecated_int96_timestamps": True}, "timestamp.ns."),
    "another compression": ({"a": pa.table({"v": [1]})}, {"compression": "brotli"}, "has the compression BROTLI"),
    "names that differ in case": ({"a": {"v": INT}, "b": {"V": INT}}, {}, "are spelled"),
    "keys that are bytes": ({"a": {"v": pa.map_(pa.binary(), INT)}}, {}, "of the type map"),
    "two fields of a name": (
        {"a": pa.table({"s": pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["v", "v"])})},
        {},
        "two columns with the same name",
    ),
    "two columns of a name": ({"a": pa.table([[1], [2]], names=["v", "v"])}, {}, "two columns with the same name"),
    "a comment of Spark": ({"a": with_metadata(spark_schema(metadata={"comment": "c"}))}, {}, "a schema of Spark"),
    "a type of Spark": ({"a": with_metadata(spark_schema(type="timestamp"))}, {}, "a schema of Spark"),
    "a damaged schema of Spark": ({"a": with_metadata({SPARK: "{"})}, {}, "a schema of Spark"),
    "dates of the Julian calendar": (
        {"a": with_metadata({"org.apache.spark.legacyDateTime": ""})},
        {},
        "dates of the Julian calendar",
    ),
}


@pytest.mark.parametrize("case", NOT_HERE)
def test_what_spark_reads_in_another_way_is_left_to_it(tmp_path: Path, case: str) -> None:
    tables, options, reason = NOT_HERE[case]
    found = source(tmp_path, tables, **options)
    with pytest.raises(Unsupported, match=reason):
        find_file_parts(found, FileFields(False))


WITHOUT_COLUMN = {
    "nanoseconds": pa.timestamp("ns"),
    "nanoseconds in UTC": pa.timestamp("ns", "UTC"),
    "times of a day": pa.time64("us"),
    "times of a day in ms": pa.time32("ms"),
    "half floats": pa.float16(),
    "durations": pa.duration("us"),
    "many digits": pa.decimal256(39, 2),
    "nanoseconds in records of arrays": pa.list_(pa.struct({"t": pa.timestamp("ns")})),
}


@pytest.mark.parametrize("kind", WITHOUT_COLUMN)
def test_a_type_that_neither_spark_nor_a_table_has_needs_no_spark(tmp_path: Path, kind: str) -> None:
    found = source(tmp_path, {"a": {"v": INT}, "b": {"v": INT, "w": WITHOUT_COLUMN[kind]}})
    with pytest.raises(OddTypes):
        find_file_parts(found, FileFields(False))
    assert find_bad_parquet(found, ColumnRules()) == {}


def test_a_file_with_nanoseconds_that_no_column_holds_is_bad(tmp_path: Path) -> None:
    found = source(tmp_path, {"a": {"v": INT}, "b": pa.table({"v": pa.array([1], pa.timestamp("ns"))})})
    [(path, error)] = find_bad_parquet(found, ColumnRules()).items()
    assert (path, type(error)) == (f"file:{tmp_path}/b", SourceContentError)
    assert find_bad_parquet(found, ColumnRules(nanos=Nanos.TRUNCATE)) == {}


def test_damaged_files_are_named(tmp_path: Path) -> None:
    found = source(tmp_path, {"a": {"v": INT}, "b": {"v": INT}})
    assert find_bad_parquet(found, ColumnRules()) == {}
    (tmp_path / "b").write_bytes(b"PAR1")
    [(path, error)] = find_bad_parquet(found, ColumnRules()).items()
    assert (path, type(error)) == (f"file:{tmp_path}/b", CorruptFile)
    with pytest.raises(CorruptFile, match=rf"{tmp_path}/b cannot be read"):
        find_file_parts(found, FileFields(False))


def test_options_are_those_of_sparks_reader(tmp_path: Path) -> None:
    found = source(tmp_path, {"a": {"v": INT}})
    changed = SourceFiles((), found.files, (), FileFormat.PARQUET, {"mergeSchema": "false"})
    with pytest.raises(Unsupported, match="the options are those of its reader"):
        find_file_parts(changed, FileFields(False))


def test_each_footer_is_read_once_for_a_plan_and_a_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def to_counted(uri: str, *words: Any) -> SourceFooter:
        read.append(uri.rpartition("/")[2])
        return to_source_footer(uri, *words)

    monkeypatch.setattr(parquet_batch, "to_source_footer", to_counted)
    monkeypatch.setattr(column_copy, "to_source_footer", to_counted)
    widen.create_table(str(tmp_path / "t"), "v string NOT NULL")
    for number, rows in enumerate(([{"v": 1, "s": "x"}], [{"v": 2, "s": "x"}])):
        source(tmp_path / "in", {f"{number}.parquet": pa.Table.from_pylist(rows)})
    done = widen.ingest(str(tmp_path / "in"), str(tmp_path / "t"), engine="local")
    assert done.records == 2
    assert sorted(read) == ["0.parquet", "1.parquet"]
