"""Commits: what is written, who wins, and what follows."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from widen.errors import (
    AppendOnlyTable,
    AttemptsExhausted,
    CommitUnknown,
    ConcurrentAppend,
    ConcurrentDelete,
    ConcurrentDeleteDelete,
    ConcurrentTransaction,
    ContentionError,
    IcebergIncompatible,
    MetadataChanged,
    NoStoredColumns,
    PostCommitFailed,
    ProtocolChanged,
    StorageError,
    StorageRefused,
    TableAlreadyExists,
    UnsupportedFeatureForWrite,
    WidenError,
)
from widen.errors.tables import notes_of
from widen.log import commit as post_commit
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.commit import Committed, Conflicted, ReadSet, StagedFiles, Unknown, commit
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.types import INTEGER, Field, StructType
from widen.protocol.actions import Action, Add, AddCdc, DomainMetadata, Metadata, Protocol, Remove, Txn
from widen.protocol.data_skipping import Compare, FileSelection

FIELDS = [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]
LEGACY = Protocol(min_reader_version=1, min_writer_version=2)


def metadata(fields: list[dict[str, Any]] = FIELDS, **properties: str) -> Metadata:
    text = json.dumps({"type": "struct", "fields": fields})
    return Metadata(id="m", schema_string=text, partition_columns=(), configuration=properties)


def with_features(*names: str, readers: tuple[str, ...] = ()) -> Protocol:
    return Protocol(min_reader_version=3, min_writer_version=7, reader_features=readers, writer_features=names)


def add(path: str, *, data_change: bool = True, rows: int = 5, size: int = 10, split: str | None = None) -> Add:
    stats, values = json.dumps({"numRecords": rows}), {} if split is None else {"p": split}
    return Add(path=path, partition_values=values, size=size, modification_time=1, data_change=data_change, stats=stats)


def remove(path: str, *, data_change: bool = True) -> Remove:
    return Remove(path=path, data_change=data_change, deletion_timestamp=1, size=10)


def partition_reads(split: int, *paths: str) -> ReadSet:
    """What a change has read that looks for rows of one partition."""
    schema = StructType((Field("p", INTEGER),))
    return ReadSet(
        selection=FileSelection(Compare(("p",), INTEGER, "=", split), schema, "none", ("p",)), paths=frozenset(paths)
    )


def create(location: Path, *actions: Action) -> Snapshot:
    given = list(actions)
    if not any(isinstance(action, Protocol) for action in given):
        given.append(LEGACY)
    if not any(isinstance(action, Metadata) for action in given):
        given.append(metadata())
    outcome = commit(LogStore(str(location)), None, given, "CREATE TABLE", {})
    assert isinstance(outcome, Committed)
    return outcome.snapshot


def lines(location: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (location / "_delta_log" / f"{version:020d}.json").read_text().splitlines()]


def checksum(location: Path, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((location / "_delta_log" / f"{version:020d}.crc").read_text())
    return found


def test_a_commit_has_its_provenance_first_then_metadata_and_protocol(tmp_path: Path) -> None:
    base = create(tmp_path, add("x"), LEGACY, metadata())
    assert [next(iter(line)) for line in lines(tmp_path, 0)] == ["commitInfo", "metaData", "protocol", "add"]
    parameters = {"mode": "Append", "partitionBy": ["a"], "predicate": None, "flag": True, "columns": {"b": 1}}
    commit(base.store, base, [add("y")], "WRITE", parameters, metrics={"numFiles": 1})
    info = lines(tmp_path, 1)[0]["commitInfo"]
    assert len(info.pop("txnId")) == 32
    assert abs(info.pop("timestamp") - base.timestamp_ms) < 60_000
    assert info.pop("engineInfo").startswith("Widen/")
    assert info == {
        "operation": "WRITE",
        "operationParameters": {
            "mode": "Append",
            "partitionBy": '["a"]',
            "predicate": None,
            "flag": True,
            "columns": '{"b":1}',
        },
        "readVersion": 0,
        "isolationLevel": "Serializable",
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "1"},
    }


def test_a_rearrangement_is_no_blind_append(tmp_path: Path) -> None:
    base = create(tmp_path, add("x"))
    actions = [remove("x", data_change=False), add("y", data_change=False)]
    commit(base.store, base, actions, "OPTIMIZE", {}, reads=ReadSet.EVERYTHING)
    info = lines(tmp_path, 1)[0]["commitInfo"]
    assert (info["isolationLevel"], info["isBlindAppend"]) == ("SnapshotIsolation", False)


def test_a_table_is_made_once(tmp_path: Path) -> None:
    base = create(tmp_path)
    outcome = commit(base.store, None, [LEGACY, metadata()], "CREATE TABLE", {})
    assert isinstance(outcome, Conflicted)
    with pytest.raises(TableAlreadyExists):
        outcome.or_raise()


# ---- races -----------------------------------------------------------------------------------------

TYPE_CHANGED = [{**FIELDS[0], "type": "decimal(20,0)"}]
IDS = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "a"}
MAPPED: list[dict[str, Any]] = [{**FIELDS[0], "metadata": IDS}]
MAPPING = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "1"}
ALTER: list[Action] = [metadata(TYPE_CHANGED)]
FEATURE: list[Action] = [with_features("appendOnly", "invariants", "deletionVectors", readers=("deletionVectors",))]

WIDENING = ("typeWidening", "appendOnly", "invariants")
RULES = ("checkConstraints", "appendOnly", "invariants")
OFF = {"delta.enableTypeWidening": "false"}
RECORDED = [{**FIELDS[0], "metadata": {"delta.typeChanges": [{"fromType": "short", "toType": "long"}]}}]


def numbered(mark: int) -> list[dict[str, Any]]:
    return [{**FIELDS[0], "metadata": {"delta.identity.highWaterMark": mark}}]


RACES: list[tuple[str, list[Action], ReadSet, list[Action], type[ContentionError] | None]] = [
    ("append · append", [add("n")], ReadSet.NOTHING, [add("w")], None),
    ("append · delete", [add("n")], ReadSet.NOTHING, [remove("x")], None),
    ("append · type change", [add("n")], ReadSet.NOTHING, ALTER, MetadataChanged),
    ("append · property", [add("n")], ReadSet.NOTHING, [metadata(k="v")], MetadataChanged),
    ("append · same metadata", [add("n")], ReadSet.NOTHING, [metadata()], None),
    ("append · column mapping on", [add("n")], ReadSet.NOTHING, [metadata(MAPPED, **MAPPING)], None),
    ("append · new feature", [add("n")], ReadSet.NOTHING, FEATURE, None),
    ("append · type widening", [add("n")], ReadSet.NOTHING, [with_features(*WIDENING, readers=WIDENING[:1])], None),
    ("append · feature with rules", [add("n")], ReadSet.NOTHING, [with_features(*RULES)], ProtocolChanged),
    ("append · identity values", [add("n")], ReadSet.NOTHING, [metadata(numbered(7))], None),
    ("type change · identity values", ALTER, ReadSet.NOTHING, [metadata(numbered(7))], MetadataChanged),
    ("widening append · type change", [*ALTER, add("n")], ReadSet.NOTHING, ALTER, MetadataChanged),
    ("widening append · widening append", [*ALTER, add("n")], ReadSet.NOTHING, [*ALTER, add("w")], MetadataChanged),
    ("widening append · delete", [*ALTER, add("n")], ReadSet.NOTHING, [remove("x")], None),
    ("append · widening off", [add("n")], ReadSet.NOTHING, [metadata(**OFF)], MetadataChanged),
    ("append · type history only", [add("n")], ReadSet.NOTHING, [metadata(RECORDED)], MetadataChanged),
    ("append · dropped feature", [add("n")], ReadSet.NOTHING, [with_features("appendOnly")], ProtocolChanged),
    ("type change · append", ALTER, ReadSet.NOTHING, [add("w")], None),
    ("type change · same type change", ALTER, ReadSet.NOTHING, ALTER, MetadataChanged),
    ("type change · property", ALTER, ReadSet.NOTHING, [metadata(k="v")], MetadataChanged),
    ("widening append · append", [*ALTER, add("n")], ReadSet.NOTHING, [add("w")], None),
    ("feature · feature", FEATURE, ReadSet.NOTHING, FEATURE, ProtocolChanged),
    ("delete · append", [remove("x")], ReadSet.EVERYTHING, [add("w")], ConcurrentAppend),
    ("delete · delete of it", [remove("x")], ReadSet.NOTHING, [remove("x")], ConcurrentDeleteDelete),
    ("delete · delete of another", [remove("x")], ReadSet.EVERYTHING, [remove("y")], ConcurrentDelete),
    ("read all · rearranged", [add("n")], ReadSet.EVERYTHING, [add("w", data_change=False)], None),
    ("delete in p=1 · append to p=2", [remove("x")], partition_reads(1, "x"), [add("w", split="2")], None),
    ("delete in p=1 · append to p=1", [remove("x")], partition_reads(1, "x"), [add("w", split="1")], ConcurrentAppend),
    ("delete in p=1 · append of nulls", [remove("x")], partition_reads(1, "x"), [add("w")], None),
    ("delete in p=1 · delete of a file elsewhere", [remove("x")], partition_reads(1, "x"), [remove("y")], None),
    (
        "delete in p=1 · delete of a file it read",
        [remove("x")],
        partition_reads(1, "x", "y"),
        [remove("y")],
        ConcurrentDelete,
    ),
    ("delete in p=1 · delete of its file", [remove("x")], partition_reads(1, "x"), [remove("x")], ConcurrentDelete),
    (
        "optimize · append",
        [remove("x", data_change=False), add("n", data_change=False)],
        ReadSet.EVERYTHING,
        [add("w")],
        None,
    ),
    (
        "optimize · type change",
        [remove("x", data_change=False), add("n", data_change=False)],
        ReadSet.EVERYTHING,
        ALTER,
        MetadataChanged,
    ),
    (
        "optimize · delete of its file",
        [remove("x", data_change=False), add("n", data_change=False)],
        ReadSet.EVERYTHING,
        [remove("x")],
        ConcurrentDeleteDelete,
    ),
    (
        "same application",
        [Txn(app_id="s", version=1)],
        ReadSet.NOTHING,
        [Txn(app_id="s", version=1)],
        ConcurrentTransaction,
    ),
    (
        "read application",
        [add("n")],
        ReadSet(app_ids=frozenset({"s"})),
        [Txn(app_id="s", version=1)],
        ConcurrentTransaction,
    ),
    ("other application", [Txn(app_id="s", version=1)], ReadSet.NOTHING, [Txn(app_id="t", version=1)], None),
    (
        "same domain",
        [DomainMetadata(domain="d", configuration="1", removed=False)],
        ReadSet.NOTHING,
        [DomainMetadata(domain="d", configuration="2", removed=False)],
        MetadataChanged,
    ),
]


DAY = 86_400_000
VACUUMS: list[tuple[list[Action], dict[str, object], bool]] = [
    ([add("n")], {"specifiedRetentionMillis": 0, "defaultRetentionMillis": 7 * DAY}, True),
    ([add("n")], {"specifiedRetentionMillis": "3600000", "defaultRetentionMillis": "604800000"}, True),
    ([remove("x"), add("n")], {"defaultRetentionMillis": 0}, True),
    (
        [AddCdc(path="_change_data/n", partition_values={}, size=1, data_change=False)],
        {"defaultRetentionMillis": 0},
        True,
    ),
    ([add("n")], {}, True),
    ([add("n")], {"defaultRetentionMillis": 7 * DAY}, False),
    ([add("n")], {"specifiedRetentionMillis": DAY, "defaultRetentionMillis": 7 * DAY}, False),
    ([remove("x")], {"specifiedRetentionMillis": 0}, False),
]


@pytest.mark.parametrize(("actions", "parameters", "conflicts"), VACUUMS)
def test_files_from_before_a_vacuum_without_retention_are_not_committed(
    tmp_path: Path, actions: list[Action], parameters: dict[str, object], conflicts: bool
) -> None:
    base = create(tmp_path, add("x"))
    commit(base.store, base, [], "VACUUM START", parameters).or_raise()
    outcome = commit(base.store, base, actions, "LOSER", {})
    assert isinstance(outcome, Conflicted if conflicts else Committed)
    if isinstance(outcome, Conflicted):
        assert type(outcome.error) is ConcurrentDelete
        assert "VACUUM START" in str(outcome.error)


def test_blind_appends_do_not_matter_where_the_order_of_writers_is_free(tmp_path: Path) -> None:
    free = metadata(**{"delta.isolationLevel": "WriteSerializable"})
    base = create(tmp_path, free, add("x"))
    commit(base.store, base, [add("w")], "WRITE", {}).or_raise()
    assert commit(base.store, base, [remove("x")], "DELETE", {}, reads=ReadSet.EVERYTHING).or_raise().version == 2
    seeing = commit(base.store, base, [add("v")], "MERGE", {}, reads=partition_reads(2))
    assert seeing.or_raise().version == 3
    outcome = commit(base.store, base, [remove("x")], "DELETE", {}, reads=ReadSet.EVERYTHING)
    assert isinstance(outcome, Conflicted)


@pytest.mark.parametrize(("actions", "reads", "winner", "error"), [r[1:] for r in RACES], ids=[r[0] for r in RACES])
def test_a_lost_race_ends_as_delta_says(
    tmp_path: Path, actions: list[Action], reads: ReadSet, winner: list[Action], error: type[ContentionError] | None
) -> None:
    base = create(tmp_path, add("x"), add("y"))
    assert isinstance(commit(base.store, base, winner, "WINNER", {}), Committed)
    outcome = commit(base.store, base, actions, "LOSER", {}, reads=reads)
    if error is None:
        assert outcome.or_raise().version == 2
    else:
        assert isinstance(outcome, Conflicted)
        assert type(outcome.error) is error
        assert outcome.error.fields["version"] == 1
        with pytest.raises(error):
            outcome.or_raise()
        assert open_snapshot(base.store).version == 1


def recorded(version: int) -> list[dict[str, Any]]:
    changes = [{"fromType": "byte", "toType": "short", "tableVersion": 0}]
    changes.append({"fromType": "short", "toType": "long", "tableVersion": version})
    return [{**FIELDS[0], "metadata": {"delta.typeChanges": changes}}]


def test_a_recorded_version_is_that_of_the_commit_even_if_it_lost_races(tmp_path: Path) -> None:
    base = create(tmp_path, with_features("typeWidening-preview", readers=("typeWidening-preview",)))
    for name in ("v", "w"):
        commit(base.store, base, [add(name)], "WRITE", {})
    after = commit(base.store, base, [metadata(recorded(1))], "CHANGE COLUMN", {}).or_raise().snapshot
    assert after.version == 3
    assert json.loads(after.metadata.schema_string)["fields"] == recorded(3)


def test_every_winner_is_looked_at(tmp_path: Path) -> None:
    base = create(tmp_path)
    commit(base.store, base, [add("w")], "WRITE", {})
    commit(base.store, base, [metadata(k="v")], "SET TBLPROPERTIES", {})
    outcome = commit(base.store, base, [add("n")], "WRITE", {})
    assert isinstance(outcome, Conflicted)
    assert outcome.error.fields["version"] == 2


def test_a_winner_with_an_unknown_feature_is_refused(tmp_path: Path) -> None:
    base = create(tmp_path)
    features = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["magic"]}
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"protocol": features}))
    with pytest.raises(UnsupportedFeatureForWrite, match="magic"):
        commit(base.store, base, [add("n")], "WRITE", {})


class Losing(LogStore):
    """A store where somebody is always quicker, as often as told."""

    def __init__(self, location: str, losses: int) -> None:
        super().__init__(location)
        self.losses = losses

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if path.endswith(".json") and self.losses:
            self.losses -= 1
            assert super().put_if_absent(path, b'{"commitInfo":{"txnId":"other"}}\n')
            return False
        return super().put_if_absent(path, data)


def test_attempts_run_out(tmp_path: Path) -> None:
    base = create(tmp_path)
    outcome = commit(Losing(str(tmp_path), 5), base, [add("n")], "WRITE", {}, max_attempts=5)
    assert isinstance(outcome, Conflicted)
    assert type(outcome.error) is AttemptsExhausted
    newest = open_snapshot(base.store)
    assert newest.version == 5
    assert commit(Losing(str(tmp_path), 5), newest, [add("n")], "WRITE", {}, max_attempts=6).or_raise().version == 11


# ---- a store that does not answer ------------------------------------------------------------------


class Silent(LogStore):
    """A store that fails after, or before, it has written a commit."""

    def __init__(self, location: str, *, writes: bool, reads: bool, error: type[Exception] = StorageError) -> None:
        super().__init__(location)
        self._writes, self._reads, self._error = writes, reads, error
        self._is_silent = False

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if not path.endswith(".json"):
            return super().put_if_absent(path, data)
        if self._writes:
            super().put_if_absent(path, data)
        self._is_silent = not self._reads
        if issubclass(self._error, WidenError):
            raise self._error(location=path, reason="connection lost", fix="")
        raise self._error("connection lost")

    def read(self, path: str) -> bytes:
        if self._is_silent:
            raise StorageError(location=path, reason="connection lost", fix="")
        return super().read(path)


@pytest.mark.parametrize("error", [StorageError, StorageRefused, MemoryError, OSError])
def test_a_commit_that_was_written_before_the_error_is_recognised(tmp_path: Path, error: type[Exception]) -> None:
    base = create(tmp_path)
    outcome = commit(Silent(str(tmp_path), writes=True, reads=True, error=error), base, [add("n")], "WRITE", {})
    assert isinstance(outcome, Committed)
    assert outcome.version == 1


def test_a_commit_that_was_refused_is_an_error(tmp_path: Path) -> None:
    base, staged = staged_file(tmp_path)
    store = Silent(str(tmp_path), writes=False, reads=True, error=StorageRefused)
    with pytest.raises(StorageRefused, match="connection lost"), staged:
        commit(store, base, [add("job/n")], "WRITE", {}, staged=staged)
    assert open_snapshot(base.store).version == 0
    assert not (tmp_path / "job").exists()


@pytest.mark.parametrize("error", [StorageError, MemoryError, OSError])
@pytest.mark.parametrize(("writes", "reads"), [(True, False), (False, False), (False, True)])
def test_what_nobody_can_tell_is_unknown(tmp_path: Path, *, writes: bool, reads: bool, error: type[Exception]) -> None:
    base, staged = staged_file(tmp_path)
    with staged:
        store = Silent(str(tmp_path), writes=writes, reads=reads, error=error)
        outcome = commit(store, base, [add("job/n")], "WRITE", {}, staged=staged)
    assert isinstance(outcome, Unknown)
    with pytest.raises(CommitUnknown, match="connection lost"):
        outcome.or_raise()
    assert (tmp_path / "job" / "n").exists()


class Late(LogStore):
    """A store whose answer is lost, and where the commit appears only after it was looked for."""

    waiting: tuple[str, bytes] | None = None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if not path.endswith(".json"):
            return super().put_if_absent(path, data)
        self.waiting = (path, data)
        raise StorageError(location=path, reason="timed out", fix="")


def test_a_commit_that_lands_late_keeps_its_files(tmp_path: Path) -> None:
    base, staged = staged_file(tmp_path)
    store = Late(str(tmp_path))
    with pytest.raises(CommitUnknown, match=r"version 1 .*timed out") as caught, staged:
        commit(store, base, [add("job/n")], "WRITE", {}, staged=staged).or_raise()
    assert store.waiting is not None
    assert base.store.put_if_absent(*store.waiting)
    assert lines(tmp_path, 1)[0]["commitInfo"]["txnId"] == caught.value.fields["txn_id"]
    assert open_snapshot(base.store).files()["path"].to_pylist() == ["job/n"]
    assert (tmp_path / "job" / "n").exists()


def staged_file(location: Path) -> tuple[Snapshot, StagedFiles]:
    """A table, and a file that is written and not committed."""
    base, staged = create(location), StagedFiles()
    (location / "job").mkdir()
    (location / "job" / "n").write_text("rows")
    staged.add_files(base.store, [add("job/n")])
    return base, staged


class Interrupting(LogStore):
    """A store in which something that is not an error happens at one path, before or after the call."""

    def __init__(self, location: str, end: str, kind: type[BaseException], *, is_after: bool) -> None:
        super().__init__(location)
        self._end, self._kind, self._is_after = end, kind, is_after

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._around(path, lambda: super(Interrupting, self).put_if_absent(path, data))

    def put(self, path: str, data: bytes) -> None:
        self._around(path, lambda: super(Interrupting, self).put(path, data))

    def _around(self, path: str, call: Callable[[], Any]) -> Any:
        if path.endswith(self._end) and not self._is_after:
            raise self._kind("stop")
        found = call()
        if path.endswith(self._end) and self._is_after:
            raise self._kind("stop")
        return found


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("end", ["01.json", "01.crc", "01.checkpoint.parquet", "_last_checkpoint"])
def test_an_interrupt_from_the_log_entry_on_keeps_the_files(
    tmp_path: Path, end: str, kind: type[BaseException], *, is_after: bool
) -> None:
    base, staged = staged_file(tmp_path)
    store = Interrupting(str(tmp_path), end, kind, is_after=is_after)
    actions = [metadata(**{"delta.checkpointInterval": "1"}), add("job/n")]
    with pytest.raises(kind, match="stop") as caught, staged:
        commit(store, base, actions, "WRITE", {}, staged=staged)
    told = "Whether version 1 of" if end == "01.json" else "Version 1 of"
    assert [note[: len(told)] for note in notes_of(caught.value)] == [told]
    assert open_snapshot(base.store).version == (0 if end == "01.json" and not is_after else 1)
    assert (tmp_path / "job" / "n").exists()


@pytest.mark.parametrize("kind", [MemoryError, RuntimeError, AttributeError])
@pytest.mark.parametrize("end", ["01.crc", "01.checkpoint.parquet", "_last_checkpoint"])
def test_no_error_after_the_log_entry_fails_the_commit(
    tmp_path: Path, end: str, kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    base, staged = staged_file(tmp_path)
    actions = [metadata(**{"delta.checkpointInterval": "1"}), add("job/n")]
    with staged:
        store = Interrupting(str(tmp_path), end, kind, is_after=False)
        outcome = commit(store, base, actions, "WRITE", {}, staged=staged)
    assert outcome.or_raise().version == 1
    assert "Version 1 is committed" in caplog.text
    assert (tmp_path / "job" / "n").exists()


@pytest.mark.parametrize("pointer", [b'{"version":"x"}', b'{"version":1.5}', b"\xff", b'"\xff"', b"[]", b"[" * 100_000])
def test_a_pointer_that_cannot_be_read_keeps_nobody_away(tmp_path: Path, pointer: bytes) -> None:
    base, staged = staged_file(tmp_path)
    (tmp_path / "_delta_log" / "_last_checkpoint").write_bytes(pointer)
    (tmp_path / "_delta_log" / f"{0:020d}.crc").write_bytes(pointer)
    actions = [metadata(**{"delta.checkpointInterval": "1"}), add("job/n")]
    with staged:
        snapshot = commit(base.store, base, actions, "WRITE", {}, staged=staged).or_raise().snapshot
    assert snapshot.files()["path"].to_pylist() == ["job/n"]
    assert json.loads((tmp_path / "_delta_log" / "_last_checkpoint").read_bytes())["version"] == 1
    assert (tmp_path / "job" / "n").exists()


def test_a_lost_race_gives_the_files_back(tmp_path: Path) -> None:
    base, staged = staged_file(tmp_path)
    commit(base.store, base, ALTER, "CHANGE COLUMN", {})
    with staged:
        outcome = commit(base.store, base, [add("job/n")], "WRITE", {}, staged=staged)
    assert isinstance(outcome, Conflicted)
    assert not (tmp_path / "job").exists()


def test_a_version_that_cannot_be_opened_again_is_told_to_be_committed(tmp_path: Path) -> None:
    base = create(tmp_path)
    done = commit(base.store, base, [add("n")], "WRITE", {}).or_raise()
    os.rename(tmp_path / "_delta_log", tmp_path / "elsewhere")
    with pytest.raises(PostCommitFailed, match=r"Version 1 of .* is committed"):
        _ = done.snapshot


class Repeating(LogStore):
    """A store whose client repeats a write whose answer was lost: the second one finds the first."""

    def put_if_absent(self, path: str, data: bytes) -> bool:
        super().put_if_absent(path, data)
        return super().put_if_absent(path, data)


def test_ones_own_commit_is_no_winner(tmp_path: Path) -> None:
    assert commit(Repeating(str(tmp_path)), None, [LEGACY, metadata()], "CREATE TABLE", {}).or_raise().version == 0
    base = open_snapshot(LogStore(str(tmp_path)))
    assert commit(Repeating(str(tmp_path)), base, [add("n")], "WRITE", {}).or_raise().version == 1
    assert open_snapshot(base.store).version == 1


# ---- features --------------------------------------------------------------------------------------


def test_an_append_only_table_takes_no_removes(tmp_path: Path) -> None:
    base = create(tmp_path, metadata(**{"delta.appendOnly": "true"}), add("x"))
    with pytest.raises(AppendOnlyTable):
        commit(base.store, base, [remove("x")], "DELETE", {})
    moved = [remove("x", data_change=False), add("y", data_change=False)]
    assert commit(base.store, base, moved, "OPTIMIZE", {}).or_raise().version == 1


ICEBERG = {"delta.enableIcebergCompatV2": "true", "delta.columnMapping.mode": "name"}
ICEBERG_PROTOCOL = with_features("icebergCompatV2", "columnMapping", readers=("columnMapping",))


def test_a_table_that_iceberg_can_read_stays_so(tmp_path: Path) -> None:
    base = create(tmp_path, ICEBERG_PROTOCOL, metadata(MAPPED, **ICEBERG))
    assert commit(base.store, base, [add("n")], "WRITE", {}).or_raise().version == 1
    silent = Add(path="s", partition_values={}, size=1, modification_time=1, data_change=True)
    with pytest.raises(IcebergIncompatible, match=r"MISSING_NUM_RECORDS.*file s "):
        commit(base.store, base, [silent], "WRITE", {})
    changes = [{"fromType": "integer", "toType": "double"}]
    widened = [{**MAPPED[0], "metadata": {**IDS, "delta.typeChanges": changes}}]
    with pytest.raises(IcebergIncompatible, match=r"UNSUPPORTED_TYPE_WIDENING.*column a .* from int to double"):
        commit(base.store, base, [metadata(widened, **ICEBERG)], "CHANGE COLUMN", {})


@pytest.mark.parametrize("version", [1, 2])
def test_files_that_iceberg_cannot_read_keep_the_compatibility_away(tmp_path: Path, version: int) -> None:
    name = f"icebergCompatV{version}"
    enabled = metadata(MAPPED, **{f"delta.enableIcebergCompatV{version}": "true", "delta.columnMapping.mode": "name"})
    protocol = with_features(name, "columnMapping", readers=("columnMapping",))
    silent = Add(path="s", partition_values={}, size=1, modification_time=1, data_change=True)
    base = create(tmp_path, silent)
    with pytest.raises(IcebergIncompatible, match="MISSING_NUM_RECORDS"):
        commit(base.store, base, [enabled, protocol], "SET TBLPROPERTIES", {})
    counted = create(tmp_path / "counted", add("x"))
    assert commit(counted.store, counted, [enabled, protocol], "SET TBLPROPERTIES", {}).or_raise().version == 1


def test_rows_are_not_added_where_no_file_could_hold_them(tmp_path: Path) -> None:
    base = create(tmp_path, metadata([{**FIELDS[0], "type": "void"}]))
    with pytest.raises(NoStoredColumns):
        commit(base.store, base, [add("n")], "WRITE", {})
    assert commit(base.store, base, ALTER, "CHANGE COLUMN", {}).or_raise().version == 1


def test_row_ids_go_on_after_a_lost_race(tmp_path: Path) -> None:
    base = create(tmp_path, with_features("rowTracking", "domainMetadata"))
    commit(base.store, base, [add("w", rows=3)], "WRITE", {})
    after = commit(base.store, base, [add("n", rows=4), add("o", rows=1)], "WRITE", {}).or_raise().snapshot
    found = {r["path"]: (r["base_row_id"], r["default_row_commit_version"]) for r in after.files().to_pylist()}
    assert found == {"w": (0, 1), "n": (3, 2), "o": (7, 2)}
    assert after.domains["delta.rowTracking"].configuration == '{"rowIdHighWaterMark":7}'


def test_times_in_commits_only_grow(tmp_path: Path) -> None:
    enabled = metadata(**{"delta.enableInCommitTimestamps": "true"})
    base = create(tmp_path, with_features("inCommitTimestamp"), enabled)
    future = base.timestamp_ms + 10_000_000
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(json.dumps({"commitInfo": {"inCommitTimestamp": future}}))
    assert commit(base.store, base, [add("n")], "WRITE", {}).or_raise().snapshot.timestamp_ms == future + 1
    assert next(iter(lines(tmp_path, 2)[0]["commitInfo"])) == "inCommitTimestamp"
    assert "delta.inCommitTimestampEnablementVersion" not in open_snapshot(base.store).properties


def test_times_switched_on_later_mark_where_they_begin(tmp_path: Path) -> None:
    base = create(tmp_path)
    commit(base.store, base, [add("w")], "WRITE", {})
    enabled = [
        metadata(**{"delta.enableInCommitTimestamps": "true"}),
        with_features("appendOnly", "invariants", "inCommitTimestamp"),
    ]
    after = commit(base.store, base, enabled, "SET TBLPROPERTIES", {}).or_raise().snapshot
    said = lines(tmp_path, 2)[0]["commitInfo"]["inCommitTimestamp"]
    assert after.properties["delta.inCommitTimestampEnablementVersion"] == "2"
    assert after.properties["delta.inCommitTimestampEnablementTimestamp"] == str(said)


# ---- checksums and checkpoints ---------------------------------------------------------------------


def test_checksums_are_reckoned_from_the_one_before(tmp_path: Path) -> None:
    base = create(tmp_path, add("x", size=10), Txn(app_id="s", version=1))
    domain = DomainMetadata(domain="d", configuration="1", removed=False)
    one = commit(base.store, base, [add("y", size=7), domain, Txn(app_id="t", version=2)], "WRITE", {}).or_raise()
    gone = DomainMetadata(domain="d", configuration="", removed=True)
    commit(base.store, one.snapshot, [remove("x"), gone, metadata(k="v")], "DELETE", {})
    assert [(checksum(tmp_path, v)["numFiles"], checksum(tmp_path, v)["tableSizeBytes"]) for v in (0, 1, 2)] == [
        (1, 10),
        (2, 17),
        (1, 7),
    ]
    assert checksum(tmp_path, 1)["domainMetadata"] == [{"domain": "d", "configuration": "1", "removed": False}]
    last = checksum(tmp_path, 2)
    assert last["domainMetadata"] == []
    assert {txn["appId"]: txn["version"] for txn in last["setTransactions"]} == {"s": 1, "t": 2}
    assert last["metadata"]["configuration"] == {"k": "v"}
    assert (last["numMetadata"], last["numProtocol"]) == (1, 1)
    assert last["txnId"] == lines(tmp_path, 2)[0]["commitInfo"]["txnId"]


def test_no_checksum_is_better_than_a_wrong_one(tmp_path: Path) -> None:
    base = create(tmp_path, add("x"))
    commit(base.store, base, [add("x", data_change=False)], "COMPUTE STATISTICS", {})
    commit(base.store, open_snapshot(base.store), [add("z")], "WRITE", {})
    assert [name for name in sorted(os.listdir(tmp_path / "_delta_log")) if name.endswith(".crc")] == [f"{0:020d}.crc"]


def test_a_checksum_is_never_overwritten(tmp_path: Path) -> None:
    base = create(tmp_path)
    path = tmp_path / "_delta_log" / f"{1:020d}.crc"
    path.write_text("from somebody else")
    commit(base.store, base, [add("x")], "WRITE", {})
    assert path.read_text() == "from somebody else"


@pytest.mark.parametrize(("interval", "expected"), [(None, [10, 20]), ("3", [3, 6, 9, 12, 15, 18, 21])])
def test_checkpoints_come_at_the_interval(tmp_path: Path, interval: str | None, expected: list[int]) -> None:
    base = create(tmp_path, metadata(**({"delta.checkpointInterval": interval} if interval else {})))
    for number in range(1, 22):
        commit(base.store, base, [add(f"f{number}")], "WRITE", {})
    names = [name for name in os.listdir(tmp_path / "_delta_log") if name.endswith(".checkpoint.parquet")]
    assert sorted(int(name[:20]) for name in names) == expected
    pointer = json.loads((tmp_path / "_delta_log" / "_last_checkpoint").read_text())
    assert (pointer["version"], pointer["numOfAddFiles"]) == (expected[-1], expected[-1])
    assert pointer["size"] == expected[-1] + 2


@pytest.mark.parametrize(
    ("size", "commit_size", "expected"),
    [(0, 1, 10), (99_999, 1, 10), (100_000, 1, 50), (999_999, 999, 50), (1_000_000, 999, 100), (1_000_000, 1_000, 10)],
)
def test_checkpoints_of_larger_tables_are_less_frequent(size: int, commit_size: int, expected: int) -> None:
    assert post_commit.checkpoint_interval(size, commit_size) == expected


def test_the_checkpoint_of_a_large_table_is_written_after_the_commit_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    began, may_write = threading.Event(), threading.Event()

    def write_late(snapshot: Snapshot) -> None:
        began.set()
        assert may_write.wait(60)
        if snapshot.version == 4:
            raise StorageError(location="x", reason="no", fix="")
        write_checkpoint(snapshot)

    base = create(tmp_path, metadata(**{"delta.checkpointInterval": "1"}))
    pointer = tmp_path / "_delta_log" / "_last_checkpoint"
    pointer.write_text(json.dumps({"version": 0, "size": post_commit.MAX_ACTIONS_IN_COMMIT + 1}))
    monkeypatch.setattr(post_commit, "write_checkpoint", write_late)
    for number in (1, 2):  # the second commit finds the first checkpoint still being written
        assert commit(base.store, base, [add(f"f{number}")], "WRITE", {}).or_raise().version == number
        assert began.wait(60)
    assert json.loads(pointer.read_text())["version"] == 0
    may_write.set()
    post_commit._writing[base.store.location].join()
    assert json.loads(pointer.read_text())["version"] == 1
    pointer.write_text(json.dumps({"version": 0, "size": post_commit.MAX_ACTIONS_IN_COMMIT + 1}))
    for number in (3, 4):
        commit(base.store, base, [add(f"f{number}")], "WRITE", {}).or_raise()
        post_commit._writing[base.store.location].join()
        pointer.write_text(json.dumps({"version": 0, "size": post_commit.MAX_ACTIONS_IN_COMMIT + 1}))
    assert "Version 4 is committed, but" in caplog.text
    names = [name for name in os.listdir(tmp_path / "_delta_log") if name.endswith(".checkpoint.parquet")]
    assert sorted(int(name[:20]) for name in names) == [1, 3]


class Stubborn(LogStore):
    """A store that takes commits and nothing else."""

    def put(self, path: str, data: bytes) -> None:
        raise StorageError(location=path, reason="no", fix="")

    def put_if_absent(self, path: str, data: bytes) -> bool:
        if path.endswith(".crc"):
            raise StorageError(location=path, reason="no", fix="")
        return super().put_if_absent(path, data)


def test_a_commit_stands_whatever_follows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Stubborn(str(tmp_path))
    first = [LEGACY, metadata(**{"delta.checkpointInterval": "1"})]
    base = commit(store, None, first, "CREATE TABLE", {}).or_raise().snapshot
    assert commit(store, base, [add("x")], "WRITE", {}).or_raise().version == 1
    assert "could not be written" in caplog.text
