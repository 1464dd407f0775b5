"""Data in memory as a source: Arrow, DataFrames, relations of DuckDB, and standard input."""

from __future__ import annotations

import io
import math
import warnings
from datetime import date, datetime, time, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import widen
from widen.errors import InvalidOption, OptionMissing, SourceContentError, SourceError, WidenError
from widen.ingestion.ingest_options import IngestOptions
from widen.model.keyword_options import declared

NAN = float("nan")
INSTANT = datetime(2024, 1, 31, 12, 30, tzinfo=timezone.utc)


def rows(table: Path, *, key: str = "id") -> list[dict[str, Any]]:
    return sorted(widen.Table(table).to_arrow().to_pylist(), key=lambda row: row[key])


def types(table: Path) -> str:
    return str(widen.Table(table).schema.sql)


class Stream:
    """What has nothing but the method."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int16()),
        "at": pa.array([INSTANT, None, INSTANT], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.50"), None, Decimal("7.25")], pa.decimal128(6, 2)),
        "tags": pa.array([["a"], [], None]),
        "score": pa.array([1.5, NAN, None]),
    }
)


@pytest.mark.parametrize("of", [iter, Stream, pa.Table.to_reader, lambda table: table.to_batches()[0], lambda t: t])
def test_arrow_data_keeps_its_types_and_values(tmp_path: Path, of: Any) -> None:
    if of is iter:
        of = lambda table: pa.RecordBatchReader.from_batches(table.schema, iter(table.to_batches(max_chunksize=1)))  # noqa: E731
    done = widen.ingest(of(ORDERS), tmp_path / "t", verify=True)
    assert (done.version, done.records, str(done.verification)) == (0, 3, "11 of 11 leaves exact")
    assert types(tmp_path / "t") == (
        "struct<at: timestamp, id: int, price: decimal(6,2), score: double, tags: array<string>>"
    )
    found = rows(tmp_path / "t")
    assert [row["price"] for row in found] == [Decimal("1.50"), None, Decimal("7.25")]
    assert [row["tags"] for row in found] == [["a"], [], None]
    assert found[0]["at"] == INSTANT
    assert math.isnan(found[1]["score"])
    assert found[2]["score"] is None


ODD_TYPES: list[tuple[pa.Array, str, Any]] = [
    (pa.array([255], pa.uint8()), "int", 255),
    (pa.array([2**64 - 1], pa.uint64()), "decimal(20,0)", Decimal(2**64 - 1)),
    (pa.array([1.5], pa.float16()), "double", 1.5),
    (pa.array([date(2024, 1, 31)], pa.date64()), "date", date(2024, 1, 31)),
    (pa.array([10**9 + 1000], pa.timestamp("ns")), "timestamp_ntz", datetime(1970, 1, 1, 0, 0, 1, 1)),
    (pa.array([60], pa.timestamp("s", "Europe/Paris")), "timestamp", datetime(1970, 1, 1, 0, 1, tzinfo=timezone.utc)),
    (pa.array([5], pa.duration("ms")), "bigint", 5),
    (pa.array([time(1, 2, 3, 4)], pa.time64("us")), "string", "01:02:03.000004"),
    (pa.array([Decimal("1.5")], pa.decimal256(60, 1)), "decimal(38,1)", Decimal("1.5")),
    (pa.array([Decimal("1500")], pa.decimal128(5, -2)), "decimal(7,0)", Decimal(1500)),
    (pa.array(["a"], pa.large_string()).dictionary_encode(), "string", "a"),
    (pa.array([b"ab"], pa.binary(2)), "binary", b"ab"),
    (pc.run_end_encode(pa.array([7], pa.int64())), "bigint", 7),
    (pa.array([[1, 2]], pa.list_(pa.uint8(), 2)), "array<int>", [1, 2]),
    (pa.array([[("a", 1)]], pa.map_(pa.large_string(), pa.uint16())), "map<string,int>", [("a", 1)]),
    (pa.array([{"a": {"b": [time(1)]}}]), "struct<a: struct<b: array<string>>>", {"a": {"b": ["01:00:00.000000"]}}),
]


@pytest.mark.parametrize(("values", "type", "expected"), ODD_TYPES, ids=[str(each[0].type) for each in ODD_TYPES])
def test_types_that_no_table_has_become_the_nearest_one(
    tmp_path: Path, values: pa.Array, type: str, expected: Any
) -> None:
    done = widen.ingest(pa.table({"id": pa.array([1]), "v": values}), tmp_path / "t", verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    assert type in types(tmp_path / "t")
    assert rows(tmp_path / "t")[0]["v"] == expected


LOSSES = [
    (pa.array([1], pa.timestamp("ns")), "times that microseconds do not hold"),
    (pa.array([Decimal(10) ** 40], pa.decimal256(50, 0)), "decimals with more than 38 digits"),
    (pa.array([86_400_001], pa.date64()), "dates with a time of day"),
    (pa.array([(1, 2, 3)], pa.month_day_nano_interval()), "the type month_day_nano_interval"),
]


@pytest.mark.parametrize(("values", "reason"), LOSSES, ids=[each[1] for each in LOSSES])
def test_a_value_that_no_column_holds_is_an_error_without_the_value(
    tmp_path: Path, values: pa.Array, reason: str
) -> None:
    with pytest.raises(SourceContentError, match=f"the column v has {reason}") as raised:
        widen.ingest(pa.table({"v": values}), tmp_path / "t")
    assert "86" not in str(raised.value)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    "bad", [5, [1, 2], {"secret": 1}, object(), pa.array([1]), None], ids=lambda bad: type(bad).__name__
)
def test_an_error_names_the_type_of_a_source_and_not_its_data(tmp_path: Path, bad: Any) -> None:
    with pytest.raises(InvalidOption, match=r"source cannot be") as raised:
        widen.ingest(bad, tmp_path / "t")
    assert "secret" not in str(raised.value)


def test_a_stream_does_not_follow_data_in_memory(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"source cannot be 'list'.*widen\.ingest") as raised:
        widen.ingest_stream([{"secret": 1}], tmp_path / "t", checkpoint=tmp_path / "c")
    assert "secret" not in str(raised.value)


def test_data_in_memory_has_the_options_of_a_typed_source(tmp_path: Path) -> None:
    table = tmp_path / "t"
    planned = widen.plan(ORDERS, table, exclude=["score"], mask=["tags"])
    done = widen.ingest(ORDERS, table, exclude=["score"], mask=["tags"], plan_hash=planned.hash)
    assert done.to_value()["sourceFiles"]["known"] == []
    assert "score" not in types(table)
    assert rows(table)[0]["tags"] == "***"
    changed = ORDERS.set_column(2, "price", pa.array([Decimal("9.00")] * 3, pa.decimal128(6, 2))).slice(1)
    keyed = widen.ingest(changed, table, key=["id"], exclude=["score"], mask=["tags"])
    assert keyed.keys is not None
    assert [row["price"] for row in rows(table)] == [Decimal("1.50"), Decimal("9.00"), Decimal("9.00")]
    with pytest.raises(InvalidOption, match="data in memory have no names"):
        widen.ingest(ORDERS, tmp_path / "u", new=True)
    with pytest.raises(InvalidOption, match="the only format for it is json"):
        widen.ingest(ORDERS, tmp_path / "u", format="csv")


@pytest.mark.parametrize("format", [None, "json"])
def test_the_time_of_the_load_is_known_and_no_file(tmp_path: Path, format: str | None) -> None:
    source = pa.table({"value": ['{"id": 1}']}) if format else pa.table({"id": [1]})
    done = widen.ingest(source, tmp_path / "t", format=format, source_columns=True, verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    (row,) = rows(tmp_path / "t")
    assert {name: value for name, value in row.items() if name != "_loaded_at"} == {"id": 1}
    assert row["_loaded_at"].tzinfo is not None


def test_a_batch_of_a_transaction_is_loaded_once(tmp_path: Path) -> None:
    for expected in (False, True):
        assert widen.ingest(ORDERS, tmp_path / "t", txn=("app", 1)).is_repeated is expected
    assert len(rows(tmp_path / "t")) == 3


def test_an_iceberg_table_takes_data_in_memory(tmp_path: Path) -> None:
    done = widen.ingest(ORDERS, "shop.orders", catalog=str(tmp_path / "c.db"), verify=True)
    assert str(done.verification) == "11 of 11 leaves exact"
    assert done.records == 3


def test_nan_is_null_where_the_caller_says_so(tmp_path: Path) -> None:
    source = pa.table({"id": [1], "v": [NAN], "l": [[NAN, 1.5]], "s": [{"x": NAN}]})
    widen.ingest(source, tmp_path / "t", nan="null")
    assert rows(tmp_path / "t") == [{"id": 1, "l": [None, 1.5], "s": {"x": None}, "v": None}]
    with pytest.raises(InvalidOption, match="Must be keep or null"):
        widen.ingest(source, tmp_path / "t", nan="drop")


def test_a_text_column_has_documents_with_format_json(tmp_path: Path) -> None:
    source = pa.table({"key": [1, 2], "value": ['{"id": 1, "a": [1]}', '{"id": 2, "a": ["x"]}']})
    done = widen.ingest(source, tmp_path / "t", format="json", verify=True)
    assert (done.records, str(done.verification)) == (2, "4 of 4 leaves exact")
    with pytest.raises(SourceContentError, match="needs a column of texts"):
        widen.ingest(ORDERS, tmp_path / "t", format="json")


def test_data_without_rows_is_an_empty_source(tmp_path: Path) -> None:
    with pytest.raises(widen.RequestError, match="Table"):
        widen.ingest(ORDERS.slice(3), tmp_path / "t")


def test_polars_and_duckdb(tmp_path: Path) -> None:
    polars, duckdb = pytest.importorskip("polars"), pytest.importorskip("duckdb")
    frame = polars.from_arrow(ORDERS)
    with pytest.raises(InvalidOption, match=r"source cannot be 'LazyFrame'. A lazy frame has no rows yet. Pass source"):
        widen.ingest(frame.lazy(), into=tmp_path / "lazy")
    relation = duckdb.connect().from_arrow(ORDERS)
    cursor = duckdb.connect().execute("SELECT 1 AS id, 1.25 AS price, TIME '01:02:03' AS t, [1, 2] AS l")
    for at, source in enumerate((frame, relation, ORDERS)):
        widen.ingest(source, tmp_path / str(at), verify=True)
    expected = [{**row, "score": str(row["score"])} for row in rows(tmp_path / "2")]
    for at in range(2):
        assert types(tmp_path / str(at)) == types(tmp_path / "2")
        assert [{**row, "score": str(row["score"])} for row in rows(tmp_path / str(at))] == expected
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # DuckDB says that it copies the rows of a cursor
        widen.ingest(cursor, tmp_path / "c")
    assert rows(tmp_path / "c") == [{"id": 1, "l": [1, 2], "price": Decimal("1.25"), "t": "01:02:03.000000"}]


# ---- standard input --------------------------------------------------------------------------------


def give(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))


STDIN = [
    ("json", b'{"id": 1, "a": [1]}\n{"id": 2}\nnot\n', 2, 1),
    ("json", b'[{"id": 1,\n "a": [1]}, {"id": 2}]', 2, 0),
    ("csv", b'id,a\n1,"x\ny"\n2,\n', 2, 0),
]


@pytest.mark.parametrize(("format", "text", "records", "corrupt"), STDIN)
def test_standard_input_is_a_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, text: bytes, records: int, corrupt: int
) -> None:
    for source in ("-", ["-"]):
        give(monkeypatch, text)
        done = widen.ingest(source, tmp_path / "t", format=format, verify=True)
        assert (done.records, done.corrupt) == (records, corrupt)
        assert done.verification is not None
        assert done.verification.is_clean
        assert done.to_value()["sourceFiles"]["known"] == []
    assert not list(widen.Table(tmp_path / "t").loads())


@pytest.mark.parametrize(
    ("format", "text"),
    [("json", b'{"a": 1}\n{"a": "x"}\nnot\n'), ("csv", b"a;b\n1;2\n3;4;5\n"), ("text", b"one\ntwo\n")],
)
def test_standard_input_is_named_so_in_records_plans_and_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str, text: bytes
) -> None:
    give(monkeypatch, text)
    words = {"source_columns": True, "verify": True}
    done = widen.ingest("-", tmp_path / "t", format=format, quarantine=tmp_path / "q", **words)  # type: ignore[arg-type]
    assert done.verification is not None
    assert done.verification.is_clean
    found = widen.Table(tmp_path / "t").to_arrow()
    assert set(found.column("_source_file").to_pylist()) == {"standard input"}
    corrupt = found.column("_corrupt_at").drop_null().to_pylist() if "_corrupt_at" in found.schema.names else []
    assert [each.partition(":")[0] for each in corrupt] == ["standard input"] * done.corrupt
    assert "widen-memory" not in str(done.to_value())
    assert "widen-memory" not in "".join(path.read_text() for path in tmp_path.rglob("_delta_log/*.json"))
    give(monkeypatch, b"a\0,b\n" if format == "csv" else b"%PDF-1")
    with pytest.raises(WidenError) as caught:
        widen.ingest("-", tmp_path / "new", format="csv", options={"quote": ""})
    assert "widen-memory" not in str(caught.value)


def test_standard_input_without_a_record_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"")
    with pytest.raises(SourceError, match="standard input: it is empty"):
        widen.ingest("-", tmp_path / "t", format="json")


def test_standard_input_needs_a_format_and_is_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give(monkeypatch, b"{}")
    with pytest.raises(OptionMissing, match="Standard input has no name"):
        widen.ingest("-", tmp_path / "t")
    with pytest.raises(InvalidOption, match="together with files"):
        widen.ingest(["-", str(tmp_path)], tmp_path / "t", format="json")
    with pytest.raises(InvalidOption, match="cannot be followed"):
        widen.ingest_stream("-", tmp_path / "t", checkpoint=tmp_path / "c", format="json")


def test_the_declared_choices_of_nan_are_those_that_exist() -> None:
    from widen.sources.memory_source import Nan

    assert declared(IngestOptions)["nan"][1].choices == tuple(each.value for each in Nan)
