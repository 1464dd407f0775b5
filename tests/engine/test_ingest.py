"""Ingestion end to end: vectors, forms of sources, bad input, races, modes. Every table is proved leaf by leaf."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from widen import IngestResult, ingest
from widen.batches.open_source import BatchReader
from widen.errors import EvolutionRefused, InvalidOption, SourceError, StorageError
from widen.evolution.plan import explain_plan
from widen.evolution.policy import Policy
from widen.frames.table_writers import DeltaRows
from widen.log.local_files import LocalFiles
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.table import Table
from widen.verification.records import Verification, verify


def write_lines(place: Path, records: list[Any]) -> str:
    """Write a file of JSON lines; a text stands as it is."""
    place.parent.mkdir(parents=True, exist_ok=True)
    lines = (record if isinstance(record, str) else json.dumps(record) for record in records)
    place.write_text("\n".join(lines) + "\n", encoding="utf-8", errors="surrogatepass")
    return str(place)


def proved(spark: SparkSession, source: str, table: str, evolve: str = "widen") -> IngestResult:
    """Ingest with the proof, which must be clean."""
    done = ingest(source, table, evolve=evolve, verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    return done


def types(table: str, prefix: str = "") -> dict[str, str]:
    return {field.name: field.type.sql for field in Table(table).schema if field.name.startswith(prefix)}


def rows(spark: SparkSession, table: str) -> list[dict[str, Any]]:
    """The rows without what is null in them, by ``n``."""
    found = [row.asDict(recursive=True) for row in Table(table).read(spark=spark).collect()]
    told = [{name: value for name, value in row.items() if value is not None} for row in found]
    return sorted(told, key=lambda row: row.get("n", -1))


def visible(table: Path) -> list[str]:
    """Everything below a place that is not hidden, by name."""
    files = (path.relative_to(table) for path in table.rglob("*") if path.is_file())
    return sorted(str(path) for path in files if not path.name.startswith("."))


# ---- vectors ---------------------------------------------------------------------------------------

VECTORS: dict[str, tuple[list[Any], list[Any], dict[str, str], list[dict[str, Any]]]] = {
    "V2": ([7], [2.5], {"": "bigint", "_double": "double"}, [{"": 7}, {"_double": 2.5}]),
    "V3": ([7], ["x"], {"": "bigint", "_string": "string"}, [{"": 7}, {"_string": "x"}]),
    "V4": (["x"], [4], {"": "string"}, [{"": "x"}, {"": "4"}]),
    "V5": (
        [[1, 2]],
        ["x"],
        {"": "array<bigint>", "_string": "string", "_array_string": "array<string>"},
        [{"": [1, 2]}, {"_string": "x", "_array_string": ["x"]}],
    ),
    "V6": (
        ["a", ["b"], [["c"]], [[["d"]]]],
        [],
        {
            "": "array<array<array<string>>>",
            "_string": "string",
            "_array_string": "array<string>",
            "_array2_string": "array<array<string>>",
        },
        [
            {"": [[["a"]]], "_string": "a", "_array_string": ["a"], "_array2_string": [["a"]]},
            {"": [[["b"]]], "_array_string": ["b"], "_array2_string": [["b"]]},
            {"": [[["c"]]], "_array2_string": [["c"]]},
            {"": [[["d"]]]},
        ],
    ),
    "V7": (
        [True, 4, 2.5],
        [],
        {"": "double", "_boolean": "boolean"},
        [{"": 1.0, "_boolean": True}, {"": 4.0}, {"": 2.5}],
    ),
    "Example 2": (
        [{"b": "a"}, {"b": ["b"]}, {"b": [["c"]]}, {"b": [[["d"]]]}],
        [],
        {
            "": "struct<b: array<array<array<string>>>, b_string: string, b_array_string: array<string>,"
            " b_array2_string: array<array<string>>>"
        },
        [
            {"": {"b": [[["a"]]], "b_string": "a", "b_array_string": ["a"], "b_array2_string": [["a"]]}},
            {"": {"b": [[["b"]]], "b_string": None, "b_array_string": ["b"], "b_array2_string": [["b"]]}},
            {"": {"b": [[["c"]]], "b_string": None, "b_array_string": None, "b_array2_string": [["c"]]}},
            {"": {"b": [[["d"]]], "b_string": None, "b_array_string": None, "b_array2_string": None}},
        ],
    ),
    "Example 3": (
        [{"b": False}, {"b": 4}, {"b": 2.5}],
        [],
        {"": "struct<b: double, b_boolean: boolean>"},
        [
            {"": {"b": 0.0, "b_boolean": False}},
            {"": {"b": 4.0, "b_boolean": None}},
            {"": {"b": 2.5, "b_boolean": None}},
        ],
    ),
    "Example 4": (
        [{"b": {"c": "1"}}, {"b": [{"x": "2"}]}, {"b": [[{"y": "3"}]]}, {"b": [[[{"z": "4"}]]]}],
        [],
        {
            "": "struct<b: array<array<array<struct<c: string, x: string, y: string, z: string>>>>,"
            " b_record: struct<c: string>, b_array_record: array<struct<x: string>>,"
            " b_array2_record: array<array<struct<y: string>>>>"
        },
        [
            {
                "": {
                    "b": [[[{"c": "1", "x": None, "y": None, "z": None}]]],
                    "b_record": {"c": "1"},
                    "b_array_record": [{"x": None}],
                    "b_array2_record": [[{"y": None}]],
                }
            },
            {
                "": {
                    "b": [[[{"c": None, "x": "2", "y": None, "z": None}]]],
                    "b_record": None,
                    "b_array_record": [{"x": "2"}],
                    "b_array2_record": [[{"y": None}]],
                }
            },
            {
                "": {
                    "b": [[[{"c": None, "x": None, "y": "3", "z": None}]]],
                    "b_record": None,
                    "b_array_record": None,
                    "b_array2_record": [[{"y": "3"}]],
                }
            },
            {
                "": {
                    "b": [[[{"c": None, "x": None, "y": None, "z": "4"}]]],
                    "b_record": None,
                    "b_array_record": None,
                    "b_array2_record": None,
                }
            },
        ],
    ),
    "V13": (
        [[1, 2], "x"],
        [],
        {"": "array<string>", "_string": "string", "_array_long": "array<bigint>"},
        [{"": ["1", "2"], "_array_long": [1, 2]}, {"": ["x"], "_string": "x"}],
    ),
    "V14": (
        [{"p": 1}, [{"q": 2}], [[{"r": 3}]]],
        [],
        {
            "": "array<array<struct<p: bigint, q: bigint, r: bigint>>>",
            "_record": "struct<p: bigint>",
            "_array_record": "array<struct<q: bigint>>",
        },
        [
            {"": [[{"p": 1, "q": None, "r": None}]], "_record": {"p": 1}, "_array_record": [{"q": None}]},
            {"": [[{"p": None, "q": 2, "r": None}]], "_array_record": [{"q": 2}]},
            {"": [[{"p": None, "q": None, "r": 3}]]},
        ],
    ),
    "V15": (
        ["x"],
        [{"b": 1}],
        {"": "string", "_record": "struct<b: bigint>"},
        [{"": "x"}, {"_record": {"b": 1}}],
    ),
    "V17": (["x"], [["y"]], {"": "string", "_array_string": "array<string>"}, [{"": "x"}, {"_array_string": ["y"]}]),
    "V20": (
        [[1, "x", [2], {"b": 1}]],
        [],
        {
            "": "array<struct<b: bigint>>",
            "_array_long": "array<bigint>",
            "_array_string": "array<string>",
            "_array2_long": "array<array<bigint>>",
            "_array2_string": "array<array<string>>",
        },
        [
            {
                "": [None, None, None, {"b": 1}],
                "_array_long": [1, None, None, None],
                "_array_string": ["1", "x", None, None],
                "_array2_long": [[1], None, [2], None],
                "_array2_string": [["1"], ["x"], ["2"], None],
            }
        ],
    ),
}


def key_of(name: str) -> str:
    return name.lower().replace(" ", "")


def interval(which: int) -> list[dict[str, Any]]:
    """One interval with every vector as its own field; ``n`` numbers the records, ten an interval."""
    length = max(len(vector[which]) for vector in VECTORS.values())
    fields = [(key_of(name), vector[which]) for name, vector in VECTORS.items()]
    return [
        {"n": 10 * which + number} | {key: values[number] for key, values in fields if number < len(values)}
        for number in range(length)
    ]


@pytest.fixture(scope="module")
def vectors(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("vectors")
    table = str(place / "table")
    for which in (0, 1):
        proved(spark, write_lines(place / f"{which}.jsonl", interval(which)), table, "split")
    return table


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_has_its_columns(vectors: str, name: str) -> None:
    expected = {key_of(name) + suffix: parse_type(text).sql for suffix, text in VECTORS[name][2].items()}
    found = {column: text for column, text in types(vectors).items() if column.split("_")[0] == key_of(name)}
    assert found == expected


@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_has_its_rows(spark: SparkSession, vectors: str, name: str) -> None:
    first, second, _, expected = VECTORS[name]
    numbers = [*range(len(first)), *range(10, 10 + len(second))]
    found = {row["n"]: row for row in rows(spark, vectors)}
    for number, cells in zip(numbers, expected, strict=True):
        told = {key: value for key, value in found[number].items() if key.split("_")[0] == key_of(name)}
        assert told == {key_of(name) + suffix: value for suffix, value in cells.items()}


def test_only_columns_beside_the_plain_one_say_what_they_evolved_from(vectors: str) -> None:
    comments = {field.name: field.metadata.get("comment") for field in Table(vectors).schema}
    assert comments["v2_double"] == "evolved_from:v2"
    assert comments["v20_array2_string"] == "evolved_from:v20"
    assert comments["v2"] is None


def test_v8_a_long_after_a_declared_timestamp_is_in_both(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    widen.create_table(table, "started timestamp")
    proved(spark, write_lines(tmp_path / "s.jsonl", [{"started": 1700000000}]), table, "split")
    assert types(table) == {"started": "timestamp", "started_long": "bigint"}
    read = Table(table).read(spark=spark).selectExpr("started_long", "unix_seconds(started) AS seconds").collect()
    assert [tuple(row) for row in read] == [(1700000000, 1700000000)]


# ---- mode widen ------------------------------------------------------------------------------------


def test_a_column_is_widened_in_place_interval_by_interval(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    steps = [
        ([{"n": 1, "a": 1, "b": 1}], "int", "int"),
        ([{"n": 2, "a": 2147483648, "b": 0.5}], "bigint", "double"),
        ([{"n": 3, "a": "9223372036854775808", "b": 1}], "bigint", "double"),
    ]
    for number, (records, a, b) in enumerate(steps):
        proved(spark, write_lines(tmp_path / f"{number}.jsonl", records), table)
        assert (types(table)["a"], types(table)["b"]) == (a, b)
    changes = [(path, str(change.old), str(change.new)) for path, change in Table(table).type_changes]
    assert changes == [(("a",), "integer", "long"), (("b",), "integer", "double")]
    assert rows(spark, table) == [
        {"n": 1, "a": 1, "b": 1.0},
        {"n": 2, "a": 2147483648, "b": 0.5},
        {"n": 3, "a_string": "9223372036854775808", "b": 1.0},
    ]


def test_locations_may_be_paths(spark: SparkSession, tmp_path: Path) -> None:
    write_lines(tmp_path / "in" / "a.json", [{"n": 1}])
    first = ingest(tmp_path / "in", tmp_path / "t", quarantine=tmp_path / "q", spark=spark)
    second = ingest([tmp_path / "in" / "a.json"], tmp_path / "t", spark=spark)
    assert (first.version, second.version) == (0, 1)
    assert Table(tmp_path / "t").read(spark=spark).count() == 2


def test_numbers_keep_every_digit(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    numbers = ["9007199254740993", "0.1", "1e400", "-0.0", "123456789012345678901234567890", "1.10"]
    lines = [f'{{"n":{n},"a":{number}}}' for n, number in enumerate(numbers)]
    proved(spark, write_lines(tmp_path / "s.jsonl", lines), table)
    assert [row["a"] for row in rows(spark, table)] == numbers


def test_a_decimal_with_thousands_of_zeros_is_the_same_number(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    lines = ['{"n":0,"a":12345678901234567.89}', '{"n":1,"a":0.5' + "0" * 6000 + "}"]
    proved(spark, write_lines(tmp_path / "s.jsonl", lines), table)
    assert [row["a"] for row in rows(spark, table)] == [Decimal("12345678901234567.89"), Decimal("0.50")]


# ---- forms of sources ------------------------------------------------------------------------------


def test_every_form_of_json_in_one_directory(spark: SparkSession, tmp_path: Path) -> None:
    source, table = tmp_path / "in", str(tmp_path / "table")
    write_lines(source / "lines.jsonl", [{"n": 1}, "", "   ", {"n": 2}])
    (source / "array.json").write_text('\ufeff[{"n":3},\n {"n":4}]', encoding="utf-8")
    (source / "deep" / "document.json").parent.mkdir()
    (source / "deep" / "document.json").write_text('{\n  "n": 5\n}\n')
    (source / "packed.json.gz").write_bytes(gzip.compress(b'{"n":6}\n{"n":7}\n'))
    (source / "odd [name] {x}.json").write_text('{"n":8}')
    (source / "README.md").write_text("nothing to see")
    (source / "empty.json").write_text("")
    done = proved(spark, str(source), table)
    assert [row["n"] for row in rows(spark, table)] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert (done.records, done.corrupt) == (8, 0)
    assert [Path(path).name for path in done.left_out] == ["README.md"]


def test_what_is_no_record_is_kept_whole(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    bad = ['{"n":1,"n":2}', '{"n":', "nothing", '{"n":NaN}', '{"n":"\\ud800"}', "[" * 900 + "]" * 900]
    source = write_lines(tmp_path / "s.jsonl", [{"n": 0}, *bad])
    with open(source, "ab") as file:
        file.write(b'{"n":"\xff"}\n')
    done = proved(spark, source, table)
    assert (done.records, done.corrupt) == (1, 7)
    kept = [row["_corrupt_record"] for row in rows(spark, table) if "_corrupt_record" in row]
    assert sorted(kept) == sorted([*bad, 'b\'{"n":"\\xff"}\''])


def test_only_records_deeper_than_200_levels_are_corrupt(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    lines = ['{"a":' * levels + "1" + "}" * levels for levels in (41, 42, 200, 201)]
    done = proved(spark, write_lines(tmp_path / "s.jsonl", [*lines, '{"b":' + "[" * 49 + "1" + "]" * 49 + "}"]), table)
    assert (done.records, done.corrupt) == (4, 1)


def test_keys_get_columns_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    record = {"userId": 1, "UserID": 2, "user id": 3, "": 4, "a.b": 5, 'q"': 6, "_rescued": 7, "_corrupt_record": 8}
    drifted = {"a": 1, "a_string": []}
    proved(spark, write_lines(tmp_path / "s.jsonl", [record, drifted, {"a": "x", "a_string": [1]}]), table)
    [row] = [row for row in rows(spark, table) if "userId" in row]
    assert sorted(row.values()) == [1, 2, 3, 4, 5, 6, 7, 8]


# ---- bad input -------------------------------------------------------------------------------------


@pytest.fixture
def existing(spark: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A table that must not change."""
    table = tmp_path / "table"
    proved(spark, write_lines(tmp_path / "first.jsonl", [{"n": 1, "a": 1}]), str(table))
    before = visible(table)
    yield table
    assert visible(table) == before
    assert Table(str(table)).version == 0


SOURCES = {
    "missing": None,
    "an empty file": "",
    "blank lines": "\n  \n",
    "no JSON at all": "this is\nno JSON\n",
    "a picture": "\x89PNG\r\n\x1a\n\x00\x00",
    "values that are no records": "[1, 2, 3]",
    "an empty array": "[]",
}


@pytest.mark.parametrize("content", SOURCES.values(), ids=SOURCES)
def test_a_source_without_records_is_refused(
    spark: SparkSession, existing: Path, tmp_path: Path, content: str | None
) -> None:
    source = tmp_path / "source.json"
    if content is not None:
        source.write_text(content)
    with pytest.raises(SourceError, match=r"source\.json"):
        ingest(str(source), str(existing), spark=spark)
    with pytest.raises(SourceError, match=r"source\.json"):
        ingest(str(source), str(tmp_path / "new"), spark=spark)
    assert visible(tmp_path / "new") == []


def test_an_empty_directory_is_refused(spark: SparkSession, existing: Path, tmp_path: Path) -> None:
    (tmp_path / "none").mkdir()
    with pytest.raises(SourceError):
        ingest(str(tmp_path / "none"), str(existing), spark=spark)


def test_an_unknown_mode_is_refused(spark: SparkSession, existing: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="widen, split, freeze, fail"):
        ingest(str(tmp_path / "first.jsonl"), str(existing), evolve="grow", spark=spark)


def test_a_directory_with_other_files_is_no_place_for_a_table(spark: SparkSession, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "in" / "s.jsonl", [{"n": 1}])
    with pytest.raises(InvalidOption, match=r"s\.jsonl"):
        ingest(source, str(tmp_path / "in"), spark=spark)
    assert visible(tmp_path / "in") == ["s.jsonl"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_place_that_cannot_be_written(spark: SparkSession, existing: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s.jsonl", [{"n": 2}])
    existing.chmod(0o500)
    try:
        with pytest.raises(StorageError):
            ingest(source, str(existing), spark=spark)
    finally:
        existing.chmod(0o700)


def test_a_store_that_refuses_the_commit_leaves_nothing_visible(
    spark: SparkSession, existing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_lines(tmp_path / "s.jsonl", [{"n": 2, "new": "x"}])

    def refuse(*_: object, **__: object) -> object:
        raise StorageError(location=str(existing), reason="no space left on the device", fix="Make room.")

    monkeypatch.setattr("widen.targets.delta.DeltaDraft.commit", refuse)
    with pytest.raises(StorageError, match="no space left"):
        ingest(source, str(existing), spark=spark)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="The system has no device that is always full.")
def test_a_full_disk_is_told(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = write_lines(tmp_path / "s.jsonl", [{"n": 2}])  # small, so that this process writes it
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(LocalFiles, "create", lambda *_: full)
        with pytest.raises(StorageError, match="the disk is full"):
            ingest(source, str(tmp_path / "t"), spark=spark)


# ---- fail and freeze -------------------------------------------------------------------------------


def test_fail_refuses_with_the_plan(spark: SparkSession, existing: Path, tmp_path: Path) -> None:
    source = write_lines(tmp_path / "s.jsonl", [{"n": 2, "a": "x", "new": 1}])
    with pytest.raises(EvolutionRefused, match="a_string") as refused:
        ingest(source, str(existing), evolve="fail", spark=spark)
    assert "new" in str(refused.value)


def test_fail_lets_pass_what_fits(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    source = write_lines(tmp_path / "s.jsonl", [{"n": 1}])
    proved(spark, source, table)
    assert proved(spark, source, table, "fail").version == 1


def test_freeze_keeps_what_does_not_fit_as_text(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "a": 1, "r": [{"x": 1}]}]), table)
    lines = ['{"n":2,"a":1e400,"b":{"c":[1.10,null]}}', '{"n":3,"a":3}', '{"n":4,"r":[{"x":2,"y":3}]}']
    lines += ['{"n":5,"r":{"x":2,"y":3}}', '{"n":6,"a":[]}']
    proved(spark, write_lines(tmp_path / "2.jsonl", lines), table, "freeze")
    assert types(table) == {"n": "int", "a": "int", "r": "array<struct<x: int>>", "_rescued": "string"}
    assert [row.get("_rescued") for row in rows(spark, table)] == [
        None,
        '{"a":1e400,"b":{"c":[1.10,null]}}',
        None,
        '{"r":[{"x":2,"y":3}]}',
        '{"r":{"y":3}}',
        '{"a":[]}',
    ]


def test_a_new_table_has_the_default_properties_of_the_session(spark: SparkSession, tmp_path: Path) -> None:
    key = "spark.databricks.delta.properties.defaults."
    settings = {f"{key}columnMapping.mode": "name", f"{key}enableTypeWidening": "false", f"{key}appendOnly": "true"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": 1, "a b": 1}]), str(tmp_path / "table"))
    finally:
        for name in settings:
            spark.conf.unset(name)
    table = Table(str(tmp_path / "table"))
    assert {key: table.properties[f"delta.{key}"] for key in ("columnMapping.mode", "appendOnly")} == {
        "columnMapping.mode": "name",
        "appendOnly": "true",
    }
    proved(spark, write_lines(tmp_path / "2.jsonl", [{"n": 2**40, "a b": 2}]), str(tmp_path / "table"))
    assert types(str(tmp_path / "table")) == {"n": "int", "a_b": "int", "n_long": "bigint"}


def test_date_and_timestamp_columns_take_texts_that_come_back(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    columns = "n int, d date, t timestamp, r struct<d: array<date>>, k date NOT NULL, x timestamp_ntz"
    widen.create_table(table, columns)
    may, noon = "2024-05-01", "2024-05-01T12:00:00.5Z"
    good = {"n": 1, "d": may, "t": noon, "r": {"d": [may, None]}, "k": may}
    done = proved(spark, write_lines(tmp_path / "1.jsonl", [good, {"n": 2, "t": may, "k": "1 May"}]), table)
    assert (done.plan.is_empty, done.records, done.quarantined) == (True, 1, 1)
    other = {"n": 3, "d": "2024-02-30", "t": "2024-05-01T12:00:00+02:00", "r": {"d": ["May"]}, "k": may}
    proved(spark, write_lines(tmp_path / "2.jsonl", [other]), table)
    assert {name: kind for name, kind in types(table).items() if "_string" in name} == {
        "d_string": "string",
        "t_string": "string",
    }
    first, second = rows(spark, table)
    assert (first["d"], first["k"], first["r"]["d"]) == (date(2024, 5, 1), date(2024, 5, 1), [date(2024, 5, 1), None])
    assert first["t"].isoformat() == "2024-05-01T12:00:00.500000"
    assert (second["d_string"], second["t_string"]) == ("2024-02-30", "2024-05-01T12:00:00+02:00")
    assert second["r"]["d_array_string"] == ["May"]


def test_the_table_fills_what_it_computes(spark: SparkSession, tmp_path: Path) -> None:
    """Defaults, generated columns and identities, also where they are NOT NULL; given values stay where they may."""
    metadata = {
        "day": {"delta.generationExpression": "CAST(t AS DATE)"},
        "size": {"CURRENT_DEFAULT": "'M'"},
        "id": {"delta.identity.start": 10, "delta.identity.step": 5, "delta.identity.allowExplicitInsert": False},
        "free": {"delta.identity.start": 1, "delta.identity.step": 1, "delta.identity.allowExplicitInsert": True},
    }
    declared = parse_type("struct<n: int, t: timestamp, day: date, size: string, id: bigint, free: bigint>")
    assert isinstance(declared, StructType)
    schema = StructType(
        tuple(
            replace(field, metadata=metadata.get(field.name, {}), nullable=field.name not in ("size", "id"))
            for field in declared
        )
    )
    features = {"delta.feature.allowColumnDefaults": "supported"}
    lines = [
        {"n": 1, "t": "2024-05-01T10:00:00Z"},
        {"n": 2, "t": "2024-05-02T10:00:00Z", "day": "2024-05-02", "size": "L", "free": 77},
        {"n": 3, "t": "2024-05-02T10:00:00Z", "day": "2024-05-03"},
        {"n": 4, "id": 5},
        {"n": 5, "extra": True},
    ]
    typed = spark.createDataFrame(
        [(1, datetime(2024, 5, 1, 10), None, "M", None, None, None),
         (2, datetime(2024, 5, 2, 10), date(2024, 5, 2), "L", None, 77, None),
         (3, datetime(2024, 5, 2, 10), date(2024, 5, 3), "M", None, None, None),
         (4, None, None, "M", 5, None, None), (5, None, None, "M", None, None, True)],
        "n int, t timestamp, day date, size string, id bigint, free bigint, extra boolean",
    )  # fmt: skip
    for name, source in (("texts", write_lines(tmp_path / "1.jsonl", lines)), ("rows", typed)):
        table = str(tmp_path / name)
        widen.create_table(table, schema, properties=features)
        done = ingest(source, table, spark=spark, verify=True)
        assert done.verification is not None
        assert done.verification.is_clean, done.verification
        assert (done.records, done.quarantined) == (3, 2)
        again = ingest(source, table, spark=spark)
        assert again.quarantined == 2
        found = rows(spark, table)
        assert [(row["n"], str(row.get("day")), row["size"]) for row in found] == [
            *[(1, "2024-05-01", "M")] * 2,
            *[(2, "2024-05-02", "L")] * 2,
            *[(5, "None", "M")] * 2,
        ]
        ids = [row["id"] for row in found]
        assert len(set(ids)) == 6
        assert all(value >= 10 and value % 5 == 0 for value in ids)
        free = [row["free"] for row in found if row["n"] != 2]
        assert (len(set(free)), [row["free"] for row in found if row["n"] == 2]) == (4, [77, 77])
        reasons = {row["reason"] for row in Table(table + "_quarantine").read(spark=spark).collect()}
        assert "id has a value, but column id is NOT NULL and GENERATED ALWAYS AS IDENTITY" in reasons
        assert any("generated column day" in reason for reason in reasons)


def test_counts_of_a_large_batch_are_lower_bounds(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    few = proved(spark, write_lines(tmp_path / "1.jsonl", [{"n": n, "a": 1} for n in range(100)]), table)
    assert {(event.count, event.at_least) for event in few.plan.events} <= {(100, False)}
    many = proved(spark, write_lines(tmp_path / "2.jsonl", [{"n": n, "b": "x"} for n in range(9000)]), table)
    [event] = many.plan.events
    assert (event.count <= 9000, event.at_least) == (True, True)
    assert "for at least " in "\n".join(explain_plan(many.plan))


# ---- races -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_new", [True, False], ids=["new table", "existing table"])
def test_two_ingestions_at_once_both_land(spark: SparkSession, tmp_path: Path, *, is_new: bool) -> None:
    table = str(tmp_path / "table")
    if not is_new:
        proved(spark, write_lines(tmp_path / "0.jsonl", [{"n": 0}]), table)
    first = write_lines(tmp_path / "1.jsonl", [{"n": 1, "a": 1, "b": "x"}])
    second = write_lines(tmp_path / "2.jsonl", [{"n": 2, "a": "x", "c": True}])
    with ThreadPoolExecutor(2) as pool:
        done = list(pool.map(lambda source: proved(spark, source, table), (first, second)))
    assert sorted(each.version for each in done) == ([0, 1] if is_new else [1, 2])
    names = Table(table).schema.names
    assert len({name.casefold() for name in names}) == len(names)
    found = {row["n"]: row for row in rows(spark, table)}
    assert {n: found[n].get("a_string", found[n].get("a")) for n in (1, 2)} in ({1: 1, 2: "x"}, {1: "1", 2: "x"})
    assert (found[1]["b"], found[2]["c"]) == ("x", True)
    assert len(found) == (2 if is_new else 3)


# ---- the proof is not blind ------------------------------------------------------------------------

WRITTEN = ['{"n":1,"a":"x","r":[{"b":1.5}]}', '{"n":2,"a":"y"}', '{"n":3}']
OTHERS = {
    "a value": '{"n":1,"a":"X","r":[{"b":1.5}]}',
    "a nested value": '{"n":1,"a":"x","r":[{"b":1.25}]}',
    "a key": '{"n":1,"q":"x","r":[{"b":1.5}]}',
    "a shape": '{"n":1,"a":["x"],"r":[{"b":1.5}]}',
    "the places in an array": '{"n":1,"a":"x","r":[null,{"b":1.5}]}',
}


def compared(spark: SparkSession, source: str, table: str) -> Verification:
    found = Table(table)
    batch, paths = BatchReader().open(spark, source), found.files()["path"].to_pylist()
    there = batch.table_digests(DeltaRows(found.store, found.snapshot), paths, Policy(), None)
    return verify(batch.source_digests(found.snapshot.schema, Policy()), there, spark=spark)


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("proof")
    proved(spark, write_lines(place / "s.jsonl", WRITTEN), str(place / "table"))
    return str(place / "table")


@pytest.mark.parametrize("name", OTHERS)
def test_the_proof_sees_a_changed_record(spark: SparkSession, written: str, tmp_path: Path, name: str) -> None:
    found = compared(spark, write_lines(tmp_path / "o.jsonl", [OTHERS[name], *WRITTEN[1:]]), written)
    assert not found.is_clean
    assert (found.records, len(found.places), found.extra) == (3, 1, 1)
    assert "o.jsonl:1" in found.places[0]
    assert 0 < found.lost <= found.leaves - found.exact


def test_the_proof_sees_a_lost_row_and_one_too_many(spark: SparkSession, written: str, tmp_path: Path) -> None:
    more = compared(spark, write_lines(tmp_path / "more.jsonl", [*WRITTEN, WRITTEN[1]]), written)
    assert (more.is_clean, more.lost, len(more.places), more.extra) == (False, 2, 1, 0)
    less = compared(spark, write_lines(tmp_path / "less.jsonl", WRITTEN[:2]), written)
    assert (less.is_clean, less.lost, len(less.places), less.extra) == (False, 0, 0, 1)
    assert compared(spark, write_lines(tmp_path / "same.jsonl", WRITTEN), written).is_clean
