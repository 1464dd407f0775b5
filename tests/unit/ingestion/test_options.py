"""Options that several kinds of ingestion have in common."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from widen.errors import IcebergTableNotFound, InvalidOption, StorageRefused, TableNotFound
from widen.ingestion.options import check_places, to_quarantine
from widen.targets import find_table


def test_a_quarantine_that_cannot_be_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    table = find_table("shop.orders", catalog=tmp_path / "c.db")
    assert (to_quarantine(None, table), to_quarantine("lost.found", table)) == (None, "lost.found")
    for location in ("shop.orders", "orders", "shop."):
        with pytest.raises(InvalidOption, match=r"Must (not )?be"):
            to_quarantine(location, table)
    delta = find_table(tmp_path / "orders")
    assert to_quarantine(tmp_path / "q", delta) == str(tmp_path / "q")
    with pytest.raises(InvalidOption, match="Must not be the target table"):
        to_quarantine(tmp_path / "orders/", delta)
    assert not [*tmp_path.iterdir()]


def test_a_table_that_does_not_exist_is_named_in_the_words_of_its_format(tmp_path: Path) -> None:
    assert isinstance(find_table("shop.orders", catalog=tmp_path / "c.db").not_found(), IcebergTableNotFound)
    assert type(find_table(tmp_path / "orders").not_found()) is TableNotFound


def test_a_relative_checkpoint_need_not_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line passes it on as it is given."""
    for name in ("in.json", "file"):
        (tmp_path / name).touch()
    asked, exists = count(), os.path.lexists

    def lexists(path: str) -> bool:
        assert next(asked) < 100, "the folders above a path have no end"
        return exists(path)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os.path, "lexists", lexists)
    own = check_places(str(tmp_path / "in.json"), find_table("t"), {}, checkpoint="new/checkpoint")
    assert own["checkpoint"] == "new/checkpoint"
    with pytest.raises(StorageRefused, match="is a file, not a folder"):
        check_places(str(tmp_path / "in.json"), find_table("t"), {}, checkpoint="file/checkpoint")
