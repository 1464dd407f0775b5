"""Rows that are whole in memory give the table that the same rows give which are read once, and so are staged."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest

import widen
from widen.batches import held_batch
from widen.errors import SourceContentError, SourceError, StorageError, WidenError
from widen.files.data_writer import PartWriter
from widen.sources import memory_source

NAN = float("nan")


class Stream:
    """Data that can be read once, as far as one can see."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def instant(number: int) -> datetime:
    return datetime(2024, 1, 1 + number % 28, 10, number % 60, tzinfo=timezone.utc)


MAKERS: Mapping[str, tuple[pa.DataType, Any]] = {
    "bool": (pa.bool_(), lambda n: n % 2 == 0),
    "int8": (pa.int8(), lambda n: n % 100),
    "int64": (pa.int64(), lambda n: n - 2**40),
    "uint32": (pa.uint32(), lambda n: 2**32 - 1 - n),
    "uint64": (pa.uint64(), lambda n: 2**64 - 1 - n),
    "float": (pa.float32(), lambda n: n / 4),
    "double": (pa.float64(), lambda n: NAN if n % 3 == 0 else n / 4),
    "whole double": (pa.float64(), lambda n: NAN if n % 3 == 0 else float(n)),
    "decimal": (pa.decimal128(9, 2), lambda n: Decimal(n).scaleb(-2)),
    "decimal256": (pa.decimal256(40, 2), lambda n: Decimal(n).scaleb(-2)),
    "date": (pa.date32(), lambda n: date(2024, 1, 1 + n % 28)),
    "date64": (pa.date64(), lambda n: date(2024, 1, 1 + n % 28)),
    "us": (pa.timestamp("us"), lambda n: instant(n).replace(tzinfo=None)),
    "zone": (pa.timestamp("us", "Europe/Paris"), instant),
    "ms": (pa.timestamp("ms", "UTC"), instant),
    "ns": (pa.timestamp("ns"), lambda n: 1_706_500_000_000_000_000 + n * 1000),
    "odd ns": (pa.timestamp("ns", "UTC"), lambda n: 1_706_500_000_000_000_000 + n),
    "time": (pa.time64("us"), lambda n: n * 1_000_000),
    "duration": (pa.duration("s"), lambda n: n),
    "text": (pa.string(), lambda n: f"é{n}"),
    "large text": (pa.large_string(), lambda n: f"t{n % 5}"),
    "view": (pa.string_view(), lambda n: f"a text of some length {n}"),
    "date text": (pa.string(), lambda n: f"2024-01-{1 + n % 28:02}"),
    "words": (pa.dictionary(pa.int32(), pa.string()), lambda n: f"w{n % 3}"),
    "bytes": (pa.large_binary(), lambda n: bytes([n % 256])),
    "null": (pa.null(), lambda n: None),
    "list": (pa.large_list(pa.int32()), lambda n: [n, None][: n % 3]),
    "texts": (pa.list_(pa.large_string()), lambda n: [f"x{n}"]),
    "struct": (pa.struct({"a": pa.int16(), "b": pa.large_string()}), lambda n: {"a": n % 9, "b": str(n)}),
    "structs": (pa.list_(pa.struct({"a": pa.uint8()})), lambda n: [{"a": n % 9}]),
    "map": (pa.map_(pa.string(), pa.float64()), lambda n: [(f"k{n % 2}", n / 2)]),
}


def make_table(dice: random.Random, names: Mapping[str, str], rows: int) -> pa.Table:
    """Return rows with columns of some types, with nulls, in chunks."""
    columns: dict[str, pa.Array] = {"id": pa.array(range(rows), pa.int32())}
    for name, kind in names.items():
        found, make = MAKERS[kind]
        share, first = dice.choice((0, 0.3, 1, 0.999)), dice.choice((0, 0, rows // 2))
        values = [None if at < first or dice.random() < share else make(at) for at in range(rows)]
        columns[name] = pa.array(values, found) if found != pa.string_view() else pa.array(values).cast(found)
    table = pa.table(columns)
    cut = dice.randrange(rows + 1)
    return pa.concat_tables([table.slice(0, cut), table.slice(cut)]) if dice.random() < 0.5 else table


OPTIONS: list[dict[str, Any]] = [
    {},
    {},
    {"verify": True},
    {"nan": "null"},
    {"nanos": "text", "verify": True},
    {"nanos": "truncate"},
    {"integral_doubles": "convert"},
    {"source_columns": True},
    {"exclude": ["a"]},
    {"mask": ["b"]},
    {"detect_dates": True},
    {"evolve": "split"},
    {"partition_by": ["id"]},
    {"samples": "none"},
    {"max_columns": 4},
    {"quarantine": "bad", "pins": {"a": "int"}},
]


_STAGED = re.compile(rb'"(file:[^"]*/widen-memory-[^"]*|the (Table|DataFrame|pandas DataFrame|polars DataFrame))"')
"""The file of the first record that shows something, or what stands for it."""


def load(source: Any, place: Path, options: dict[str, Any]) -> Any:
    """Return what a load has done, and what the table has then."""
    if "quarantine" in options:
        options = options | {"quarantine": str(place.with_name(place.name + "-bad"))}
    try:
        done = widen.ingest(source, place, engine="local", **options)
    except WidenError as error:
        return type(error).__name__, str(error).replace(place.name, "?").replace("the Stream", "the Table")
    verification = "" if done.verification is None else str(done.verification)
    plan = msgspec.json.decode(_STAGED.sub(b'"the source"', msgspec.json.encode(done.plan)))
    plan["events"] = [each for each in plan["events"] if each["source"] != ["_loaded_at="]]  # it shows the time
    return [plan, done.records, done.quarantined, verification, *look(place)]


def look(place: Path) -> list[Any]:
    """Return the columns and rows of a table without the times of its loads."""
    table = widen.Table(place)
    rows = [
        {name: value for name, value in row.items() if "loaded" not in name} for row in table.to_arrow().to_pylist()
    ]
    return [str(table.schema.sql), sorted(map(str, rows))]


SEEDS = range(400 if os.environ.get("WIDEN_TEST_FAULTS") else 20)


@pytest.mark.parametrize("seed", SEEDS)
def test_rows_in_memory_give_what_staged_rows_give(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    kinds, names = list(MAKERS), ["a", "b", "c", "D"]
    options = OPTIONS[seed % len(OPTIONS)]
    found = []
    for _ in range(2):  # the second load meets the columns of the first
        chosen = {name: dice.choice(kinds) for name in dice.sample(names, dice.randrange(1, 4))}
        table = make_table(dice, chosen, dice.choice((0, 1, 7, 250, 1500)))
        held, staged = (
            load(of(table), tmp_path / name, options)
            for of, name in ((lambda whole: whole, "held"), (Stream, "staged"))
        )
        assert held == staged
        found.append(held)
    assert all(found)


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_frames_give_what_their_arrow_data_give(tmp_path: Path, package: str) -> None:
    pytest.importorskip(package)
    dice = random.Random(45)
    table = make_table(dice, {"a": "double", "b": "text", "c": "us", "D": "bool"}, 300)
    if package == "pandas":
        frame: Any = table.to_pandas()
    else:
        import polars

        frame = polars.from_arrow(table)
    held, staged = load(frame, tmp_path / "held", {}), load(Stream(frame), tmp_path / "staged", {})
    assert held == staged


def test_rows_that_are_copied_are_not_staged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    staged: list[object] = []
    stage = memory_source._stage
    monkeypatch.setattr(memory_source, "_stage", lambda *given: staged.append(given) or stage(*given))
    kinds = {"a": "large text", "b": "struct", "c": "ms", "d": "float", "e": "list", "f": "words", "g": "map"}
    table = make_table(random.Random(1), kinds, 300)
    assert widen.ingest(table, tmp_path / "t", engine="local").records == 300
    assert not staged
    assert widen.ingest(table, tmp_path / "t", engine="local", verify=True).verification
    assert len(staged) == 1


def test_a_text_that_is_not_utf8_is_set_apart(tmp_path: Path) -> None:
    texts = pa.array([b"good", b"\xff"]).view(pa.string())
    table = pa.table({"id": [1, 2], "text": texts})
    for of, name in ((lambda whole: whole, "held"), (Stream, "staged")):
        done = widen.ingest(of(table), tmp_path / name, engine="local")
        assert (done.records, done.corrupt) == (1, 1)
    held, staged = (
        [re.sub("file:[^ ]*:", "?:", str(each)) for each in look(tmp_path / of)] for of in ("held", "staged")
    )
    assert held == staged


@pytest.mark.parametrize("kind", ["list", "struct", "map", "dictionary"])
def test_views_beside_nanoseconds_keep_their_values(tmp_path: Path, kind: str) -> None:
    view = pa.string_view()
    nested = {
        "list": (pa.list_(view), [["a"], None, ["b"]]),
        "struct": (pa.struct({"v": view, "n": pa.timestamp("ns")}), [{"v": "a", "n": 1}, None, {"v": "b", "n": 1000}]),
        "map": (pa.map_(pa.string(), view), [[("k", "a")], None, [("k", "b")]]),
        "dictionary": (pa.dictionary(pa.int8(), pa.string()), ["a", None, "b"]),
    }
    found, values = nested[kind]
    texts = pa.array(["a text that is longer than a view", "b", None]).cast(view)
    table = pa.table({"id": [1, 2, 3], "text": texts, "v": cast_views(values, found)})
    table = table.append_column("at", pa.array([1, 1000, 1], pa.timestamp("ns")))
    widen.ingest(table, tmp_path / "t", engine="local", nanos="text", verify=True)
    rows = widen.Table(tmp_path / "t").to_arrow().sort_by("id").to_pylist()
    assert [row["text"] for row in rows] == ["a text that is longer than a view", "b", None]
    assert [row["at"] for row in rows] == [
        "1970-01-01T00:00:00.000000001",
        "1970-01-01T00:00:00.000001",
        "1970-01-01T00:00:00.000000001",
    ]


UNTAKEN = {
    "lists of a size, of views": pa.array([["a", "b"], None, ["c", "d"]], pa.list_(pa.string_view(), 2)),
    "views of lists, of views": pa.array([["a", "b"], None, []], pa.list_view(pa.string_view())),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["a", None])),
    "runs of times": pa.RunEndEncodedArray.from_arrays(
        pa.array([2, 3], pa.int32()), pa.array([1000, None], pa.timestamp("ns"))
    ),
    "words that are views": pa.DictionaryArray.from_arrays(
        pa.array([0, None, 1]), pa.array(["a", "b"], pa.string_view())
    ),
}
"""Columns from which Arrow takes no rows."""


@pytest.mark.parametrize("case", UNTAKEN)
def test_columns_beside_nanoseconds_keep_their_values(tmp_path: Path, case: str) -> None:
    column = UNTAKEN[case]
    table = pa.table({"id": [1, 2, 3], "v": column, "at": pa.array([1, 1000, 1], pa.timestamp("ns"))})
    widen.ingest(table, tmp_path / "t", engine="local", nanos="text", verify=True)
    found = widen.Table(tmp_path / "t").to_arrow().sort_by("id")["v"].to_pylist()
    assert found == (column.to_pylist() if case != "runs of times" else [datetime(1970, 1, 1, 0, 0, 0, 1)] * 2 + [None])


def test_words_of_polars_are_texts(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    words = ["a word that is long", None, "b"]
    frame = polars.DataFrame({"id": [1, 2, 3]}).with_columns(
        polars.Series("c", words, polars.Categorical),
        polars.Series("e", words, polars.Enum([words[0], "b"])),
        polars.Series("l", [words[:1], None, words], polars.List(polars.Categorical)),
    )
    widen.ingest(frame, tmp_path / "t", engine="local", verify=True)
    rows = widen.Table(tmp_path / "t").to_arrow().sort_by("id").to_pydict()
    assert rows == {"id": [1, 2, 3], "c": words, "e": words, "l": [words[:1], None, words]}


def test_objects_of_polars_are_refused(tmp_path: Path) -> None:
    """Arrow has the addresses of objects, as bytes."""
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"o": polars.Series([object()], dtype=polars.Object)})
    with pytest.raises(SourceContentError, match="o has objects of Python"):
        widen.ingest(frame, tmp_path / "t", engine="local")


@pytest.mark.parametrize("rows", [[[1, 2]], [[1, {"x": 1}]], [[{"x": 1}, {"x": 1}]]])
@pytest.mark.parametrize("names", [["a", "a"], [1, "1"]])
def test_columns_of_pandas_with_one_name_are_refused(tmp_path: Path, rows: list[Any], names: list[object]) -> None:
    pandas = pytest.importorskip("pandas")
    with pytest.raises(SourceContentError, match=f"two columns named {names[0]}"):
        widen.ingest(pandas.DataFrame(rows, columns=names), tmp_path / "t", engine="local")


def cast_views(values: list[Any], found: pa.DataType) -> pa.Array:
    """Return values of a type with views, which Arrow does not make of Python values in every form."""
    if pa.types.is_list(found):
        items = pa.array([item for value in values for item in value or ()]).cast(pa.string_view())
        lengths = [len(value or ()) for value in values]
        offsets = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
        return pa.ListArray.from_arrays(offsets, items, mask=pa.array([value is None for value in values]))
    if pa.types.is_struct(found):
        parts = [pa.array([None if value is None else value[each.name] for value in values]) for each in found]
        parts = [part.cast(each.type) for part, each in zip(parts, found, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(found), mask=pa.array([value is None for value in values]))
    if pa.types.is_map(found):
        keys = pa.array([key for value in values for key, _ in value or ()])
        items = pa.array([item for value in values for _, item in value or ()]).cast(pa.string_view())
        lengths = [len(value or ()) for value in values]
        offsets = [sum(lengths[:at]) for at in range(len(lengths) + 1)]
        return pa.MapArray.from_arrays(offsets, keys, items, mask=pa.array([value is None for value in values]))
    return pa.array(values, found)


def uuids() -> pa.Array:
    return pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(15) + b"\x05", None], pa.binary(16)))


UUID = "00000000-0000-0000-0000-000000000005"
NOT_MADE_OF_PYTHON = {
    "words for times": (
        pa.array([1000, None], pa.timestamp("ns")).dictionary_encode(),
        datetime(1970, 1, 1, 0, 0, 0, 1),
    ),
    "words that are views": (
        pa.DictionaryArray.from_arrays(
            pa.array([0, None], pa.int8()), pa.array(["a long text of words"], pa.string_view())
        ),
        "a long text of words",
    ),
    "an extension type in a struct": (pa.StructArray.from_arrays([uuids()], names=["u"]), {"u": UUID}),
}
"""Columns of types of which Arrow makes no array of Python's values, and their first value in a table."""


@pytest.mark.parametrize("of", [lambda whole: whole, Stream])
@pytest.mark.parametrize("case", NOT_MADE_OF_PYTHON)
def test_types_of_which_arrow_makes_no_values_are_loaded(tmp_path: Path, case: str, of: Any) -> None:
    column, expected = NOT_MADE_OF_PYTHON[case]
    table = pa.table({"id": [1, 2], "v": column})
    widen.ingest(of(table), tmp_path / "t", engine="local", verify=True)
    assert widen.Table(tmp_path / "t").to_arrow().sort_by("id")["v"][0].as_py() == expected
    with pytest.raises(SourceError, match="no records"):
        widen.ingest(of(table.slice(0, 0)), tmp_path / "t", engine="local")


def repeated_names() -> pa.Array:
    return pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])


UNLOADABLE = {
    "a union": (
        pa.UnionArray.from_sparse(pa.array([0, 1], pa.int8()), [pa.array([1, 2]), pa.array(["x", "y"])]),
        "union of types",
    ),
    "a name twice in a struct": (repeated_names(), "two fields named x"),
    "a name twice in a struct of a list": (pa.ListArray.from_arrays([0, 1], repeated_names()), "two fields named x"),
}


@pytest.mark.parametrize("of", [lambda whole: whole, Stream])
@pytest.mark.parametrize("case", UNLOADABLE)
def test_what_no_table_holds_is_refused(tmp_path: Path, case: str, of: Any) -> None:
    column, reason = UNLOADABLE[case]
    with pytest.raises(SourceContentError, match=reason):
        widen.ingest(of(pa.table({"v": column})), tmp_path / "t", engine="local")


@pytest.mark.parametrize("of", [lambda whole: whole, Stream])
def test_rows_without_columns_are_no_records(tmp_path: Path, of: Any) -> None:
    with pytest.raises(SourceError, match="no records"):
        widen.ingest(of(pa.table({"a": [1, 2]}).select([])), tmp_path / "t", engine="local")


def test_values_that_no_column_holds_are_an_error_before_anything_is_written(tmp_path: Path) -> None:
    times = pa.table({"at": pa.array([1], pa.timestamp("ns"))})
    with pytest.raises(SourceContentError, match="times that microseconds do not hold"):
        widen.ingest(times, tmp_path / "t", engine="local")
    assert not (tmp_path / "t").exists()


def test_several_threads_write_all_rows_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_batch, "_THREAD_BYTES", 1000)
    monkeypatch.setattr(held_batch.os, "cpu_count", lambda: 5)
    table = pa.table({"id": pa.array(range(1003)), "name": [f"n{number}" for number in range(1003)]})
    widen.ingest(table, tmp_path / "t", engine="local")
    files = list((tmp_path / "t").rglob("*.parquet"))
    assert len(files) == 5
    assert widen.Table(tmp_path / "t").to_arrow().sort_by("id").equals(table)


@pytest.mark.parametrize("fails_at", [1, 3])
def test_no_file_is_left_when_a_write_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    monkeypatch.setattr(held_batch, "_THREAD_BYTES", 1000)
    monkeypatch.setattr(held_batch.os, "cpu_count", lambda: 4)
    calls, close = [0], PartWriter.close

    def fail(writer: PartWriter) -> Any:
        calls[0] += 1
        if calls[0] == fails_at:
            raise OSError(28, "No space left on device")
        return close(writer)

    monkeypatch.setattr(PartWriter, "close", fail)
    table = pa.table({"id": pa.array(range(1000))})
    with pytest.raises(StorageError, match="No space left"):
        widen.ingest(table, tmp_path / "t", engine="local")
    assert not list(tmp_path.rglob("*.parquet"))
