"""The report of a log written by hand: every number is counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.drift_log import data, info, schema, write_drift
from support.drift_log import field as column
from support.log_table import write_commit
from widen.errors import CorruptFile
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Add
from widen.protocol.parquet_files import LEAF_COUNTS, file_tag, move_to_commit_info
from widen.report.build_report import FooterUse, build_report, read_history
from widen.report.stopped_field import VersionTime
from widen.report.table_report import Report

V0, V1, V2 = (VersionTime(version, 1_700_000_000_000 + version * 86_400_000) for version in range(3))


@pytest.fixture
def report(tmp_path: Path) -> Report:
    return build_report(open_snapshot(LogStore(str(write_drift(tmp_path / "orders")))))


def test_the_table_as_a_whole(report: Report) -> None:
    assert (report.name, report.moment, report.rows, report.files, report.size_bytes) == ("orders", V2, 30, 2, 4000)
    assert [c.path for c in report.columns] == [
        ("total",),
        ("tags",),
        ("tags_array_string", "element"),
        ("_corrupt_record",),
    ]


def test_a_widened_column_is_counted_over_old_and_new_files(report: Report) -> None:
    total = report.columns[0]
    assert (total.type, total.types_before) == ("double", ("int",))
    assert (total.written, total.nulls, total.low, total.high) == (29, 1, 0.5, 90.0)
    assert (total.first, total.last) == (V0, V1)


def test_a_column_that_nothing_was_written_to_any_more_ends_early(report: Report) -> None:
    tags = report.columns[1]
    assert (tags.written, tags.nulls, tags.low, tags.high) == (6, 24, "a", "m")
    assert (tags.first, tags.last, tags.comment) == (V0, V0, "labels")


def test_what_the_log_does_not_count_is_unknown_and_keeps_its_origin(report: Report) -> None:
    items = report.columns[2]
    assert (items.written, items.nulls, items.share, items.first) == (None, None, None, None)
    assert items.evolved_from == "tags"


def test_files_older_than_a_column_hold_nothing_in_it(report: Report) -> None:
    corrupt = report.columns[3]
    assert (corrupt.written, corrupt.nulls, corrupt.first, corrupt.last) == (1, 29, V1, V1)
    assert corrupt.share == pytest.approx(1 / 30)


def test_the_intervals_and_what_they_changed(report: Report) -> None:
    intervals = [(i.moment.version, i.operation, i.records, i.corrupt, i.files, i.size_bytes) for i in report.intervals]
    assert intervals == [
        (0, "WRITE", 10, 0, 1, 1000),
        (1, "WRITE", 19, 1, 1, 3000),
        (2, "CHANGE COLUMN", 0, 0, 0, 0),
    ]
    widened, added, corrupt = report.intervals[1].changes
    assert (widened.what, widened.column, widened.old, widened.new) == ("widened", ("total",), "int", "double")
    assert (widened.grade, added.grade, corrupt.grade) == ("widening", "structural", "additive")
    assert [(r.rules, r.count, r.position, r.sample) for r in widened.reasons] == [(("D1",), 12, 6, "12.5")]
    assert corrupt.reasons == ()


def test_the_report_is_json(report: Report) -> None:
    value = json.loads(json.dumps(report.to_value()))
    assert value["columns"][0]["first"] == {"version": 0, "time": "2023-11-14T22:13:20.000Z"}
    assert value["intervals"][1]["changes"][0] == {
        "change": "widened",
        "column": "total",
        "grade": "widening",
        "from": "int",
        "to": "double",
        "reasons": [
            {
                "rules": ["D1"],
                "source": "total",
                "kinds": ["double"],
                "count": 12,
                "grade": "widening",
                "file": "file:/in/day%202/orders.json",
                "position": 6,
                "sample": "12.5",
            }
        ],
    }


def test_a_file_without_statistics_makes_the_numbers_approximate(tmp_path: Path) -> None:
    table = write_drift(tmp_path / "orders")
    bare = data("c.parquet", 5, 10)
    del bare["add"]["stats"]
    write_commit(table, 3, info("WRITE", 0), bare)
    report = build_report(open_snapshot(LogStore(str(table))))
    assert (report.rows, report.intervals[3].records) == (None, None)
    total = report.columns[0]
    assert (total.written, total.nulls, total.low, total.last) == (29, 1, None, None)
    assert (total.uncounted, total.is_approximate) == (1, True)
    assert any(note.startswith("Approximate (≈) counts leave out files") for note in report.notes)


def test_history_shows_removed_columns_and_garbled_events(tmp_path: Path) -> None:
    table = write_drift(tmp_path / "orders")
    write_commit(table, 3, info("WRITE", 0, events="[{"), schema(column("total", "double")))
    newest, *rest = read_history(open_snapshot(LogStore(str(table))), 2)
    assert [(c.what, c.column) for c in newest.changes] == [
        ("removed", ("tags",)),
        ("removed", ("tags_array_string",)),
        ("removed", ("_corrupt_record",)),
    ]
    assert [interval.moment.version for interval in rest] == [2]


def counts(*by_file: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """The entry of a commitInfo with the counts of the leaves of the files of a commit, in the order of the files."""
    adds = [Add(path=str(number), partition_values={}, size=1, modification_time=1, data_change=True,
                tags={LEAF_COUNTS: file_tag(values)}) for number, values in enumerate(by_file)]  # fmt: skip
    return move_to_commit_info(adds)[1]


def test_counts_in_commits_cover_what_statistics_do_not(tmp_path: Path) -> None:
    table = write_drift(tmp_path / "orders")
    paths = [("total",), ("tags",), ("tags_array_string", "element"), ("_corrupt_record",)]
    entry = info("WRITE", 0)
    entry["commitInfo"] |= counts(dict(zip(paths, (4, 0, 11, 1), strict=True)), dict.fromkeys(paths, 2))
    files = [data("c.parquet", 5, 10), data("d.parquet", 2, 10)]
    write_commit(table, 3, entry, *files)
    report = build_report(open_snapshot(LogStore(str(table))))
    total, tags, items, corrupt = report.columns
    assert (total.written, total.nulls, total.last) == (29 + 6, 1 + 1, report.moment)
    assert (tags.written, tags.nulls) == (6 + 2, 24 + 5)
    assert (items.values, items.written, items.uncounted, items.is_approximate) == (13, None, 1, True)
    assert corrupt.written == 1 + 3
    assert (report.rows, report.footers) == (37, 0)


def test_counts_of_other_leaves_and_damaged_counts_are_ignored(tmp_path: Path) -> None:
    table = write_drift(tmp_path / "orders")
    entry = info("WRITE", 0)
    entry["commitInfo"] |= counts({("total",): 4, ("gone",): 4})
    write_commit(table, 3, entry, data("c.parquet", 5, 10))
    damaged = info("WRITE", 0)
    damaged["commitInfo"][LEAF_COUNTS] = {"leaves": "00000000", "values": "no counts"}
    write_commit(table, 4, damaged, data("d.parquet", 5, 10))
    total = build_report(open_snapshot(LogStore(str(table)))).columns[0]
    assert (total.written, total.uncounted) == (29, 2)


def test_footers_count_the_files_of_other_writers(tmp_path: Path) -> None:
    table = write_drift(tmp_path / "orders")
    rows = [{"total": 0.25, "tags": None, "tags_array_string": ["a", None, "zz"]}, {"tags": "q"}, {"total": 900.0}]
    columns = pa.schema(
        [
            ("total", pa.float64()),
            ("tags", pa.string()),
            ("tags_array_string", pa.list_(pa.string())),
            ("_corrupt_record", pa.string()),
        ]
    )
    pq.write_table(pa.Table.from_pylist(rows, columns), table / "c.parquet")
    for version in (3, 4):
        removed = {"remove": {"path": f"{'ab'[version - 3]}.parquet", "dataChange": True, "deletionTimestamp": 1}}
        write_commit(table, version, info("DELETE", 0), removed)
    bare = data("c.parquet", 3, 10)
    del bare["add"]["stats"]
    write_commit(table, 5, info("WRITE", 0), bare)
    snapshot = open_snapshot(LogStore(str(table)))
    report = build_report(snapshot)
    total, tags, items, corrupt = report.columns
    assert (report.rows, report.files, report.footers) == (3, 1, 1)
    assert (total.written, total.nulls, total.low, total.high) == (2, 1, 0.25, 900.0)
    assert (tags.written, tags.low, corrupt.written) == (1, "q", 0)
    assert (items.values, items.written, items.low, items.high) == (2, None, "a", "zz")
    assert build_report(snapshot, FooterUse.NONE).columns[0].values is None
    (table / "c.parquet").write_bytes(b"not Parquet")
    assert build_report(snapshot).columns[0].values is None
    with pytest.raises(CorruptFile):
        build_report(snapshot, FooterUse.ALL)
