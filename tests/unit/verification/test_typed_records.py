"""The proof for Parquet files of this process: what comes back from rows, and seeded faults that it must see."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from widen.batches import column_values
from widen.batches.column_values import QuarantinedRecord, RowConversion
from widen.errors import EngineUnsuitable, PostCommitFailed
from widen.files.arrow_types import to_arrow
from widen.model.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
)
from widen.targets import delta as delta_target
from widen.targets import table_format
from widen.verification.restored_values import Contradiction, restore_values

NAN, INFINITE = float("nan"), float("inf")

BACK: Sequence[tuple[DataType, DataType, Sequence[Any], Sequence[Any]]] = (
    (STRING, LONG, ["-9223372036854775808", None], [-(2**63), None]),
    (STRING, DOUBLE, ["1.5E-7", "NaN", "-Infinity", "-0.0"], [1.5e-7, NAN, -INFINITE, -0.0]),
    (STRING, FLOAT, ["0.1", "3.0E10"], [0.10000000149011612, 3e10]),
    (STRING, DecimalType(5, 2), ["-1.50"], [Decimal("-1.50")]),
    (STRING, BOOLEAN, ["true", "false"], [True, False]),
    (STRING, DATE, ["0001-01-01"], [date(1, 1, 1)]),
    (STRING, TIMESTAMP, ["2024-05-06T07:08:09.01Z"], [datetime(2024, 5, 6, 7, 8, 9, 10_000, timezone.utc)]),
    (STRING, TIMESTAMP_NTZ, ["9999-12-31T23:59:59.999999"], [datetime(9999, 12, 31, 23, 59, 59, 999_999)]),
    (DOUBLE, LONG, [123456789012345680.0, -7.0], [123456789012345680, -7]),
    (DOUBLE, INTEGER, [2.0, None], [2, None]),
    (DOUBLE, FLOAT, [0.5, NAN], [0.5, NAN]),
    (DOUBLE, DecimalType(12, 4), [1e-4, 12345678.25], [Decimal("0.0001"), Decimal("12345678.2500")]),
    (FLOAT, DOUBLE, [0.5], [0.5]),
    (LONG, BYTE, [-128], [-128]),
    (LONG, BOOLEAN, [1, 0, None], [True, False, None]),
    (LONG, DATE, [-1], [date(1969, 12, 31)]),
    (LONG, TIMESTAMP, [-1], [datetime(1969, 12, 31, 23, 59, 59, 999_000, timezone.utc)]),
    (DecimalType(9, 2), LONG, [Decimal("7.00")], [7]),
    (DecimalType(9, 2), DOUBLE, [Decimal("0.10")], [0.1]),
    (DecimalType(9, 2), DecimalType(3, 1), [Decimal("1.50")], [Decimal("1.5")]),
    (TIMESTAMP, DATE, [datetime(1969, 12, 31)], [date(1969, 12, 31)]),
    (TIMESTAMP_NTZ, DATE, [datetime(9999, 12, 31)], [date(9999, 12, 31)]),
    (TIMESTAMP, LONG, [datetime(2024, 5, 6)], ()),
)


@pytest.mark.parametrize(("stored", "original", "values", "wanted"), BACK)
def test_columns_give_values_back_in_the_type_of_the_source(
    stored: DataType, original: DataType, values: Sequence[Any], wanted: Sequence[Any]
) -> None:
    found = restore_values(pa.array(values, to_arrow(stored)), stored, original)
    if not wanted:
        assert found is None
        return
    assert found is not None
    assert found.type == to_arrow(original)
    # As texts, in which NaN is NaN, and -0.0 is not 0.0.
    texts = (each.cast(pa.string()) for each in (found, pa.array(wanted, to_arrow(original))))
    assert next(texts) == next(texts)


@pytest.mark.parametrize(
    ("stored", "original", "value"),
    [
        (STRING, LONG, "7.0"),
        (STRING, DecimalType(5, 2), "1.505"),
        (STRING, DATE, "2024-05-06T00:00:00"),
        (STRING, TIMESTAMP, "2024-05-06"),
        (STRING, TIMESTAMP_NTZ, "2024-05-06T00:00:00Z"),
        (DOUBLE, LONG, 0.5),
        (DOUBLE, FLOAT, 0.1),
        (DOUBLE, DecimalType(5, 2), 1.505),
        (LONG, BYTE, 128),
        (LONG, BOOLEAN, 2),
        (LONG, TIMESTAMP, 2**60),
        (DecimalType(38, 20), DOUBLE, Decimal("0.10000000000000000001")),
        (DecimalType(5, 2), DecimalType(3, 1), Decimal("1.55")),
        (TIMESTAMP, DATE, datetime(1969, 12, 31, 0, 0, 0, 1)),
    ],
)
def test_what_no_value_of_the_source_has_become_is_refused(stored: DataType, original: DataType, value: Any) -> None:
    with pytest.raises(Exception, match=r".*") as raised:
        restore_values(pa.array([value], to_arrow(stored)), stored, original)
    assert isinstance(raised.value, (pa.ArrowException, Contradiction))


RECORD = {"x": pa.int32()}
FIRST: Mapping[str, tuple[pa.DataType, Any]] = {
    "a": (pa.string(), "x"),
    "l": (pa.list_(pa.string()), ["y"]),
    "r": (pa.list_(pa.struct(RECORD)), [{"x": 1}]),
    "m": (pa.map_(pa.string(), pa.string()), [("k", "v")]),
    "f": (pa.date32(), date(2026, 1, 1)),
    "d": (pa.float64(), 0.5),
    "other": (pa.string(), "only"),
}
SECOND: Mapping[str, tuple[pa.DataType, Any]] = {
    "a": (pa.int64(), 7),
    "l": (pa.int32(), 9),
    "r": (pa.struct(RECORD), {"x": 4}),
    "m": (pa.map_(pa.string(), pa.int32()), [("k", 6), ("n", None)]),
    "f": (pa.bool_(), True),
    "d": (pa.decimal128(9, 2), Decimal("1.25")),
}
"""Two intervals that give most fields a second column."""

FAULTS: Mapping[str, tuple[str, Any]] = {
    "a column has another value": ("a", 8),
    "a column lacks its value": ("n", None),
    "a sibling of texts lacks the value": ("a_string", None),
    "a sibling of the type of the source lacks the value": ("a", None),
    "an array of texts lacks the value": ("l_array_string", None),
    "a map of texts lacks a value": ("m_map_string", [("k", None), ("n", None)]),
    "a sibling has another value": ("a_string", "8"),
    "a sibling has no number": ("a_string", "many"),
    "a value goes into a column of another kind": ("f_date", date(2026, 1, 1)),
    "an array has a scalar twice": ("l_array_string", ["9", "9"]),
    "a sibling of an array has another item": ("l_array_string", ["8"]),
    "a record has another value": ("r", {"x": 5}),
    "a sibling of a record has another value": ("r_array_record", [{"x": 5}]),
    "a sibling of a record is doubled": ("r_array_record", [{"x": 4}, {"x": 4}]),
    "a sibling of a map has another value": ("m_map_string", [("k", "7"), ("n", None)]),
    "a sibling of a map has another key": ("m_map_string", [("j", "6"), ("n", None)]),
    "a sibling of a map lacks a key": ("m_map_string", [("k", "6")]),
    "a decimal is rounded": ("d_double", 1.2),
    "a field has a value that no record has": ("other", "stale"),
}


def write(path: Path, fields: Mapping[str, tuple[pa.DataType, Any]], rows: int = 3) -> str:
    row = {name: value for name, (_, value) in fields.items()}
    schema = pa.schema([("n", pa.int32()), *((name, kind) for name, (kind, _) in fields.items())])
    nulls: dict[str, Any] = {}
    table = pa.Table.from_pylist([{"n": at, **(row if at else nulls)} for at in range(rows)], schema)
    pq.write_table(table, path)
    return str(path)


def prove_twice(monkeypatch: pytest.MonkeyPatch, place: Path, damage: Callable[[pa.Table], pa.Table]) -> list[str]:
    """Let a load be proved a second time after its file was damaged, and return why the proof then needs Spark."""
    before, reasons = {*place.rglob("*.parquet")}, list[str]()

    def verify_twice(*words: Any, **options: Any) -> Any:
        verification = table_format.verify_rows(*words, **options)
        assert table_format.verify_rows(*words, **options) == verification
        [path] = {*place.rglob("*.parquet")} - before
        pq.write_table(damage(pq.read_table(path, partitioning=None)), path)
        with pytest.raises(EngineUnsuitable) as raised:
            table_format.verify_rows(*words, **options)
        reasons.append(str(raised.value.fields["reason"]))
        return verification

    monkeypatch.setattr(delta_target, "verify_rows", verify_twice)
    return reasons


DIFFERS = "rows differ from their records, and it finds out which"


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_in_every_column_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    column, value = FAULTS[fault]
    table = str(tmp_path / "t")
    for name, fields in (("1", SECOND), ("2", FIRST)):
        widen.ingest(write(tmp_path / f"{name}.parquet", fields), table, evolve="split", engine="local")
    source = write(tmp_path / "3.parquet", SECOND)

    def damage(rows: pa.Table) -> pa.Table:
        values, field = rows[column].to_pylist(), rows.schema.field(column)
        at = rows["n"].to_pylist().index(1)
        assert values[at] != value
        values[at] = value
        return rows.set_column(rows.column_names.index(column), field, pa.array(values, field.type))

    reasons = prove_twice(monkeypatch, tmp_path / "t", damage)
    done = widen.ingest(source, table, evolve="split", engine="local", verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    assert reasons == [DIFFERS]


def test_fields_of_records_with_columns_of_several_kinds_are_counted(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    for name, fields in (("1", FIRST), ("2", SECOND)):
        source = write(tmp_path / f"{name}.parquet", fields)
        done = widen.ingest(source, table, engine="local", evolve="split", verify=True)
    # In each of two records only columns of texts hold a, l and m, and an array of records r, which counts as its kind.
    assert str(done.verification) == "9 of 15 leaves exact, 6 converted as the mode says"
    sample = widen.ingest(source, table, engine="local", evolve="split", verify=0.5).verification
    assert sample is not None
    assert sample.is_clean


HIDDEN = {"secret": (pa.string(), "s"), "r": (pa.struct({"x": pa.int32(), "y": pa.binary()}), {"x": 1, "y": b"y"})}
POLICY: Mapping[str, Any] = {"mask": ["SECRET", "r.y"], "exclude": ["r.x"], "engine": "local", "verify": True}


def test_masked_and_excluded_fields_are_compared_as_the_table_has_them(tmp_path: Path) -> None:
    done = widen.ingest(write(tmp_path / "1.parquet", HIDDEN), str(tmp_path / "t"), **POLICY)
    assert str(done.verification) == "7 of 7 leaves exact"


def all_but_first(values: pa.Array) -> pa.Array:
    return pa.concat_arrays([values[:2].cast(pa.string()), pa.array(["***"] * (len(values) - 2), pa.string())])


def fail_to_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(column_values, "_mask_values", all_but_first)


def lose_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    convert = RowConversion.convert

    def lossy(*words: Any) -> Any:
        rows, *others = convert(*words)
        return rows.slice(1), *others

    monkeypatch.setattr(RowConversion, "convert", lossy)


def change_the_quarantine(
    change: Callable[[list[QuarantinedRecord]], list[QuarantinedRecord]],
) -> Callable[[pytest.MonkeyPatch], None]:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        convert = RowConversion.convert

        def changed(*words: Any) -> Any:
            rows, quarantined, counts = convert(*words)
            return rows, change(quarantined), counts

        monkeypatch.setattr(RowConversion, "convert", changed)

    return apply


def with_text(old: str, new: str) -> Callable[[pytest.MonkeyPatch], None]:
    def change(records: list[QuarantinedRecord]) -> list[QuarantinedRecord]:
        assert old in records[0].text
        return [msgspec.structs.replace(each, text=each.text.replace(old, new)) for each in records]

    return change_the_quarantine(change)


FAULTY_WRITERS: Mapping[str, Callable[[pytest.MonkeyPatch], None]] = {
    "one that does not mask a value": fail_to_mask,
    "one that loses a row": lose_a_row,
    "one that loses a record of the quarantine": change_the_quarantine(lambda records: records[1:]),
    "one that keeps a record twice": change_the_quarantine(lambda records: [*records, *records[:1]]),
    "one that keeps another number": with_text('"n":2', '"n":3'),
    "one that keeps another secret": with_text("***", "s"),
    "one that keeps a field more": with_text('"n":2', '"n":2,"m":1'),
    "one that keeps no record": with_text("{", "["),
}


@pytest.mark.parametrize("fault", FAULTY_WRITERS)
def test_faults_of_writers_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    table = str(tmp_path / "t")
    properties = {"delta.constraints.few": "n < 2"}
    widen.create_table(table, "n int, secret string", properties=properties)
    source = write(tmp_path / "1.parquet", HIDDEN)
    done = widen.ingest(source, table, **POLICY)
    assert (done.records, done.quarantined, str(done.verification)) == (2, 1, "7 of 7 leaves exact")
    FAULTY_WRITERS[fault](monkeypatch)
    with pytest.raises(PostCommitFailed, match=DIFFERS):
        widen.ingest(source, table, **POLICY)


EVERY_TYPE: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "b": (pa.bool_(), [True, False]),
    "i": (pa.int64(), [-(2**63), 2**63 - 1]),
    "f": (pa.float32(), [0.1, NAN]),
    "d": (pa.float64(), [1e-300, -INFINITE]),
    "z": (pa.float64(), [-0.0, 1e16]),
    "c": (pa.decimal128(38, 6), [Decimal("12345678901234567890.5"), Decimal("-0.000001")]),
    "s": (pa.string(), ['"\\\0é\n', ""]),
    "y": (pa.binary(), [b"\0\xff", b""]),
    "e": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31)]),
    "t": (pa.timestamp("us", "UTC"), [datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc), None]),
    "u": (pa.timestamp("us"), [datetime(2024, 5, 6), datetime(9999, 12, 31, 23, 59, 59, 1)]),
    "l": (pa.list_(pa.list_(pa.int8())), [[[1], None, []], []]),
    "m": (pa.map_(pa.string(), pa.struct({"x": pa.date32()})), [[("k", {"x": None}), ("", None)], []]),
    "k": (pa.map_(pa.int64(), pa.bool_()), [[(-(2**63), True), (7, None)], []]),
    "o": (pa.map_(pa.bool_(), pa.int8()), [[(True, 1), (False, 2)], None]),
    "r": (pa.struct({"x": pa.struct({"y": pa.float32()})}), [{"x": {"y": 0.2}}, {"x": None}]),
}


def test_quarantined_records_of_every_type_are_proved(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int32()), *((name, kind) for name, (kind, _) in EVERY_TYPE.items())])
    place = tmp_path / "in"
    place.mkdir()
    # Files whose types differ are parts of their own, each with records in the quarantine.
    for name, kind in (("1", pa.int32()), ("2", pa.string())):
        rows = [{"n": None, **{name: values[at] for name, (_, values) in EVERY_TYPE.items()}} for at in (0, 1)]
        rows.append({"n": 1, "i": 2**53 + 1} if kind == pa.int32() else {"n": "x"})
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(
            pa.Table.from_pylist(rows, schema.set(0, pa.field("n", kind))), tmp_path / "in" / f"{name}.parquet"
        )
    widen.create_table(tmp_path / "t", "n int NOT NULL, f double, u timestamp_ntz")
    done = widen.ingest(place, str(tmp_path / "t"), engine="local", verify=True, evolve="widen")
    assert (done.records, done.quarantined) == (1, 5)
    assert done.verification is not None
    assert done.verification.is_clean


TEXTS: Mapping[str, tuple[Mapping[str, Any], str, str, str]] = {
    "a field that is kept as JSON": ({"pins": {"r": "json"}}, "r", '"x":1', '"x":2'),
    "a key that is kept as JSON": ({"pins": {"m": "text"}}, "m", '"k"', '"j"'),
    "a field more in JSON": ({"pins": {"r": "json"}}, "r", '"x":1', '"x":1,"w":1'),
    "a field twice in JSON": ({"pins": {"r": "json"}}, "r", '"x":1', '"x":1,"x":1'),
    "a day in JSON": ({"pins": {"r": "json"}}, "r", "9999-12-31", "9999-12-30"),
    "a value in the rescue column": ({"evolve": "freeze"}, "_rescued", '"x":1', '"x":2'),
    "a day in the rescue column": ({"evolve": "freeze"}, "_rescued", "9999-12-31", "9999-12-30"),
    "a field less in the rescue column": ({"evolve": "freeze"}, "_rescued", '"x":1,', ""),
    "no JSON in the rescue column": ({"evolve": "freeze"}, "_rescued", "{", "["),
    "a value that is not masked in JSON": (
        {"pins": {"r": "json"}, "mask": ["r.x"]}, "r", '"x":"***"', '"x":1'
    ),
}  # fmt: skip
"""What a table keeps as JSON: options, the column, and what is replaced by what in it."""


@pytest.mark.parametrize("fault", TEXTS)
def test_faults_in_what_is_kept_as_json_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    words, column, old, new = TEXTS[fault]
    table = str(tmp_path / "t")
    widen.create_table(table, "n int")
    record = pa.struct({"x": pa.int32(), "y": pa.date32()})
    rows = {
        "n": pa.array([1, 2], pa.int32()),
        "r": pa.array([{"x": 1, "y": date(9999, 12, 31)}, None], record),
        "m": pa.array([[("k", 1.5)], []], pa.map_(pa.string(), pa.float32())),
    }
    pq.write_table(pa.table(rows), tmp_path / "1.parquet")

    def damage(stored: pa.Table) -> pa.Table:
        texts = [text and text.replace(old, new, 1) for text in stored[column].to_pylist()]
        assert texts != stored[column].to_pylist()
        at = stored.column_names.index(column)
        return stored.set_column(at, stored.schema.field(at), pa.array(texts, pa.string()))

    reasons = prove_twice(monkeypatch, tmp_path / "t", damage)
    done = widen.ingest(tmp_path / "1.parquet", table, engine="local", verify=True, **words)
    assert done.verification is not None
    assert done.verification.is_clean
    assert reasons == [DIFFERS]


def test_entries_of_maps_that_the_policy_hides_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maps = pa.array([[("Phone", "1"), ("k", "2"), ("age", "3"), ("j", "{}")], None], pa.map_(pa.string(), pa.string()))
    pq.write_table(pa.table({"n": [1, 2], "m": maps}), tmp_path / "1.parquet")

    def damage(stored: pa.Table) -> pa.Table:
        [masked, *others] = stored["m"][0].as_py()
        assert [masked, *others] == [("Phone", "***"), ("k", "2"), ("j", "***")]
        changed = pa.array([[("Phone", "1"), *others], None], maps.type)
        return stored.set_column(stored.column_names.index("m"), "m", changed)

    reasons = prove_twice(monkeypatch, tmp_path / "t", damage)
    words: dict[str, Any] = {"mask": ["m.phone"], "exclude": ["m.AGE"], "allow_unmatched": True}
    done = widen.ingest(tmp_path / "1.parquet", str(tmp_path / "t"), engine="local", verify=True, **words)
    assert str(done.verification) == "5 of 5 leaves exact"
    assert reasons == [DIFFERS]


FAR_TIMES: Sequence[tuple[DataType, str, int]] = (
    (DATE, "+10000-01-01", 2932897),
    (DATE, "-0001-12-31", -719529),
    (DATE, "0000-02-29", -719469),
    (TIMESTAMP, "+10000-01-01T00:00:00.5Z", 253402300800500000),
    (TIMESTAMP_NTZ, "-0001-12-31T23:59:59.999999", -62167219200000001),
)


@pytest.mark.parametrize(("kind", "text", "wanted"), FAR_TIMES)
def test_dates_of_every_year_come_back_from_texts(kind: DataType, text: str, wanted: int) -> None:
    found = restore_values(pa.array([text, None]), STRING, kind)
    assert found is not None
    whole = pa.int32() if kind == DATE else pa.int64()
    assert found.cast(whole).to_pylist() == [wanted, None]
