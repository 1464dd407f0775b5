"""Files of thousands of columns are read in time that follows the columns."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import widen
from widen.model import types


@pytest.mark.parametrize("mode", ["none", "name"])
@pytest.mark.parametrize("missing", [0, 150])
def test_each_name_is_looked_at_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int, mode: str
) -> None:
    """A file may lack columns that came later."""
    columns = [f"c{number}" for number in range(300)]
    schema = ", ".join(f"{name} int" for name in columns[missing:])
    widen.create_table(tmp_path / "t", schema, properties={"delta.columnMapping.mode": mode})
    for names in [columns[missing:], columns][: 1 + bool(missing)]:
        (tmp_path / f"{len(names)}.json").write_text(json.dumps(dict.fromkeys(names, 1)))
        widen.ingest(tmp_path / f"{len(names)}.json", tmp_path / "t", engine="local")
    counts = [0]

    def count(name: str, name_keys=types.name_keys) -> tuple[str, ...]:  # type: ignore[no-untyped-def]
        counts[0] += 1
        return name_keys(name)

    monkeypatch.setattr("widen.files.data_reader.name_keys", count)
    rows = widen.Table(str(tmp_path / "t")).to_arrow()
    assert (rows.num_rows, rows.num_columns) == (1 + bool(missing), 300)
    assert sum(column.null_count for column in rows.columns) == missing
    assert 0 < counts[0] <= 5 * 300
