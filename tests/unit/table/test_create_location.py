"""Where a table can be created: no folder may hold the data of two tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import widen
from widen.errors import InvalidOption, TableAlreadyExists


def test_a_folder_of_an_iceberg_table_stays_one(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}')
    widen.ingest(tmp_path / "a.json", "ns.t", catalog=str(tmp_path / "c.db"))
    place = widen.IcebergTable("ns.t", str(tmp_path / "c.db")).location
    with pytest.raises(InvalidOption, match="it has no table but other files"):
        widen.create_table(place, "id int")
    assert not (Path(place.removeprefix("file://")) / "_delta_log").exists()


@pytest.mark.parametrize("name", ["part-0.parquet", "sub/x.csv"])
def test_a_folder_with_other_files_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "t" / name
    file.parent.mkdir(parents=True)
    file.write_text("x")
    with pytest.raises(InvalidOption, match="location cannot be"):
        widen.create_table(tmp_path / "t", "id int")
    assert file.exists()
    file.unlink()
    assert widen.create_table(tmp_path / "t", "id int").version == 0


@pytest.mark.parametrize("name", ["_SUCCESS", ".part.crc", "0123456789abcdef0123456789abcdef/part-0.parquet"])
def test_what_a_killed_job_leaves_does_not_matter(tmp_path: Path, name: str) -> None:
    file = tmp_path / "t" / name
    file.parent.mkdir(parents=True)
    file.write_text("x")
    assert widen.create_table(tmp_path / "t", "id int").version == 0
    with pytest.raises(TableAlreadyExists):
        widen.create_table(tmp_path / "t", "id int")
