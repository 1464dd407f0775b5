"""Hostile logs: no file outside of the table is opened, and no memory is allocated for sizes that a log only claims."""

from __future__ import annotations

import os
import struct
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support import log_table as log
from widen.errors import CorruptFile, CorruptLog, StorageError
from widen.files.deleted_rows import load_vector
from widen.log import checkpoint_reader as checkpoint_form
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import DeletionVector
from widen.protocol.deletion_vectors import encode_z85


def sidecar(path: str) -> dict[str, object]:
    return {"sidecar": {"path": path, "sizeInBytes": 1, "modificationTime": 1}}


@pytest.mark.parametrize(
    "path", ["../x.parquet", "/etc/x.parquet", "file:///etc/x.parquet", "..", "a/b", "%2e%2e/x", ""]
)
def test_a_sidecar_outside_of_its_folder_is_refused(tmp_path: Path, path: str) -> None:
    name = f"{0:020}.checkpoint.00000000-0000-0000-0000-000000000001.json"
    log.write_json(tmp_path, name, log.PROTOCOL, log.metadata(), {"checkpointMetadata": {"version": 0}}, sidecar(path))
    with pytest.raises(CorruptLog, match="is not in _delta_log/_sidecars"):
        open_snapshot(LogStore(str(tmp_path))).files()


@pytest.mark.parametrize(
    "spelling", ["{name}", "{table}/_delta_log/_sidecars/{name}", "file:{table}/_delta_log/_sidecars/{name}"]
)
def test_every_spelling_of_a_sidecar_is_accepted(tmp_path: Path, spelling: str) -> None:
    log.write_parquet(tmp_path, "_sidecars/s.parquet", log.SIDECAR, log.add("a"))
    name = f"{0:020}.checkpoint.00000000-0000-0000-0000-000000000001.json"
    path = spelling.format(name="s.parquet", table=tmp_path)
    log.write_json(tmp_path, name, log.PROTOCOL, log.metadata(), {"checkpointMetadata": {"version": 0}}, sidecar(path))
    assert open_snapshot(LogStore(str(tmp_path))).files()["path"].to_pylist() == ["a"]


def vector(kind: str, text: str, size: int = 40, offset: int = 1) -> DeletionVector:
    return DeletionVector(storage_type=kind, path_or_inline_dv=text, size_in_bytes=size, cardinality=2, offset=offset)


@pytest.mark.parametrize(
    "hostile",
    [
        vector("p", "/dev/zero"),
        vector("p", "file:///etc/passwd"),
        vector("u", "../../etc/" + encode_z85(bytes(16))),
        vector("u", "/etc/" + encode_z85(bytes(16))),
        vector("u", encode_z85(bytes(16)), size=-1),
        vector("u", encode_z85(bytes(16)), offset=-5),
        vector("u", encode_z85(bytes(16)), size=2**31 - 1),
    ],
)
def test_an_impossible_vector_is_refused_without_allocation(tmp_path: Path, hostile: DeletionVector) -> None:
    (tmp_path / "deletion_vector_00000000-0000-0000-0000-000000000000.bin").write_bytes(b"\x01" + bytes(100))
    tracemalloc.start()
    with pytest.raises(CorruptFile):
        load_vector(LogStore(str(tmp_path)), hostile)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_bitmap_without_content_is_refused() -> None:
    data = struct.pack("<iii", 1681511376, 1, 0)  # the magic number of the native layout, and one bitmap of no bytes
    with pytest.raises(CorruptFile, match="bitmap cannot be read"):
        load_vector(LogStore("unused"), vector("i", encode_z85(data), size=len(data)))


def test_opening_a_pipe_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "deletion_vector_x.bin")
    with pytest.raises(StorageError, match="not a regular file"):
        load_vector(LogStore(str(tmp_path)), vector("p", str(tmp_path / "deletion_vector_x.bin")))


def test_a_checkpoint_that_claims_to_unpack_into_gigabytes_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_form, "_UNPACKED_BYTES", checkpoint_form._UNPACKED_BYTES // 100)
    path = log.write_parquet(tmp_path, f"{0:020}.checkpoint.parquet", log.CHECKPOINT, log.PROTOCOL, log.metadata())
    texts = pa.array([{"path": "x" * 40_000}] * 100, pa.struct([("path", pa.string())]))
    bomb = pa.table({"add": texts, "protocol": pa.nulls(100, pa.struct([("minReaderVersion", pa.int32())]))})
    pq.write_table(bomb, path, compression="zstd", use_dictionary=False)
    with pytest.raises(CorruptLog, match="claims to unpack into 4"):
        open_snapshot(LogStore(str(tmp_path))).files()


@pytest.mark.parametrize(("column", "value"), [("path", 7), ("partitionValues", "x"), ("size", "x"), ("stats", 7)])
def test_an_error_names_the_column_of_another_type(tmp_path: Path, column: str, value: object) -> None:
    path = log.write_parquet(tmp_path, f"{0:020}.checkpoint.parquet", log.CHECKPOINT, log.PROTOCOL, log.metadata())
    whole = pq.read_table(path)
    changed = pa.array([{column: value}] * whole.num_rows)
    pq.write_table(whole.set_column(whole.column_names.index("add"), "add", changed), path)
    with pytest.raises(CorruptLog, match=rf"add\.{column} cannot be"):
        open_snapshot(LogStore(str(tmp_path))).files()


@pytest.mark.parametrize(
    "broken", [b"\xff\xfe", b"", b"[" * 50_000, b'{"metadata":{"id":"m","schemaString":"x"}}', None]
)
@pytest.mark.parametrize("name", [f"{0:020}.crc", "_last_checkpoint"])
def test_a_broken_checksum_or_pointer_is_ignored(tmp_path: Path, name: str, broken: bytes | None) -> None:
    log.write_commit(tmp_path, 0, log.PROTOCOL, log.metadata(), log.add("a"))
    path = tmp_path / "_delta_log" / name
    if broken is None:
        path.mkdir()
    else:
        path.write_bytes(broken)
    snapshot = open_snapshot(LogStore(str(tmp_path)))
    assert (snapshot.schema.names, snapshot.files().num_rows, snapshot.transactions) == (("id", "day"), 1, {})


def test_an_error_names_the_line_of_50_000_levels(tmp_path: Path) -> None:
    log.write_commit(tmp_path, 0, log.PROTOCOL, log.metadata())
    path = tmp_path / "_delta_log" / f"{0:020}.json"
    path.write_text(path.read_text() + '{"add":{"path":"a","tags":' + "[" * 50_000 + "]" * 50_000 + "}}\n")
    with pytest.raises(CorruptLog, match="line 3 is damaged"):
        open_snapshot(LogStore(str(tmp_path))).files()
