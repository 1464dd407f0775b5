"""Options that several kinds of ingestion have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from widen.errors import IcebergTableNotFound, InvalidOption, TableNotFound
from widen.ingestion.options import to_quarantine
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
