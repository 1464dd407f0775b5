"""A table with a damaged data file: each way to read it names the file and says what to do, without Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

import widen
from support.command_line import run
from support.covering import covering
from widen.spark import session

DAMAGE: dict[str, Callable[[bytes], bytes] | None] = {
    "missing": None,
    "empty": lambda data: b"",
    "half": lambda data: data[: len(data) // 2],
    "one byte less": lambda data: data[:-1],
    "text": lambda data: b"id,name\n1,a\n" * 20,
    "only its first bytes": lambda data: b"PAR1",
    "NULs": lambda data: bytes(len(data)),
    "a damaged footer": lambda data: data[:-60] + b"\xff" * 40 + data[-20:],
    "a footer that is too long": lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:],
    "a damaged page": lambda data: data[:4] + b"\xff" * 64 + data[68:],
    "NULs in a page": lambda data: data[:80] + bytes(40) + data[120:],
}

CALLS = {
    "read": ["read", "{}"],
    "condition": ["read", "{}", "--where", "id > 5"],
    "limit": ["read", "{}", "--limit", "300"],
    "select": ["read", "{}", "--select", "id"],
    "sql": ["sql", "SELECT * FROM {} WHERE id > 5"],
    "delete": ["sql", "DELETE FROM {} WHERE id = 7"],
    "update": ["sql", "UPDATE {} SET name = 'x' WHERE id = 7"],
}


def no_spark(*_: object, **__: object) -> NoReturn:
    raise AssertionError("Spark would say no more")


def make_table(folder: Path, kind: str) -> tuple[str, list[str]]:
    """Load a large file and a small one; return the table, and the words of commands for its catalog."""
    rows = "".join(f'{{"id": {number}, "name": "n{number % 50}"}}\n' for number in range(400))
    (folder / "a.json").write_text(rows)
    (folder / "b.json").write_text('{"id": 1000, "name": "z"}\n')
    table, catalog = (str(folder / "t"), {}) if kind == "delta" else ("db.t", {"catalog": folder / "c.db"})
    for name in ("a", "b"):
        widen.ingest(folder / f"{name}.json", table, to=kind, engine="local", **catalog)
    return table, [f"--catalog={value}" for value in catalog.values()]


LAYOUTS = [(kind, call) for call in CALLS for kind in ("delta", "iceberg")]


@pytest.mark.parametrize(("damage", "layout"), covering(DAMAGE, LAYOUTS))
def test_a_damaged_data_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str, layout: tuple[str, str]
) -> None:
    kind, call = layout
    monkeypatch.setattr(session, "_start_session", no_spark)
    table, words = make_table(tmp_path, kind)
    file = max(tmp_path.rglob("part-*.parquet"), key=lambda path: path.stat().st_size)
    change = DAMAGE[damage]
    if change is None:
        file.unlink()
    else:
        file.write_bytes(change(file.read_bytes()))
    name = f"delta.`{table}`" if CALLS[call][0] == "sql" and kind == "delta" else table
    done = run(*(word.format(name) for word in CALLS[call]), *words)
    assert (done.exit_code, done.stdout) == (1, "")
    told = done.stderr.replace("\n", "")
    assert file.name in told
    assert "WIDEN_FILE_UNREADABLE" in told
    assert "hint: " in told
    assert "Traceback" not in told
