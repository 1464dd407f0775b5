"""Which format a table has, by what a caller says."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from widen.errors import InvalidOption
from widen.targets import find_table
from widen.targets.delta import DeltaLocation
from widen.targets.iceberg import IcebergLocation


def test_a_path_is_a_delta_table(tmp_path: Path) -> None:
    for words in ({}, {"to": "delta"}):
        found = find_table(tmp_path / "orders", **words)
        assert isinstance(found, DeltaLocation)
        assert found.location == str(tmp_path / "orders")


@pytest.mark.parametrize("words", [{"to": "iceberg"}, {"catalog": "c.db"}, {"to": "iceberg", "catalog": "c.db"}])
def test_a_catalog_or_the_format_makes_it_iceberg(words: dict[str, Any]) -> None:
    found = find_table("shop.orders", **words)
    assert isinstance(found, IcebergLocation)
    assert found.location == "shop.orders"
    assert str(found.name.catalog) == (str(Path("c.db").absolute()) if "catalog" in words else "default")
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"to": "hudi"}, "to cannot be 'hudi'"),
        ({"to": "delta", "catalog": "prod"}, "catalog cannot be 'prod'"),
        ({"partition_by": ["day(at)"]}, "partition_by cannot be"),
        ({"to": "iceberg", "partition_by": ["week(at)"]}, "partition_by cannot be"),
    ],
)
def test_what_does_not_belong_to_the_format_is_refused(words: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidOption, match=message):
        find_table("shop.orders", **words)


def test_the_quarantine_is_beside_the_table_in_its_catalog(tmp_path: Path) -> None:
    found = find_table("shop.orders", catalog=tmp_path / "c.db")
    assert found.quarantine(None).location == "shop.orders_quarantine"
    assert found.quarantine(found.resolve("lost.found")).location == "lost.found"
    with pytest.raises(InvalidOption, match="quarantine"):
        found.quarantine("shop.orders")
    delta = find_table(str(tmp_path / "orders"))
    assert delta.resolve("q") == str(Path("q").absolute())
