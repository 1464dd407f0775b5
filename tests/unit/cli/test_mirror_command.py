"""``widen mirror``: an Iceberg table that shows a Delta table."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

import widen
from support.command_line import run, run_json


def test_an_empty_table_is_mirrored_once(tmp_path: Path) -> None:
    place, catalog = str(tmp_path / "orders"), str(tmp_path / "lake.db")
    widen.create_table(place, "id bigint", properties={"delta.enableIcebergCompatV2": "true"})
    words = ("mirror", place, "--catalog", catalog, "--identifier", "shop.orders")
    assert run(*words).stdout == "✓ shop.orders shows version 0: 0 added, 0 removed\n"
    assert run(*words).stdout == "shop.orders shows version 0 already\n"
    again = run_json(*words)
    assert again == {
        "identifier": "shop.orders", "version": 0, "snapshot": None, "changed": False, "added": 0, "removed": 0,
    }  # fmt: skip
    assert widen.IcebergTable("shop.orders", catalog=catalog).schema.names == ("id",)


def test_the_mirror_follows_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place, catalog = str(tmp_path / "orders"), str(tmp_path / "lake.db")
    table = widen.create_table(place, "id bigint", properties={"delta.enableIcebergCompatV2": "true"})

    class Stop:
        rounds = 0

        def wait(self, seconds: float) -> bool:
            assert seconds == 3
            self.rounds += 1
            if self.rounds == 2:
                table.add_columns({"note": "string"})
            return self.rounds > 3

    monkeypatch.setattr("widen.cli.maintenance_commands.stop_requested", lambda: nullcontext(Stop()))
    words = ("mirror", place, "--catalog", catalog, "--identifier", "shop.orders", "--follow", "--every", "3")
    done = run(*words)
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [f"✓ shop.orders shows version {version}: 0 added, 0 removed" for version in (0, 1)],
    )
    assert widen.IcebergTable("shop.orders", catalog=catalog).schema.names == ("id", "note")


def test_a_table_without_compatibility_is_refused(tmp_path: Path) -> None:
    widen.create_table(str(tmp_path / "plain"), "id bigint")
    words = ("mirror", str(tmp_path / "plain"), "--catalog", str(tmp_path / "lake.db"), "--identifier", "a.b")
    done = run(*words)
    assert done.exit_code == 1
    assert "it does not have IcebergCompatV1 or IcebergCompatV2" in " ".join(done.stderr.split())
