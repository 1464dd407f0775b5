from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from support.log_table import PROTOCOL, SCHEMA, add, metadata, remove, write_commit
from widen.data_source.batch_reader import SourceOptions, select_columns
from widen.data_source.stream_reader import (
    StreamLimits,
    StreamOffset,
    StreamPlan,
    StreamReader,
    find_earlier_version,
)
from widen.errors import (
    ChangeFeedNotRecorded,
    DataSourceRefused,
    StreamColumnsChanged,
    StreamRowsChanged,
    VersionNotFound,
)
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot

ALL = StreamLimits()


def widened(table_id: str | None = None) -> dict[str, object]:
    line = metadata()
    line["metaData"]["schemaString"] = SCHEMA.replace('"date"', '"timestamp_ntz"')
    if table_id:
        line["metaData"]["id"] = table_id
    return line


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version 0 creates the table, 1 adds a and b, 2 adds nothing, 3 adds c."""
    write_commit(tmp_path, 0, PROTOCOL, metadata())
    write_commit(tmp_path, 1, add("a", size=10), add("b", size=20))
    write_commit(tmp_path, 2, {"commitInfo": {"operation": "none"}})
    write_commit(tmp_path, 3, add("c", size=30))
    return tmp_path


def plan(table: Path, version: int | None = None, **options: bool) -> StreamPlan:
    return StreamPlan(open_snapshot(LogStore(str(table)), version), **options)


def batches(stream: StreamPlan, start: StreamOffset, limits: StreamLimits = ALL) -> list[str]:
    """Read batches until there is nothing new, as names of files; offsets go through JSON as in a checkpoint."""
    result = []
    while (end := stream.find_end(start, limits)) != start:
        result.append("".join(part.file.path for part in stream.slices(start, end)))
        start = StreamOffset.from_json(json.loads(json.dumps(end.to_json())))
    return result


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        (ALL, ["abc"]),
        (StreamLimits(files=1), ["a", "b", "c"]),
        (StreamLimits(files=2), ["ab", "c"]),
        (StreamLimits(size_bytes=1), ["a", "b", "c"]),
        (StreamLimits(size_bytes=25), ["ab", "c"]),
    ],
)
@pytest.mark.parametrize("version", [None, 0, 1])
def test_every_file_is_in_one_batch(
    table: Path, version: int | None, limits: StreamLimits, expected: list[str]
) -> None:
    stream = plan(table)
    assert [files for files in batches(stream, stream.start(version), limits) if files] == expected


def test_a_stream_continues_with_what_is_new(table: Path) -> None:
    stream = plan(table)
    end = stream.find_end(stream.start(), ALL)
    assert (end, stream.find_end(end, ALL)) == (StreamOffset(end.table_id, 4), end)
    assert list(stream.slices(end, end)) == []
    write_commit(table, 4, add("d"))
    assert batches(stream, end) == ["d"]
    assert stream.find_end(end, ALL, newest=3) == end


@pytest.mark.parametrize("reads_changes", [False, True])
@pytest.mark.parametrize(("version", "first", "later"), [(None, "a", "bcde"), (4, "d", "e")])
def test_a_first_batch_that_is_repeated_begins_where_it_began(
    table: Path, version: int | None, first: str, later: str, *, reads_changes: bool
) -> None:
    write_commit(table, 4, metadata({"delta.enableChangeDataFeed": "true"}), add("d"))
    stream = plan(table, reads_changes=reads_changes)
    begin = stream.start(version)
    stored = StreamOffset.from_json(json.loads(json.dumps(stream.find_end(begin, StreamLimits(files=1)).to_json())))
    # The files of the snapshot are compacted, so that its rows are in others now.
    write_commit(table, 5, remove("a", dataChange=False), add("abc", dataChange=False), add("e"))
    stream = plan(table, reads_changes=reads_changes)
    again = stream.start(None if version is None else 5)
    assert [part.file.path for part in stream.slices(again, stored)] == [first]
    assert batches(stream, stored) == [later]


def test_a_checkpoint_that_does_not_say_where_the_stream_began_goes_on(table: Path) -> None:
    stream = plan(table)
    old = {"tableId": stream.snapshot.metadata.id, "version": 3, "index": 0, "isInitial": False}
    start = StreamOffset.from_json(old)
    end = stream.find_end(start, ALL)
    assert start.to_json() == old  # Spark compares offsets as texts
    assert end.to_json() == {**old, "version": 4}
    assert [part.file.path for part in stream.slices(start, end)] == ["c"]
    # Its first batch can be repeated as long as the table has not changed, and else says what to do.
    assert [part.file.path for part in stream.slices(stream.start(), end)] == ["a", "b", "c"]
    write_commit(table, 4, add("d"))
    later = plan(table)
    with pytest.raises(DataSourceRefused, match="does not say where its first batch begins"):
        list(later.slices(later.start(), end))


def test_a_batch_ends_before_a_change_of_columns_and_the_next_one_fails(table: Path) -> None:
    stream = plan(table)
    end = stream.find_end(stream.start(), ALL)
    write_commit(table, 4, add("d"))
    write_commit(table, 5, widened(), add("e"))
    before = stream.find_end(end, ALL)
    assert before == StreamOffset(end.table_id, 5)
    with pytest.raises(StreamColumnsChanged) as caught:
        stream.find_end(before, ALL)
    assert caught.value.fields["version"] == 5
    assert batches(plan(table), before) == ["e"]


def test_a_stream_of_a_frame_from_before_a_change_of_columns_ends_before_it(table: Path) -> None:
    write_commit(table, 4, widened(), add("d"))
    write_commit(table, 5, widened(), add("e"))  # the metadata again, with the same columns
    newest, old = open_snapshot(LogStore(str(table))), open_snapshot(LogStore(str(table)), 3)
    found = find_earlier_version(newest, lambda version: version.schema == old.schema)
    assert found is not None
    assert found.version == 3
    assert find_earlier_version(newest, lambda _: False) is None
    stream = StreamPlan(found, is_outdated=True)
    end = stream.find_end(stream.start(), ALL)
    assert [part.file.path for part in stream.slices(stream.start(), end)] == ["a", "b", "c"]
    with pytest.raises(StreamColumnsChanged, match="Version 4 of"):
        stream.find_end(end, ALL)
    assert batches(plan(table), end) == ["de"]
    with pytest.raises(DataSourceRefused, match="the checkpoint is after version 4, which changed them"):
        stream.find_end(StreamOffset(end.table_id, 5), ALL)


def test_a_run_over_what_is_there_ends_before_a_change_of_columns_and_says_so_once(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stream = plan(table)
    reader = StreamReader(SourceOptions({}), stream, select_columns(stream.snapshot, has_changes=False))
    write_commit(table, 4, add("d"))  # it has the same columns, but Spark has planned the stream without it
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start)
    assert StreamOffset.from_json(end).version == 4
    with caplog.at_level(logging.WARNING):
        assert reader.latestOffset(end) == end
        assert caplog.messages == []
    write_commit(table, 5, widened(), add("e"))
    reader = StreamReader(SourceOptions({}), stream, select_columns(stream.snapshot, has_changes=False))
    reader.prepareForTriggerAvailableNow()
    with caplog.at_level(logging.WARNING):
        assert [reader.latestOffset(end) for _ in range(2)] == [end, end]
    [message] = caplog.messages
    assert message.startswith("[DELTA_SCHEMA_CHANGED_WITH_VERSION] Version 5 of ")
    assert "Start the stream again with the same checkpoint" in message


@pytest.mark.parametrize("reads_changes", [False, True])
def test_rows_of_wider_types_than_a_table_went_back_to_are_refused(table: Path, *, reads_changes: bool) -> None:
    feed = metadata({"delta.enableChangeDataFeed": "true"})
    wide = widened()
    wide["metaData"]["configuration"] = feed["metaData"]["configuration"]  # type: ignore[index]
    write_commit(table, 4, feed)
    write_commit(table, 5, wide, add("wide"))
    write_commit(table, 6, feed, remove("wide"))
    write_commit(table, 7, add("d"))
    stream = plan(table, reads_changes=reads_changes, skips_changes=True)
    assert batches(stream, stream.start(7)) == ["d"]
    with pytest.raises(DataSourceRefused, match=r"the rows of version 5, .* have wider types"):
        batches(stream, stream.start(5))
    if reads_changes:
        with pytest.raises(DataSourceRefused, match=r"the rows of version 5, .* have wider types"):
            batches(stream, stream.start(6))
    initial = StreamOffset(stream.snapshot.metadata.id, 5, is_initial=True)
    with pytest.raises(DataSourceRefused, match=r"the rows of version 5, .* have wider types"):
        batches(stream, initial)


def test_a_property_does_not_stop_a_stream(table: Path) -> None:
    stream = plan(table)
    end = stream.find_end(stream.start(), ALL)
    write_commit(table, 4, metadata({"delta.appendOnly": "false"}), add("d"))
    assert batches(stream, end) == ["d"]


def test_another_table_at_the_same_place_stops_a_stream(table: Path) -> None:
    stream = plan(table)
    end = stream.find_end(stream.start(), ALL)
    write_commit(table, 4, widened("another"))
    with pytest.raises(DataSourceRefused, match="replaced by another table"):
        stream.find_end(end, ALL)
    with pytest.raises(DataSourceRefused, match="replaced by another table"):
        plan(table).find_end(end, ALL)


@pytest.mark.parametrize(
    ("lines", "options", "expected"),
    [
        ([remove("a")], {}, None),
        ([remove("a")], {"ignores_deletes": True}, "e"),
        ([remove("a"), add("d")], {"ignores_deletes": True}, None),
        ([remove("a"), add("d")], {"skips_changes": True}, "e"),
        ([remove("a", dataChange=False), add("d", dataChange=False)], {}, "e"),
    ],
)
def test_deleted_rows_stop_a_stream_unless_they_are_skipped(
    table: Path, lines: list[dict[str, object]], options: dict[str, bool], expected: str | None
) -> None:
    stream = plan(table, **options)
    end = stream.find_end(stream.start(), ALL)
    write_commit(table, 4, *lines)
    write_commit(table, 5, add("e"))
    if expected is None:
        with pytest.raises(StreamRowsChanged):
            stream.find_end(end, ALL)
    else:
        assert batches(stream, end) == [expected]


def test_a_version_of_the_change_feed_stays_whole(table: Path) -> None:
    write_commit(table, 4, metadata({"delta.enableChangeDataFeed": "true"}))
    stream = plan(table, reads_changes=True)
    end = stream.find_end(stream.start(), ALL)
    write_commit(table, 5, remove("a"), remove("b"), add("d"))
    write_commit(table, 6, add("e"))
    assert batches(stream, end, StreamLimits(files=1)) == ["dab", "e"]
    parts = list(stream.slices(end, StreamOffset(end.table_id, 6)))
    assert [(part.file.path, part.change_type, part.version) for part in parts] == [
        ("d", "insert", 5),
        ("a", "delete", 5),
        ("b", "delete", 5),
    ]
    with pytest.raises(ChangeFeedNotRecorded):
        stream.start(1)
    write_commit(table, 7, metadata())
    with pytest.raises(ChangeFeedNotRecorded):
        stream.find_end(StreamOffset(end.table_id, 7), ALL)


def test_a_stream_begins_at_a_version_that_exists_or_at_the_next_one(table: Path) -> None:
    stream = plan(table)
    newest = stream.snapshot.version
    for version in (newest + 1, 99):
        with pytest.raises(VersionNotFound):
            stream.start(version)
    assert stream.start(newest + 1, is_next=True).version == newest + 1
