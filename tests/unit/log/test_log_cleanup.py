"""Cleanup: what goes, what stays, and when nothing may go."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from support.log_table import (
    CHECKPOINT,
    SIDECAR,
    V2_CHECKPOINT,
    add,
    metadata,
    write_commit,
    write_json,
    write_parquet,
)
from widen.errors import StorageRefused, WidenError
from widen.log.checkpoint_writer import DAY_MS, MINUTE_MS, clean_up, clean_up_if_enabled, is_truncated
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot

HOUR_MS = 3_600_000
NOON_MS = 1_700_000_000_000 // DAY_MS * DAY_MS + 12 * HOUR_MS
"""Now: the middle of a day."""


def protocol(*features: str) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": list(features)}}


class Log:
    """A log whose files are of the times that a test wants."""

    def __init__(self, table: Path, configuration: dict[str, str] | None = None, *features: str) -> None:
        self.table = table
        self.lines = [protocol(*features), metadata(configuration, ())]

    def commit(self, version: int, age_ms: int, *lines: dict[str, Any]) -> Log:
        lines = tuple(self.lines) if version == 0 else lines
        self._aged(write_commit(self.table, version, *lines, add(f"{version}.parquet")), age_ms)
        self._aged(write_json(self.table, f"{version:020d}.crc", {}), age_ms)
        return self

    def checkpoint(self, version: int, age_ms: int) -> Log:
        self._aged(write_parquet(self.table, f"{version:020d}.checkpoint.parquet", CHECKPOINT, *self.lines), age_ms)
        return self

    def _aged(self, path: Path, age_ms: int) -> None:
        seconds = (NOON_MS - age_ms) / 1000
        os.utime(path, (seconds, seconds))

    def aged(self, name: str, age_ms: int) -> None:
        self._aged(self.table / "_delta_log" / name, age_ms)

    @property
    def names(self) -> list[str]:
        return sorted(path.name for path in (self.table / "_delta_log").iterdir())

    @property
    def versions(self) -> list[int]:
        return sorted(int(name[:20]) for name in self.names if name.endswith(f"{name[:20]}.json"))

    def clean(self, retention_ms: int, unit_ms: int = DAY_MS) -> int:
        return clean_up(open_snapshot(LogStore(str(self.table))), retention_ms, unit_ms, NOON_MS)


def ten_days(table: Path, configuration: dict[str, str] | None = None, *features: str) -> Log:
    """Versions 0 to 9, one a day, the last one now; checkpoints of 3, 6 and 9."""
    log = Log(table, configuration, *features)
    for version in range(10):
        log.commit(version, (9 - version) * DAY_MS)
        if version in (3, 6, 9):
            log.checkpoint(version, (9 - version) * DAY_MS)
    return log


def test_what_lies_before_the_newest_expired_checkpoint_goes(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    # The retention begins at midnight two days and a half ago: version 6 is the newest commit before it.
    assert log.clean(2 * DAY_MS) == 6 + 6 + 1
    assert log.versions == [6, 7, 8, 9]
    assert [name for name in log.names if "checkpoint" in name] == [f"{v:020d}.checkpoint.parquet" for v in (6, 9)]
    assert [name[:20] for name in log.names if name.endswith(".crc")] == [f"{v:020d}" for v in (6, 7, 8, 9)]
    assert open_snapshot(LogStore(str(tmp_path)), 6).version == 6


def test_a_late_commit_of_a_version_that_is_gone_changes_no_times(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    log.clean(4 * DAY_MS)
    log.commit(1, 0)
    assert log.versions == [1, 3, 4, 5, 6, 7, 8, 9]
    store = LogStore(str(tmp_path))
    assert open_snapshot(store, timestamp_ms=NOON_MS - 2 * DAY_MS).version == 7
    assert [time_ms for _, time_ms, _ in open_snapshot(store).history(3)] == [NOON_MS - at * DAY_MS for at in range(3)]
    log.clean(2 * DAY_MS)
    assert log.versions == [6, 7, 8, 9]


def test_an_older_checkpoint_does_if_there_is_none_at_the_newest_expired_commit(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    assert log.clean(1 * DAY_MS) > 0  # version 7 has expired, and the checkpoint before it is that of 6
    assert log.versions == [6, 7, 8, 9]


@pytest.mark.parametrize(("unit_ms", "kept"), [(DAY_MS, [3, 4, 5, 6, 7, 8, 9]), (MINUTE_MS, [6, 7, 8, 9])])
def test_the_cutoff_is_cut_to_its_unit(tmp_path: Path, unit_ms: int, kept: list[int]) -> None:
    log = ten_days(tmp_path)
    # Three days ago at noon is when version 6 was committed; midnight before that it had not been.
    log.clean(3 * DAY_MS, unit_ms)
    assert log.versions == kept


def test_nothing_goes_without_an_expired_checkpoint(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    before = log.names
    assert log.clean(7 * DAY_MS) == 0
    assert log.names == before


def test_a_checkpoint_without_its_commit_is_none_to_rely_on(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    (tmp_path / "_delta_log" / f"{6:020d}.json").unlink()
    assert log.clean(1 * DAY_MS) == 0


def test_an_empty_checkpoint_is_none_to_rely_on(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    (tmp_path / "_delta_log" / f"{6:020d}.checkpoint.parquet").write_bytes(b"")
    log.aged(f"{6:020d}.checkpoint.parquet", 3 * DAY_MS)
    assert log.clean(2 * DAY_MS) == 0


def test_a_commit_is_not_older_than_the_one_before_it(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    log.aged(f"{2:020d}.json", 0)  # written by a clock that goes ahead: what follows is not older
    assert log.clean(2 * DAY_MS) == 0


def test_log_compactions_up_to_the_checkpoint_go(tmp_path: Path) -> None:
    log = ten_days(tmp_path)
    for first, last in ((0, 5), (6, 8), (7, 8)):
        write_json(tmp_path, f"{first:020d}.{last:020d}.compacted.json", add("0.parquet"))
    log.clean(2 * DAY_MS)
    assert [name for name in log.names if "compacted" in name] == [f"{7:020d}.{8:020d}.compacted.json"]


def test_sidecars_that_no_checkpoint_names_go_after_a_day(tmp_path: Path) -> None:
    log = ten_days(tmp_path, None, "v2Checkpoint")
    used, unused, fresh = (f"{uuid.uuid4()}.parquet" for _ in range(3))
    for name, age_ms in ((used, 9 * DAY_MS), (unused, 9 * DAY_MS), (fresh, DAY_MS)):
        write_parquet(tmp_path, f"_sidecars/{name}", SIDECAR, add("x.parquet"))
        log.aged(f"_sidecars/{name}", age_ms)
    side = {"sidecar": {"path": used, "sizeInBytes": 1, "modificationTime": 1}}
    version = {"checkpointMetadata": {"version": 6}}
    write_parquet(tmp_path, f"{6:020d}.checkpoint.{uuid.uuid4()}.parquet", V2_CHECKPOINT, version, *log.lines, side)
    log.clean(2 * DAY_MS)
    assert sorted(path.name for path in (tmp_path / "_delta_log" / "_sidecars").iterdir()) == sorted([used, fresh])


def test_protected_checkpoints_go_all_together_or_not_at_all(tmp_path: Path) -> None:
    log = ten_days(tmp_path, {"delta.requireCheckpointProtectionBeforeVersion": "5"}, "checkpointProtection")
    assert log.clean(4 * DAY_MS) == 0  # up to version 3 only: that would be piecemeal
    assert not is_truncated(open_snapshot(LogStore(str(tmp_path))))
    assert log.clean(2 * DAY_MS) > 0  # up to version 6
    assert log.versions == [6, 7, 8, 9]
    assert is_truncated(open_snapshot(LogStore(str(tmp_path))))


def test_the_property_protects_nothing_without_the_feature(tmp_path: Path) -> None:
    log = ten_days(tmp_path, {"delta.requireCheckpointProtectionBeforeVersion": "5"})
    assert log.clean(4 * DAY_MS) > 0
    assert log.versions[0] == 3


@pytest.mark.parametrize(
    ("configuration", "cleans"),
    [
        ({"delta.logRetentionDuration": "interval 2 days"}, True),
        ({"delta.logRetentionDuration": "interval 2 days", "delta.enableExpiredLogCleanup": "false"}, False),
        ({"delta.logRetentionDuration": "interval 2 days", "delta.enableExpiredLogCleanup": "True"}, True),
        ({"delta.logRetentionDuration": "no time at all"}, False),
    ],
)
def test_a_table_says_whether_and_when_it_is_cleaned_up(
    tmp_path: Path, configuration: dict[str, str], cleans: bool
) -> None:
    ten_days(tmp_path, configuration)
    assert (clean_up_if_enabled(open_snapshot(LogStore(str(tmp_path)))) > 0) is cleans


def test_versions_are_deleted_one_after_the_other_and_checksums_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store deletes many files in any order; a writer with an old base relies on the order of commits."""
    calls: list[list[str]] = []

    def recorded(kind: str) -> Callable[[LogStore, Iterable[str]], None]:
        real = getattr(LogStore, kind)

        def delete(store: LogStore, paths: Iterable[str]) -> None:
            calls.append([kind, *(path.removeprefix("_delta_log/") for path in paths)])
            real(store, calls[-1][1:])

        return delete

    log = ten_days(tmp_path)
    for kind in ("delete_in_order", "delete"):
        monkeypatch.setattr(LogStore, kind, recorded(kind))
    log.clean(2 * DAY_MS)
    versions, others, *_ = calls
    names = [f"{version:020d}.json" for version in range(6)]
    assert versions == ["delete_in_order", *names[:4], f"{3:020d}.checkpoint.parquet", *names[4:]]
    assert others == ["delete", *(f"{version:020d}.crc" for version in range(6))]


@pytest.mark.parametrize("count", range(8))
def test_no_reader_sees_a_late_commit_where_a_cleanup_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """A writer that finds its base, waits, and writes can create a commit that a cleanup has just deleted."""
    log = ten_days(tmp_path)

    def stopped(store: LogStore, paths: Iterable[str]) -> None:
        for path in list(paths)[:count]:
            os.unlink(store.location + "/" + path)
        raise StorageRefused(location=store.location, reason="it is read-only now", fix="Wait.")

    monkeypatch.setattr(LogStore, "delete_in_order", stopped)
    with pytest.raises(StorageRefused):
        log.clean(2 * DAY_MS)
    gone = sorted(set(range(10)) - set(log.versions))
    assert gone == list(range(count - (count > 4)))
    for version in gone:
        write_commit(tmp_path, version, add("late.parquet"))
    for version in range(10):
        try:
            files = open_snapshot(LogStore(str(tmp_path)), version).files()["path"].to_pylist()
        except WidenError:
            assert version < 6
        else:
            assert "late.parquet" not in files
