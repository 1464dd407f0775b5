"""Files are filtered by the bounds of their columns, as the log spells them; a file that may match is never dropped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widen.files.predicates import bind_condition
from widen.log import file_list as file_filter
from widen.log.file_list import FILES, filter_files
from widen.model.types import (
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
    Field,
    StructType,
)
from widen.protocol.data_skipping import FileSelection

SCHEMA = StructType(
    (
        Field("id", LONG),
        Field("d", DOUBLE),
        Field("f", FLOAT),
        Field("s", STRING),
        Field("day", DATE),
        Field("at", TIMESTAMP),
        Field("ntz", TIMESTAMP_NTZ),
        Field("money", DecimalType(9, 2)),
        Field("r", StructType((Field("n", LONG),))),
        Field("p", LONG),
    )
)


def selection(where: str) -> FileSelection:
    return FileSelection(bind_condition(where, SCHEMA), SCHEMA, "none", ("p",))


def table(stats: Iterable[str | None], parts: Iterable[str | None] | None = None) -> pa.Table:
    texts = list(stats)
    parts = [None] * len(texts) if parts is None else list(parts)
    rows = [
        {"path": str(number), "partition_values": [("p", part)], "stats": text}
        for number, (text, part) in enumerate(zip(texts, parts, strict=True))
    ]
    return pa.Table.from_pylist(rows, FILES)


def stats(column: str, low: Any, high: Any, nulls: int | None = 0, rows: int = 10) -> str:
    value: dict[str, Any] = {"numRecords": rows, "minValues": {column: low}, "maxValues": {column: high}}
    return msgspec.json.encode({**value, "nullCount": {} if nulls is None else {column: nulls}}).decode()


def kept(files: pa.Table, where: str) -> list[int]:
    return [int(path) for path in filter_files(files, selection(where))["path"].to_pylist()]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("id = 5", [0, 3, 4]),
        ("id < 2", [0, 4]),
        ("id <= 1", [0, 4]),
        ("id > 19", [1, 4]),
        ("id >= 20", [1, 4]),
        ("id <> 7", [0, 1, 4]),
        ("id > 8.5", [0, 1, 4]),
        ("id < 1.5", [0, 4]),
        ("id IS NULL", [2, 4]),
        ("id IS NOT NULL", [0, 1, 3, 4]),
        ("NOT id = 7", [0, 1, 4]),
        ("id = 5 AND id > 6", [0, 3, 4]),
        ("id = 15 OR id IS NULL", [1, 2, 4]),
        ("id = 15 OR upper(s) = 'A'", [0, 1, 2, 3, 4]),
    ],
)
def test_bounds_of_integers(where: str, expected: list[int]) -> None:
    texts = [stats("id", 1, 9), stats("id", 10, 20), stats("id", None, None, 10), stats("id", 7, 7), None]
    if where == "id = 5":
        texts[3] = stats("id", 5, 5)
    if where == "id = 5 AND id > 6":
        texts[3] = stats("id", 5, 8)
    assert kept(table(texts), where) == expected


@pytest.mark.parametrize(
    ("column", "low", "high", "inside", "outside"),
    [
        ("d", 1.5, 2.5, "d = 2", "d = 3"),
        ("d", 1.5, 2.5, "d > 100", "d < 1"),
        ("f", 0.1, 0.2, "f = 0.10000000149011612", "f = 0.21"),
        ("s", "b", "d", "s = 'cat'", "s = 'e'"),
        ("s", "", "d", "s = ''", "s > 'd'"),
        ("s", "\uffff", "\U00010000", "s = '\U00010000'", "s < '\uffff'"),
        ("day", "2024-01-05", "2024-01-07", "day = DATE '2024-01-07'", "day = DATE '2024-01-08'"),
        (
            "at",
            "2024-01-05T00:00:00.000Z",
            "2024-01-05T00:00:01.000Z",
            "at = TIMESTAMP '2024-01-05T00:00:01.000999Z'",
            "at = TIMESTAMP '2024-01-05T00:00:01.002Z'",
        ),
        (
            "ntz",
            "2024-01-05T00:00:00.000",
            "2024-01-05",
            "ntz = TIMESTAMP_NTZ '2024-01-05T00:00:00'",
            "ntz > TIMESTAMP_NTZ '2024-01-06T00:00:00'",
        ),
        ("money", 1.25, 2.5, "money = 2.5", "money = 2.51"),
        ("r", {"n": 1}, {"n": 2}, "r.n = 2", "r.n = 3"),
    ],
)
def test_bounds_of_every_type(column: str, low: Any, high: Any, inside: str, outside: str) -> None:
    nulls: Any = {"n": 0} if column == "r" else 0
    files = table([stats(column, low, high, nulls), "{}", ""])
    assert kept(files, inside) == [0, 1, 2]
    assert kept(files, outside) == [1, 2]


def test_partitions_are_compared_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    files = table([stats("id", 1, 9)] * 4, ["1", "01", "2", None])
    assert kept(files, "p = 1") == [0, 1]
    assert kept(files, "p IS NULL") == [3]
    assert kept(files, "p = 2 AND id = 3") == [2]
    assert kept(files, "p = 2 AND id = 30") == []


@pytest.mark.parametrize(
    "odd",
    [
        "no statistics",
        " ",
        '{"numRecords":1}\n{"numRecords":1}',
        '{"minValues":{"id":"1"}}',
        '{"minValues":{"id":1.0}}',
        '{"minValues":{"id":99999999999999999999}}',
        '{"minValues":7}',
        '{"nullCount":{"id":{}}}',
        '{"minValues":{"id":1},"minValues":{"id":8}}',
        '{"minValues":{"id":1}',
        '[{"id":1}]',
    ],
)
def test_odd_statistics_are_decided_file_by_file(odd: str) -> None:
    files = table([stats("id", 1, 3), odd, " ", stats("id", 4, 6)])
    expected = [number for number in (1, 2, 3) if number != 1 or selection("id = 5").can_match({}, odd)]
    assert kept(files, "id = 5") == expected


def test_long_lists_are_decoded_without_a_look_at_each_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FileSelection, "can_match", None)
    files = table([stats("id", number, number) for number in range(3 * file_filter._ROWS)])
    assert kept(files, "id = 9000 AND id < 9001") == [9000]


_VALUES: Mapping[str, st.SearchStrategy[Any]] = {
    "id": st.integers(-3, 3),
    "d": st.sampled_from([-0.0, 0.1, 1e-300, -2.5, 3e38, 1e308]),
    "f": st.sampled_from([0.0, 0.1, 1e-45, -2.5, 3.4028235e38]),
    "s": st.sampled_from(["", "a", "aé", "\ue000", "\U0001f600"]),
    "money": st.sampled_from([0, 1.25, 0.1]),
}
_LITERALS = {
    "id": ["-1", "0", "2"],
    "d": ["0", "0.1D", "1e308"],
    "f": ["0", "0.1"],
    "s": ["''", "'a'"],
    "money": ["1.25"],
}


@given(st.data())
def test_a_file_that_may_match_is_never_dropped(data: st.DataObject) -> None:
    column = data.draw(st.sampled_from(sorted(_VALUES)))
    value = st.none() | _VALUES[column] | st.sampled_from(["x", True])
    texts = data.draw(
        st.lists(st.none() | st.builds(stats, st.just(column), value, value, st.none() | st.integers(0, 2), st.just(2)))
    )
    literal, sign = (
        data.draw(st.sampled_from(_LITERALS[column])),
        data.draw(st.sampled_from(["=", "<>", "<", "<=", ">", ">="])),
    )
    where = data.draw(st.sampled_from(["{}", "NOT ({})", "({}) AND p = 1", "({}) OR p IS NULL"]))
    chosen = selection(where.format(f"{column} {sign} {literal}"))
    files = table(texts, [data.draw(st.sampled_from([None, "1", "2"])) for _ in texts])
    rows = files.select(["partition_values", "stats"]).to_pylist()
    possible = [n for n, row in enumerate(rows) if chosen.can_match(dict(row["partition_values"]), row["stats"])]
    found = [int(path) for path in filter_files(files, chosen)["path"].to_pylist()]
    assert set(possible) <= set(found)
    assert column == "f" or found == possible
