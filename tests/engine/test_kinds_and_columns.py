"""Every kind of value meets every column, in every mode: what is stored, and what the proof says of it.

Tables have a field for each pair of a kind and a set of columns, and a row for each field. Texts meet all pairs in
each mode; rows of Spark meet each pair in one of the modes, and with WIDEN_TEST_ENGINE=spark in all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from conftest import ENGINE
from support.stable_interval import ingest_texts
from widen import ingest
from widen.evolution.policy import Mode, Policy
from widen.json.kinds import leaf_and_dim
from widen.model.schema_json import parse_type
from widen.model.types import DATE, INTEGER, DataType, DecimalType, Field, StructType
from widen.schema.source_metadata import SOURCE, role_of, source_key
from widen.table import Table

UTC = timezone.utc
NOON, DAY = datetime(2024, 5, 1, 12, tzinfo=UTC), date(2024, 5, 1)
MIDNIGHT, DAYS, MS = datetime(2024, 5, 1, tzinfo=UTC), 19844, 1714564800000

VALUES: Mapping[str, tuple[str, str, Mapping[str, Any]]] = {
    "boolean": ("true", "true", {"boolean": True, "string": "true"}),
    "long": ("7", "7", {**dict.fromkeys(("integer", "long", "double", "decimal"), 7), "string": "7"}),
    "large": (
        *("9007199254740993", "9007199254740993L"),
        {**dict.fromkeys(("long", "decimal"), 2**53 + 1), "string": "9007199254740993"},
    ),
    "double": ("2.5", "2.5D", {**dict.fromkeys(("double", "decimal"), 2.5), "string": "2.5"}),
    "date": (
        *('"2024-05-01"', "date'2024-05-01'"),
        {"date": DAY, **dict.fromkeys(("integer", "long", "double", "decimal"), DAYS), "string": "2024-05-01"}
        | {"timestamp": MIDNIGHT, "timestamp_ntz": MIDNIGHT.replace(tzinfo=None)},
    ),
    "timestamp": (
        *('"2024-05-01T12:00:00Z"', "timestamp'2024-05-01 12:00:00Z'"),
        {"timestamp": NOON, **dict.fromkeys(("long", "double", "decimal"), MS), "string": "2024-05-01T12:00:00Z"},
    ),
    "date text": ('"2024-05-01"', "'2024-05-01'", {}),
    "timestamp text": ('"2024-05-01T12:00:00Z"', "'2024-05-01T12:00:00Z'", {}),
    "string": ('"x"', "'x'", {"string": "x"}),
}
"""For each kind a value as JSON and in SQL, and what the columns without arrays have for it (the lattice, D2, D5)."""

EPOCH = datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC)
IN_TIMESTAMPS = {"long": EPOCH, "large": datetime(2255, 6, 5, 23, 47, 34, 740993, UTC)}
"""What a timestamp column has for an integer, which it does not cover (U16)."""

READ_BY = {"date": {"date", "timestamp", "timestamp_ntz"}, "timestamp": {"date", "timestamp"}}
"""The columns of a field whose typed strings are read as dates, or as timestamps in UTC (D6, D16)."""

TYPES = (
    *("boolean", "int", "bigint", "double", "decimal(20,2)", "date", "timestamp", "timestamp_ntz", "string"),
    "array<bigint>",
)
COLUMNS = [(each,) for each in TYPES] + [
    *(("bigint", "timestamp"), ("date", "bigint"), ("timestamp", "double"), ("timestamp_ntz", "bigint")),
    *(("bigint", "string"), ("int", "date", "timestamp"), ("boolean", "string"), ("bigint", "array<string>")),
]
PAIRS = [(kind, columns) for kind in VALUES for columns in COLUMNS]

MODES = ("split", "widen", "freeze")


def shares() -> list[list[int]]:
    """Return the numbers of the pairs in as many shares as there are modes, each with all kinds and all columns."""
    ways = len(COLUMNS)
    return [[n for n in range(len(PAIRS)) if (n // ways + n % ways) % len(MODES) == at] for at in range(len(MODES))]


@pytest.mark.parametrize("is_text", [True, False], ids=["text", "typed"])
@pytest.mark.parametrize("mode", MODES)
def test_every_column_has_what_the_rules_say(spark: SparkSession, tmp_path: Path, mode: str, *, is_text: bool) -> None:
    tables = [list(range(len(PAIRS)))]
    if not is_text:
        # What Spark does with a query grows faster than its columns.
        tables = shares() if ENGINE == "spark" else [shares()[MODES.index(mode)]]
    for at, fields in enumerate(tables):
        place = tmp_path / str(at)
        place.mkdir()
        ensure_rules_hold(spark, place, mode, fields, is_text=is_text)


def ensure_rules_hold(spark: SparkSession, place: Path, mode: str, numbers: Sequence[int], *, is_text: bool) -> None:
    """Ingest a table with the fields of these numbers, and a row for each."""
    widen.create_table(str(place / "t"), columns(numbers))
    source: Any = str(place / "in.jsonl")
    if is_text:
        lines = (f'{{"n":{n},"f{n}":{VALUES[PAIRS[n][0]][0]}}}\n' for n in numbers)
        (place / "in.jsonl").write_text("".join(lines))
    else:
        fields = (f"IF(n = {n}, {VALUES[PAIRS[n][0]][1]}, NULL) AS f{n}" for n in numbers)
        values = ", ".join(f"({n})" for n in numbers)
        source = spark.sql(f"SELECT n, {', '.join(fields)} FROM VALUES {values} AS t(n)").coalesce(1)
    done = ingest(source, str(place / "t"), evolve=mode, detect_dates=is_text, verify=True)
    table = Table(str(place / "t"))
    found = {row["n"]: row.asDict() for row in table.read(spark=spark).collect()}
    wrong = [each for n in found for each in differences(n, table.schema, found, mode, is_text=is_text)]
    assert not wrong, "\n".join(wrong)
    assert done.verification is not None
    assert done.verification.is_clean, str(done.verification)
    assert sorted(found) == [*numbers]


def columns(numbers: Sequence[int]) -> StructType:
    """Return the columns of a table: field number n has f{n}, f{n}_1 and so on."""
    fields = [
        Field(f"f{n}_{at}" if at else f"f{n}", parse_type(each), metadata={SOURCE: [f"f{n}"]})
        for n in numbers
        for at, each in enumerate(PAIRS[n][1])
    ]
    return StructType((Field("n", INTEGER), *fields))


def differences(
    n: int, schema: StructType, rows: Mapping[int, dict[str, Any]], mode: str, *, is_text: bool
) -> Iterator[str]:
    """Yield what the columns and the rescue column of a field do not have as they should."""
    (kind, types), row, is_covered = PAIRS[n], rows[n], False
    for field in schema:
        if source_key(field) != f"f{n}" or role_of(field) is not None:
            continue
        leaf, dim = leaf_and_dim(field.type)
        wanted = expected(kind, types, leaf, mode, is_text=is_text)
        is_covered |= wanted is not None and not (kind in IN_TIMESTAMPS and str(leaf) == "timestamp")
        value = row[field.name]
        plain = value[0] if dim and value is not None and len(value) == 1 else value
        plain = plain.astimezone(UTC) if str(leaf) == "timestamp" and plain is not None else plain
        if plain != wanted:
            yield f"{mode}: {kind} into {types}: {field.name} {field.type.sql} has {value!r}, not {wanted!r}"
    rescued = row.get("_rescued")
    if (rescued is not None) == is_covered or (rescued is not None and mode != "freeze"):
        yield f"{mode}: {kind} into {types}: rescued {rescued!r}"


def expected(kind: str, types: tuple[str, ...], leaf: DataType, mode: str, *, is_text: bool) -> Any:
    """Return what a column without arrays has for a value, or None."""
    name = "decimal" if isinstance(leaf, DecimalType) else str(leaf)
    if kind.endswith(" text"):
        base = kind.removesuffix(" text")
        is_read = is_text or bool(READ_BY[base] & {*types})
        return VALUES[base][2].get(name) if is_read or name == "string" else None
    if kind == "boolean" and mode == "split" and name in ("integer", "long", "double", "decimal"):
        return 1
    return IN_TIMESTAMPS[kind] if name == "timestamp" and kind in IN_TIMESTAMPS else VALUES[kind][2].get(name)


@pytest.mark.parametrize("kind", VALUES)
def test_fail_refuses_what_freeze_rescues(kind: str) -> None:
    text, dates = VALUES[kind][0], frozenset({()})
    for types in COLUMNS:
        fields = (Field(f"c{n}", parse_type(each), metadata={SOURCE: ["f"]}) for n, each in enumerate(types))
        schema, batch = StructType(tuple(fields)), [f'{{"f":{text}}}'.encode()]
        frozen = ingest_texts(schema, batch, Policy(Mode.FREEZE, date_fields=dates))
        is_rescued = frozen.rows[0][0].get("_rescued") is not None
        refusals = ingest_texts(schema, batch, Policy(Mode.FAIL, date_fields=dates)).plan.refused
        assert bool(refusals) == is_rescued, types


STRINGS = ("2024-05-01", "2024-05-01T12:00:00.5Z", "2024-05-01T12:00:00.0005Z", "x", "19844")
NUMBERS = ("bigint", "double", "decimal(20,0)", "int", "array<bigint>")


@pytest.mark.parametrize("is_text", [True, False], ids=["text", "typed"])
def test_counts_of_dates_are_no_loss(spark: SparkSession, tmp_path: Path, *, is_text: bool) -> None:
    """A column of numbers does not say whether it counts days or milliseconds; the field above has one of dates."""
    fields = [
        field
        for n, each in enumerate(NUMBERS)
        for field in (
            Field(f"f{n}", StructType((Field("x", parse_type(each)),))),
            Field(f"f{n}_date", DATE, metadata={SOURCE: [f"f{n}"]}),
        )
    ]
    widen.create_table(str(tmp_path / "t"), StructType(tuple(fields)))
    texts = [{f"f{n}": {"x": each} for n in range(len(NUMBERS))} for each in STRINGS]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, texts)))
    source: Any = str(tmp_path / "in.jsonl")
    source = source if is_text else spark.read.json(source)
    done = ingest(source, str(tmp_path / "t"), evolve="freeze", verify=True)
    found = [row.asDict() for row in Table(str(tmp_path / "t")).read(spark=spark).collect()]
    for n, each in enumerate(NUMBERS):
        values = [row[f"f{n}"]["x"] for row in found if row[f"f{n}"] is not None and row[f"f{n}"]["x"] is not None]
        counts = sorted(value[0] if isinstance(value, list) else value for value in values)
        assert counts == ([DAYS] if each == "int" else [DAYS, 1714564800500]), each
    assert done.verification is not None
    assert done.verification.is_clean, str(done.verification)
