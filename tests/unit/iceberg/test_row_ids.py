"""Tables of format version 3 by clients that know the format: their metadata, and the ids that files get.

Source: Iceberg's table specification, "Row Lineage", "Snapshots" and "Manifest Lists"
"""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from pyiceberg.manifest import DATA_FILE_TYPE, MANIFEST_LIST_FILE_SCHEMAS
from pyiceberg.types import LongType

import widen
from support.iceberg_files import embedded_catalog
from widen.errors import AmbiguousColumns, CorruptFile, InvalidOption, UnsupportedFeatureForWrite
from widen.iceberg import table_commit
from widen.iceberg.catalog import to_table_name
from widen.iceberg.metadata_files import first_row_ids, live_entries, may_list, read_manifests


def load(place: Path, *records: dict[str, Any], **options: Any) -> None:
    path = place / f"{len(list(place.glob('*.json')))}.json"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    widen.ingest(str(path), "ns.t", catalog=place / "catalog.db", to="iceberg", verify=True, **options)


def opened(place: Path) -> widen.IcebergTable:
    return widen.IcebergTable("ns.t", place / "catalog.db")


def metadata_of(place: Path) -> dict[str, Any]:
    path = to_table_name("ns.t", place / "catalog.db").load().metadata_location.removeprefix("file://")
    content = Path(path).read_bytes()
    return json.loads(gzip.decompress(content) if path.endswith(".gz.metadata.json") else content)  # type: ignore[no-any-return]


def rows(place: Path) -> list[int]:
    """The ids of the rows, as PyIceberg reads them."""
    return to_table_name("ns.t", place / "catalog.db").load().scan().to_arrow()["id"].to_pylist()  # type: ignore[no-any-return]


def records_of(path: str) -> list[dict[str, Any]]:
    with open(path.removeprefix("file://"), "rb") as stream:
        return [*fastavro.reader(stream)]  # type: ignore[misc]


def manifests_of(snapshot: dict[str, Any]) -> list[dict[str, Any]]:
    return records_of(snapshot["manifest-list"])


def test_the_fields_of_this_version_follow_the_others() -> None:
    """If this fails, PyIceberg has moved them, and records of version 2 cannot be extended."""
    names = {version: [each.name for each in DATA_FILE_TYPE[version].fields] for version in (2, 3)}
    assert names[3][: len(names[2])] == names[2]
    lists = {version: [each.name for each in MANIFEST_LIST_FILE_SCHEMAS[version].fields] for version in (2, 3)}
    assert lists[3] == [*lists[2], "first_row_id"]


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_a_new_table(tmp_path: Path, codec: str) -> None:
    load(tmp_path, {"id": 1}, {"id": 2}, format_version=3)
    if codec == "gzip":
        opened(tmp_path).set_properties({"write.metadata.compression-codec": "gzip"})
    load(tmp_path, {"id": 3, "s": "x"})
    metadata = metadata_of(tmp_path)
    assert (metadata["format-version"], metadata["next-row-id"]) == (3, 3)
    first, second = metadata["snapshots"]
    assert [(each["first-row-id"], each["added-rows"]) for each in (first, second)] == [(0, 2), (2, 1)]
    listed = {each["added_snapshot_id"]: each["first_row_id"] for each in manifests_of(second)}
    assert listed == {first["snapshot-id"]: 0, second["snapshot-id"]: 2}
    (entry,) = records_of(manifests_of(first)[0]["manifest_path"])
    assert entry["data_file"]["first_row_id"] is None  # it follows from the manifest list
    assert {"referenced_data_file", "content_offset", "content_size_in_bytes"} <= entry["data_file"].keys()


def test_rows_that_a_table_had_before_get_ids_with_the_next_snapshot(tmp_path: Path) -> None:
    load(tmp_path, {"id": 1}, {"id": 2})
    load(tmp_path, {"id": 3})
    opened(tmp_path).set_properties({"format-version": "3", "owner": "shop"})
    metadata = metadata_of(tmp_path)
    assert (metadata["format-version"], metadata["next-row-id"], metadata["properties"]["owner"]) == (3, 0, "shop")
    assert not any("first-row-id" in each for each in metadata["snapshots"])
    assert sorted(rows(tmp_path)) == [1, 2, 3]
    load(tmp_path, {"id": 4})
    newest = metadata_of(tmp_path)["snapshots"][-1]
    assert (newest["first-row-id"], newest["added-rows"], metadata_of(tmp_path)["next-row-id"]) == (0, 4, 4)
    ids = sorted((each["first_row_id"], each["added_rows_count"]) for each in manifests_of(newest))
    assert ids[0][0] == 0
    assert all(first + count == following for (first, count), (following, _) in itertools.pairwise(ids))
    assert sum(count for _, count in ids) == 4


@pytest.mark.parametrize("before", [1, 2])
def test_a_table_of_an_older_version_becomes_one_and_stays_one(tmp_path: Path, before: int) -> None:
    load(tmp_path, {"id": 1}, format_version=before)
    opened(tmp_path).set_properties({"format-version": "3"})
    with pytest.raises(InvalidOption, match="has format version 3, which cannot be lowered"):
        opened(tmp_path).set_properties({"format-version": "2"})
    load(tmp_path, {"id": 2**40})
    assert sorted(rows(tmp_path)) == [1, 2**40]
    assert metadata_of(tmp_path)["last-sequence-number"] == (1 if before == 1 else 2)


def test_a_file_that_is_listed_again_keeps_its_id(tmp_path: Path) -> None:
    """Also where its manifest is written again, because another file of it was removed."""
    load(tmp_path, {"id": 1, "p": "a"}, {"id": 2, "p": "b"}, format_version=3, partition_by=["p"])
    before = {each["id"]: each["_row_id"] for each in lineage(tmp_path)}
    opened(tmp_path).delete("id = 2")
    newest = metadata_of(tmp_path)["snapshots"][-1]
    entries = [each for manifest in manifests_of(newest) for each in records_of(manifest["manifest_path"])]
    assert [(each["status"], each["data_file"]["first_row_id"]) for each in entries if each["status"] == 0] == [
        (0, before[1])
    ]
    assert {each["status"] for each in entries} == {0, 2}
    assert lineage(tmp_path) == [{"id": 1, "_row_id": before[1], "_last_updated_sequence_number": 1}]


def test_changed_rows_keep_their_ids(tmp_path: Path) -> None:
    load(tmp_path, {"id": 1, "v": "a"}, {"id": 2, "v": "b"}, {"id": 3, "v": "c"}, format_version=3)
    opened(tmp_path).update({"v": "'x'"}, "id = 2")
    opened(tmp_path).delete("id = 1")
    load(tmp_path, {"id": 4, "v": "d"})
    opened(tmp_path).optimize()
    assert lineage(tmp_path) == [
        {"id": 2, "_row_id": 1, "_last_updated_sequence_number": 2},
        {"id": 3, "_row_id": 2, "_last_updated_sequence_number": 1},
        {"id": 4, "_row_id": lineage(tmp_path)[-1]["_row_id"], "_last_updated_sequence_number": 4},
    ]
    assert lineage(tmp_path)[-1]["_row_id"] > 2


@pytest.mark.parametrize("is_sqlite", [True, False])
def test_what_pyiceberg_would_drop_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_sqlite: bool
) -> None:
    """Whatever the catalog is: nothing was sent to it, so the outcome is known."""
    load(tmp_path, {"id": 1}, format_version=3)
    name = to_table_name("ns.t", tmp_path / "catalog.db")
    path = Path(name.load().metadata_location.removeprefix("file://"))
    stored = json.loads(path.read_text())
    path.write_text(json.dumps(stored | {"encryption-keys": [{"key-id": "k", "encrypted-key-metadata": "eA=="}]}))
    monkeypatch.setattr(table_commit, "_is_sqlite", lambda _: is_sqlite)
    files = {*path.parents[1].rglob("*")}
    with pytest.raises(UnsupportedFeatureForWrite, match="encryption-keys"):
        opened(tmp_path).set_properties({"owner": "shop"})
    with pytest.raises(UnsupportedFeatureForWrite, match="encryption-keys"):
        load(tmp_path, {"id": 2})
    assert json.loads(path.read_text()).keys() == {*stored, "encryption-keys"}
    assert {*path.parents[1].rglob("*.*")} <= files


def test_a_column_that_is_named_like_the_row_ids_stops_changes_of_rows_until_it_is_renamed(tmp_path: Path) -> None:
    load(tmp_path, {"id": 1})
    name = to_table_name("ns.t", tmp_path / "catalog.db")
    with name.load().update_schema() as update:
        update.add_column("_row_id", LongType())
    name.load().append(pa.table({"id": pa.array([2, 3], pa.int32()), "_row_id": [7, 8]}))
    opened(tmp_path).set_properties({"format-version": "3"})
    for change in (lambda table: table.delete("id = 2"), lambda table: table.optimize()):
        with pytest.raises(AmbiguousColumns, match=r"The columns _row_id and _row_id of .* differ at most in case"):
            change(opened(tmp_path))
    opened(tmp_path).rename_column("_row_id", "number")
    opened(tmp_path).delete("id = 2")
    assert opened(tmp_path).to_arrow().sort_by("id").to_pylist() == [
        {"id": 1, "number": None},
        {"id": 3, "number": 8},
    ]


def test_an_ingestion_does_not_change_the_version_of_a_table(tmp_path: Path) -> None:
    load(tmp_path, {"id": 1})
    with pytest.raises(InvalidOption, match="has format version 2; an ingestion does not change that"):
        load(tmp_path, {"id": 2}, format_version=3)
    load(tmp_path, {"id": 2}, format_version=2)
    with pytest.raises(InvalidOption, match="Must be 1, 2 or 3"):
        load(tmp_path, {"id": 2}, format_version=4)


def test_the_catalog_of_the_caller_stays_as_it_is(tmp_path: Path) -> None:
    catalog = embedded_catalog(tmp_path)
    kind = type(catalog)
    path = tmp_path / "a.json"
    path.write_text('{"id": 1}\n')
    widen.ingest(str(path), "ns.t", catalog=catalog, to="iceberg", format_version=3)
    assert type(catalog) is kind
    assert catalog.load_table("ns.t").format_version == 3


def lineage(place: Path) -> list[dict[str, Any]]:
    """The ids of rows, as the files and their manifests say them."""
    import pyarrow.parquet as pq

    newest, found = metadata_of(place)["snapshots"][-1], list[dict[str, Any]]()
    for manifest in manifests_of(newest):
        following = manifest["first_row_id"]
        for entry in records_of(manifest["manifest_path"]):
            file = entry["data_file"]
            if entry["status"] == 2:
                continue
            first = file["first_row_id"]
            if first is None:
                first, following = following, following + file["record_count"]
            number = entry["sequence_number"] or manifest["sequence_number"]
            for at, row in enumerate(pq.read_table(file["file_path"].removeprefix("file://")).to_pylist()):
                own, updated = row.get("_row_id"), row.get("_last_updated_sequence_number")
                found.append(
                    {
                        "id": row["id"],
                        "_row_id": first + at if own is None else own,
                        "_last_updated_sequence_number": number if updated is None else updated,
                    }
                )
    return sorted(found, key=lambda row: row["id"])


@pytest.mark.parametrize("version", [2, 3])
def test_manifests_are_searched_for_files_before_they_are_read(tmp_path: Path, version: int) -> None:
    """Each manifest lists the file of one load; for many files, each manifest may have one."""
    for number in range(3):
        widen.ingest([{"id": number}], "ns.t", catalog=tmp_path / "c.db", to="iceberg", format_version=version)
    table = widen.IcebergTable("ns.t", tmp_path / "c.db").table
    metadata, snapshot = table.metadata, table.current_snapshot()
    every = {entry.data_file.file_path for entry in live_entries(metadata, table.io, snapshot)}
    manifests = [each.manifest_path for each in read_manifests(metadata, table.io, snapshot)]
    assert (len(every), len(manifests)) == (3, 3)
    for path in every:
        assert sum(may_list(table.io, each, [path, "file:///other"]) for each in manifests) == 1
        (entry,) = live_entries(metadata, table.io, snapshot, [path])
        assert entry.data_file.file_path == path
        if version == 3:
            assert first_row_ids(metadata, table.io, snapshot, [path]).keys() == {path}
    assert all(may_list(table.io, each, [f"{number}" for number in range(51)]) for each in manifests)
    Path(manifests[0].removeprefix("file://")).write_bytes(b"Obj")
    with pytest.raises(CorruptFile):
        may_list(table.io, manifests[0], ["file:///other"])
