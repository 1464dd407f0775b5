"""The proof of typed records judges rows one by one: good rows are found again, and a row that is damaged never is.

Every column of every row is damaged in turn: its value is missing, is another one, or stands in another column.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from widen.spark.engine import require_spark
from widen.targets import delta as delta_target
from widen.targets import table_format
from widen.verification.records import DIGEST, Side, verify

UTC = timezone.utc
RECORD = pa.struct({"x": pa.int64(), "y": pa.string(), "z": pa.struct({"d": pa.date32()})})

VALUES: Mapping[str, tuple[pa.DataType, Sequence[Any]]] = {
    "bo": (pa.bool_(), [True, False]),
    "by": (pa.int8(), [-128, 127]),
    "i": (pa.int32(), [-(2**31), 2**31 - 1, 0]),
    "l": (pa.int64(), [-(2**63), 2**63 - 1, 2**53 + 1]),
    "fl": (pa.float32(), [0.1, float("nan"), -0.0, 3.0e38]),
    "d": (pa.float64(), [1e-300, float("-inf"), -0.0, 1e16, 0.1]),
    "de": (pa.decimal128(38, 6), [Decimal("12345678901234567890.5"), Decimal("-0.000001")]),
    "s": (pa.string(), ['"\\\0é\n', "", "2024-05-01", "7"]),
    "b": (pa.binary(), [b"\0\xff", b""]),
    "da": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(1970, 1, 1)]),
    "t": (
        pa.timestamp("us", "UTC"),
        [datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), datetime(2024, 5, 1, tzinfo=UTC)],
    ),
    "tn": (pa.timestamp("us"), [datetime(2024, 5, 6), datetime(9999, 12, 31, 23, 59, 59, 1)]),
    "r": (RECORD, [{"x": 1, "y": "v", "z": {"d": date(2024, 1, 1)}}, {"x": None, "y": None, "z": None}]),
    "li": (pa.list_(pa.list_(pa.int16())), [[[1], None, []], []]),
    "lr": (pa.list_(RECORD), [[{"x": 2, "y": "w", "z": {"d": None}}, None]]),
    "m": (pa.map_(pa.string(), RECORD), [[("k", {"x": 3, "y": None, "z": None}), ("", None)], []]),
    "k": (pa.map_(pa.int64(), pa.string()), [[(-(2**63), "v"), (7, None)]]),
    "kt": (pa.map_(pa.timestamp("us", "UTC"), pa.int32()), [[(datetime(2024, 5, 1, 1, 2, 3, 4, UTC), 1)]]),
}
"""Types of records, with their extremes."""


@dataclass(frozen=True)
class Case:
    """What a load is asked for.

    Args:
        first: Types of fields that an earlier load had, so that fields get more columns or cannot get any.
    """

    words: Mapping[str, Any]
    first: Mapping[str, pa.DataType]
    is_frame: bool = True


NUMBERS_FIRST = {"s": pa.int64(), "l": pa.float64(), "da": pa.timestamp("us"), "i": pa.string(), "lr": RECORD}
CASES: Mapping[str, Case] = {
    "files": Case({}, {}, is_frame=False),
    "a frame": Case({}, {}),
    "fields with several columns": Case({"evolve": "split"}, NUMBERS_FIRST),
    "fields that no column holds": Case({"evolve": "freeze"}, {**NUMBERS_FIRST, "m": pa.map_(pa.string(), pa.bool_())}),
    "what the policy hides": Case(
        {
            "mask": ["s", "r.y", "m.k.y", "k.7", "b"],
            "exclude": ["r.z", "by", "lr.x", "k.-9223372036854775808"],
            "pins": {"li": "json", "kt": "json", "d": "json", "m": "text"},
        },
        {},
    ),
    "strings that are read as dates": Case(
        {"detect_dates": True, "evolve": "split", "enable_type_widening": True}, {"s": pa.date32()}
    ),
}


def records(chance: random.Random, fields: Mapping[str, pa.DataType], rows: int, start: int = 0) -> pa.Table:
    """Return records with a number of their own, and with every value of `VALUES` in some of them."""
    columns: dict[str, pa.Array] = {"n": pa.array(range(start, start + rows), pa.int64())}
    for name, kind in fields.items():
        known, values = VALUES[name]
        chosen = [values[at % len(values)] if at < len(values) or chance.random() < 0.8 else None for at in range(rows)]
        columns[name] = pa.array(chosen if kind == known else [None] * rows, kind)
    return pa.table(columns)


def damaged(rows: pa.Table, chance: random.Random) -> Iterator[tuple[str, pa.Table]]:
    """Yield rows with one value changed, each with what was done to it."""
    for field in rows.schema:
        values = rows[field.name].to_pylist()
        stored = [at for at, value in enumerate(values) if value is not None]
        for at in chance.sample(stored, min(3, len(stored))):
            yield from _damaged_at(rows, field, at, chance)


def _damaged_at(rows: pa.Table, field: pa.Field, at: int, chance: random.Random) -> Iterator[tuple[str, pa.Table]]:
    row, index, value = rows.slice(at, 1), rows.schema.get_field_index(field.name), rows[field.name][at].as_py()

    def put(value: Any) -> pa.Table:
        return row.set_column(index, field, pa.array([value], field.type))

    yield f"row {at}: {field.name} is missing", put(None)
    other = change(value, field.type)
    if other is not None:
        yield f"row {at}: {field.name} has {other!r} for {value!r}", put(other)
    homes = [each for each in rows.schema if each.type == field.type and each.name != field.name]
    empty = [each for each in homes if row[each.name][0].as_py() is None]
    if empty:
        home = chance.choice(empty)
        to = rows.schema.get_field_index(home.name)
        yield f"row {at}: {field.name} stands in {home.name}", put(None).set_column(to, home, row[field.name])


def change(value: Any, kind: pa.DataType) -> Any:
    """Return another value of a type; None for one that is not changed."""
    if pa.types.is_boolean(kind):
        return not value
    if pa.types.is_integer(kind):
        return value - 1 if value > 0 else value + 1
    if pa.types.is_floating(kind):
        return 0.5 if value != 0.5 else 0.25
    if pa.types.is_decimal(kind):
        return value + Decimal(1).scaleb(-kind.scale)
    if pa.types.is_string(kind):
        return value + "!"
    if pa.types.is_binary(kind):
        return value + b"!"
    if pa.types.is_date(kind):
        return date(2001, 2, 3)
    if pa.types.is_timestamp(kind):
        return datetime(2001, 2, 3, 4, 5, 6, 7, tzinfo=UTC if kind.tz else None)
    if pa.types.is_struct(kind):
        for each in kind:
            inner = None if value[each.name] is None else change(value[each.name], each.type)
            if inner is not None:
                return {**value, each.name: inner}
        return None
    if pa.types.is_map(kind):
        return value[1:] if value else [("more", None)] if pa.types.is_string(kind.key_type) else None
    return value[1:] if value else [None]


def digests_of(side: Side) -> list[bytes]:
    return [bytes(each) for each in side.digests().select(DIGEST).toArrow().column(0).to_pylist()]


@pytest.mark.parametrize("name", CASES)
def test_a_damaged_row_is_never_found_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    require_spark(spark, "it compares digest by digest")
    case, chance, table = CASES[name], random.Random(name), str(tmp_path / "t")
    kinds = {key: kind for key, (kind, _) in VALUES.items()}
    if case.first:
        widen.ingest(
            source_of(spark, tmp_path / "0", pa.table({"n": pa.array([0]), **first_values(case.first)}), case), table
        )
    source = source_of(spark, tmp_path / "1", records(chance, kinds, 40, 1), case)
    asked: list[tuple[Any, ...]] = []
    verify_rows = table_format.verify_rows
    monkeypatch.setattr(delta_target, "verify_rows", lambda *words: asked.append(words) or verify_rows(*words))
    before = {*(tmp_path / "t").rglob("*.parquet")}
    done = widen.ingest(source, table, verify=True, spark=spark, **case.words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    assert done.quarantined == 0
    [words] = asked
    rows, policy, batch, result, *_ = words

    def sides() -> tuple[Side, Side]:
        paths = [file.path for file in result.files]
        return batch.source_digests(rows.schema, policy), batch.table_digests(rows, paths, policy, None)

    expected, stored = map(digests_of, sides())
    assert Counter(expected) == Counter(stored)
    # One file gets all damaged rows; the others become empty.
    files = sorted({*(tmp_path / "t").rglob("*.parquet")} - before)
    good = pa.concat_tables([pq.read_table(path, partitioning=None) for path in files])
    faults = list(damaged(good, chance))
    assert len(faults) > 15
    write_first(files, pa.concat_tables([each.cast(good.schema) for _, each in faults]))
    found = digests_of(sides()[1])
    assert len(found) == len(faults)
    judged = dict(zip((what for what, _ in faults), (each in set(expected) for each in found), strict=True))
    unseen = [what for what, is_seen in judged.items() if is_seen and not is_further(what, good)]
    assert unseen == []
    if name not in ("files", "a frame"):
        return  # digests are counted alike, whatever they are of
    for lost in (good.slice(1), pa.concat_tables([good, good.slice(3, 1)])):
        write_first(files, lost)
        verification = verify(*sides())
        assert not verification.is_clean
        assert (verification.lost > 0, verification.extra) == ((True, 0) if len(lost) < len(good) else (False, 1))


def is_further(what: str, rows: pa.Table) -> bool:
    """Return whether a fault is a value that is missing in one column of its field, and stands in another.

    The proof takes the value from any column of its field. Columns of texts must have it, too; whether a column of
    numbers or dates can hold it, the proof does not ask.
    """
    row, _, rest = what.removeprefix("row ").partition(": ")
    name, _, fault = rest.partition(" ")
    field = name.partition("_")[0]
    others = (each for each in rows.column_names if each.partition("_")[0] == field and each != name)
    is_text = pa.types.is_string(rows.schema.field(name).type)
    return fault == "is missing" and not is_text and any(rows[each][int(row)].as_py() is not None for each in others)


def first_values(kinds: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
    """Return one value of each type for a field."""
    values: dict[str, Any] = {
        "int64": 5, "double": 0.5, "string": "x", "timestamp[us]": datetime(2024, 1, 1), "date32[day]": date(2024, 1, 1)
    }  # fmt: skip
    found = {}
    for name, kind in kinds.items():
        value = (
            {"x": 1, "y": "v", "z": {"d": date(2024, 1, 1)}} if kind == RECORD else values.get(str(kind), [("k", True)])
        )
        found[name] = pa.array([value], kind)
    return found


def source_of(spark: SparkSession, place: Path, rows: pa.Table, case: Case) -> DataFrame | str:
    place.mkdir()
    pq.write_table(rows, place / "a.parquet")
    return spark.read.parquet(str(place)) if case.is_frame else str(place)


def write_first(files: Sequence[Path], rows: pa.Table) -> None:
    for number, path in enumerate(files):
        pq.write_table(rows if number == 0 else rows.slice(0, 0), path)
