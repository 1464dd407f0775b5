"""Skipping files after a type change, by every kind of statistics and of partition texts; without Spark.

The rows are those of Delta Lake's own suite: two old files in a checkpoint, a change of type, a new file after it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from widen.files.predicates import bind_condition
from widen.frames.scan import plan_read
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.schema_json import from_json, parse_type, to_json
from widen.model.types import StructType
from widen.protocol.actions import Action, Add, Metadata, Protocol
from widen.protocol.type_widening import record_type_changes

FEATURES = ("typeWidening", "timestampNtz")
PROTOCOL = Protocol(min_reader_version=3, min_writer_version=7, reader_features=FEATURES, writer_features=FEATURES)
STATS_FORMS = [("true", "true"), ("true", "false"), ("false", "true"), ("false", "false")]


class Made:
    """A table whose column ``a`` changes, built commit by commit."""

    def __init__(self, place: Path, old: str, partitioned: bool = False, **properties: str) -> None:
        self.store, self.partitioned = LogStore(str(place)), partitioned
        self.metadata = Metadata(
            id="m",
            schema_string=to_json(schema(old)),
            partition_columns=("a",) if partitioned else (),
            configuration={"delta.enableTypeWidening": "true", **properties},
        )
        self.snapshot = commit(self.store, None, [PROTOCOL, self.metadata], "CREATE TABLE", {}).or_raise().snapshot

    def commit(self, *actions: Action) -> None:
        self.snapshot = commit(self.store, self.snapshot, actions, "WRITE", {}).or_raise().snapshot

    def widen(self, new: str) -> None:
        wider = record_type_changes(from_json(self.metadata.schema_string), schema(new))
        self.metadata = Metadata(
            id="m",
            schema_string=to_json(wider),
            partition_columns=self.metadata.partition_columns,
            configuration=self.metadata.configuration,
        )
        self.commit(self.metadata)

    def add(self, path: str, low: Any, high: Any = None, partition: str | None = None) -> None:
        stats = {"numRecords": 3, "minValues": {"a": low}, "maxValues": {"a": low if high is None else high}}
        text = json.dumps({"numRecords": 3} if self.partitioned else {**stats, "nullCount": {"a": 0}})
        values = {"a": partition} if self.partitioned else {}
        self.commit(Add(path=path, partition_values=values, size=1, modification_time=1, data_change=True, stats=text))

    def kept(self, where: str) -> list[str]:
        """Return the files that Spark would read."""
        return kept(open_snapshot(self.store), where)


def schema(a: str) -> StructType:
    parsed = parse_type(f"struct<a: {a}, b: int>")
    assert isinstance(parsed, StructType)
    return parsed


def kept(snapshot: Snapshot, where: str) -> list[str]:
    groups = plan_read(snapshot, bind_condition(where, snapshot.schema)).groups
    return sorted(path for group in groups for path in group.files["path"].to_pylist())


@pytest.mark.parametrize("partitioned", [False, True], ids=["flat", "partitioned"])
@pytest.mark.parametrize(("as_json", "as_struct"), STATS_FORMS)
def test_data_skipping_after_type_change(tmp_path: Path, partitioned: bool, as_json: str, as_struct: str) -> None:
    """Old statistics still skip files: in commits, in an old checkpoint and in a new one."""
    properties = {"delta.checkpoint.writeStatsAsJson": as_json, "delta.checkpoint.writeStatsAsStruct": as_struct}
    made = Made(tmp_path, "smallint", partitioned, **properties)
    made.add("one", -32768, partition="-32768")
    made.add("two", 1, partition="1")
    checkpoint_alone(made, tmp_path)
    made.widen("int")
    made.add("three", 2147483647, partition="2147483647")

    knows = partitioned or "true" in (as_json, as_struct)
    assert made.kept("a = 1") == (["two"] if knows else ["one", "two"])
    assert made.kept("a = -2147483648") == ([] if knows else ["one", "two"])

    checkpoint_alone(made, tmp_path)
    assert made.kept("a = 1") == (["two"] if knows else ["one", "three", "two"])
    assert made.kept("a > 32767") == (["three"] if knows else ["one", "three", "two"])


def checkpoint_alone(made: Made, place: Path) -> None:
    """Write a checkpoint and delete everything before it."""
    write_checkpoint(made.snapshot)
    for path in (place / "_delta_log").glob("*[0-9].json"):
        path.unlink()


CASES = [
    ("tinyint", "decimal(12,2)", (-128, 127), ["a = -128", "a = 127.00", "a > 126.99"], ["a > 127", "a < -128.01"]),
    ("int", "bigint", (5, 5), ["a = 5", "a < 2147483648"], ["a = 2147483653", "a > 5"]),
    ("int", "double", (16777217, 16777217), ["a = 16777217", "a > 16777216"], ["a < 16777200", "a = 16777300"]),
    ("bigint", "decimal(38,18)", (7, 9), ["a = 8.5", "a >= 9"], ["a > 9.000001", "a = 9223372036854775808"]),
    (
        "float",
        "double",
        (3.4, 3.4),
        ["a = 3.4000000953674316", "a > 3.4", "a = 3.4", "a >= 3.4000000953674316", "a <= 3.4"],
        ["a <= 3.39", "a < 3.39", "a = 3.41"],
    ),
    (
        "date",
        "timestamp_ntz",
        ("2024-02-29", "2024-02-29"),
        ["a = '2024-02-29'", "a >= timestamp_ntz'2024-02-29 00:00:00'", "a < date'2024-03-01'"],
        ["a > timestamp_ntz'2024-02-29 00:00:00.002'", "a = '2024-02-28'", "a < date'2024-02-29'"],
    ),
    ("decimal(9,2)", "decimal(18,2)", (1.23, 1.5), ["a = 1.23", "a < 21474836.48"], ["a > 1.5", "a = 21474836.48"]),
    ("decimal(9,2)", "decimal(19,4)", (1.23, 1.5), ["a = 1.2300", "a >= 1.4999"], ["a > 1.5000", "a < 1.2299"]),
    (
        "timestamp_ntz",
        "timestamp_ntz",
        ("2024-01-01T00:00:00.123", "2024-01-01T00:00:00.123"),
        ["a = timestamp_ntz'2024-01-01 00:00:00.123999'", "a > timestamp_ntz'2024-01-01 00:00:00.1235'"],
        ["a > timestamp_ntz'2024-01-01 00:00:00.124001'", "a < timestamp_ntz'2024-01-01 00:00:00.123'"],
    ),
    (
        "timestamp",
        "timestamp",
        ("2024-01-01T00:00:00.123Z", "2024-01-01T00:00:00.123Z"),
        ["a = timestamp'2024-01-01T00:00:00.123999Z'", "a > timestamp'2024-01-01T00:00:00.1235Z'"],
        ["a > timestamp'2024-01-01T00:00:00.124001Z'", "a < timestamp'2024-01-01T00:00:00.123Z'"],
    ),
]


@pytest.mark.parametrize(("old", "new", "ends", "keep", "skip"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
@pytest.mark.parametrize("place", ["commit", "json", "struct"])
def test_old_statistics_are_compared_in_the_new_type(
    tmp_path: Path, place: str, old: str, new: str, ends: tuple[Any, Any], keep: list[str], skip: list[str]
) -> None:
    forms = {"json": ("true", "false"), "struct": ("false", "true"), "commit": ("true", "true")}[place]
    properties = {
        f"delta.checkpoint.writeStatsAs{kind}": form for kind, form in zip(("Json", "Struct"), forms, strict=True)
    }
    made = Made(tmp_path, old, **properties)
    made.add("f", *ends)
    if place != "commit":
        checkpoint_alone(made, tmp_path)
    if old != new:
        made.widen(new)
    assert [where for where in keep if made.kept(where) != ["f"]] == []
    assert [where for where in skip if made.kept(where)] == []


@pytest.mark.parametrize(
    ("old", "new", "texts", "where"),
    [
        ("int", "decimal(11,1)", ("1", "1.0", "2"), "a = 1"),
        ("int", "double", ("1", "1.0", "2.0"), "a = 1"),
        ("decimal(5,1)", "decimal(9,3)", ("1.5", "1.500", "1.501"), "a <= 1.5"),
        (
            "date",
            "timestamp_ntz",
            ("2024-01-01", "2024-01-01 00:00:00", "2024-01-01 00:00:00.000001"),
            "a = date'2024-01-01'",
        ),
        ("date", "timestamp_ntz", ("2024-01-01", "2024-01-01 00:00:00", "2024-01-02"), "a < '2024-01-01 12:00:00'"),
        ("float", "double", ("3.4", "3.4000000953674316", "3.5"), "a < 3.45"),
        ("tinyint", "bigint", ("-1", "-1", ""), "a is not null"),
    ],
)
def test_partition_texts_are_compared_by_value(
    tmp_path: Path, old: str, new: str, texts: tuple[str, str, str], where: str
) -> None:
    made = Made(tmp_path, old, partitioned=True)
    made.add("old", 0, partition=texts[0])
    made.widen(new)
    made.add("new", 0, partition=texts[1])
    made.add("other", 0, partition=texts[2])
    assert made.kept(where) == ["new", "old"]
    assert made.kept(f"not ({where}) or a is null") == ["other"]
