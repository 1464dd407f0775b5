"""The commands that only read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import widen
from support.command_line import run, run_json
from widen.cli import output
from widen.spark import session


def test_a_rule_is_explained() -> None:
    assert run_json("explain", "u8") == [
        {
            "code": "U8",
            "title": "A wider kind gets its own column",
            "text": "A kind that arrives later and is wider than every existing column of the field, or cannot be "
            "converted to any of them, gets a new column of exactly that kind.\n\nExample: `size` is long, then 2.3 "
            "arrives: `size_double` is added. (In the mode `widen`, `size` itself widens where the table format can do "
            "that without loss: D1.)",
        }
    ]


def test_without_a_code_all_rules_are_listed() -> None:
    lines = run("explain").output.splitlines()
    assert (len(lines), lines[0]) == (65, "U1  Every value has a column")


def test_an_unknown_code_is_an_error() -> None:
    ended = run("explain", "U99")
    assert ended.exit_code == 1
    assert "U1 to U20, D1 to D24 or V1 to V21" in ended.output


def test_columns_can_be_selected_with_commas_between_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_active", lambda: None)
    monkeypatch.setattr(output, "spark_session", lambda *_: pytest.fail("Spark starts for a list of columns"))
    (tmp_path / "1.json").write_text('{"id": 1, "a,b": 2, "c": {"d": 3}}')
    properties = {"delta.columnMapping.mode": "name"}
    table = widen.create_table(tmp_path / "t", "id bigint, `a,b` bigint, c struct<d: bigint>", properties=properties)
    widen.ingest(tmp_path / "1.json", table.location)

    def rows(*selected: str) -> dict[str, object]:
        words = (word for each in selected for word in ("--select", each))
        read: dict[str, object] = json.loads(run("read", table.location, *words, "--json").stdout)
        return read

    assert rows("id, `a,b`,c.d", "coalesce(id, 5) AS e") == {"id": 1, "a,b": 2, "d": 3, "e": 1}
    assert rows("`a,b`") == {"a,b": 2}
    assert rows("concat('x,y', \"z,\") AS t") == {"t": "x,yz,"}
