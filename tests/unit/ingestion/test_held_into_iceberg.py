"""Records in memory go into Iceberg tables as the same records in a file of JSON lines do."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import widen

Record = dict[str, Any]


def generated(random: Random, keys: int) -> list[Record]:
    """Return records with repeated and missing keys, late sequences and deletions."""
    records = []
    for number in range(40):
        record: Record = {"id": random.randrange(keys), "at": random.randrange(10**6), "op": random.choice("uuud")}
        if random.random() < 0.1:
            record["id"] = None
        record |= {"name": random.choice(["a", "ä", None]), "n": random.choice([1, 2**40]), "deep": {"k": [number]}}
        records.append(record)
    return records


def forms(records: list[Record]) -> dict[str, Any]:
    table = pa.Table.from_pylist(records)
    return {
        "list": records,
        "iterator": iter(records),
        "table": table,
        "reader": pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=7)),
    }


def contents(place: Path, name: str) -> tuple[list[str], list[str]]:
    """Return the rows of a table, and what its quarantine has of their records."""
    table = widen.IcebergTable(f"shop.{name}", catalog=str(place))
    rows = sorted(json.dumps(row, sort_keys=True, default=str) for row in table.to_arrow().to_pylist())
    return rows, sorted(quarantined(place, name))


def quarantined(place: Path, name: str) -> Iterator[str]:
    try:
        kept = widen.IcebergTable(f"shop.{name}_quarantine", catalog=str(place)).to_arrow().to_pylist()
    except widen.WidenError:
        return
    for row in kept:
        yield json.dumps({key: value for key, value in json.loads(row["text"]).items() if value is not None})


@pytest.mark.parametrize("form", ["list", "iterator", "table", "reader"])
@pytest.mark.parametrize("version", [2, 3])
def test_rows_in_memory_are_loaded_by_key_as_lines_are(tmp_path: Path, form: str, version: int) -> None:
    random, place = Random(f"{form} {version}"), tmp_path / "c.db"
    words: Record = {"catalog": str(place), "key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}
    words |= {"format_version": version, "engine": "local"}
    for load in range(3):
        records = generated(random, 12)
        lines = tmp_path / f"{load}.json"
        lines.write_text("".join(f"{json.dumps(each)}\n" for each in records))
        held = widen.ingest(forms(records)[form], "shop.held", txn=("held", load), **words)
        filed = widen.ingest(lines, "shop.filed", txn=("held", load), **words)
        assert (held.keys, held.quarantined) == (filed.keys, filed.quarantined)
        assert held.quarantined == sum(each["id"] is None for each in records)
        again = widen.ingest(forms(generated(random, 12))[form], "shop.held", txn=("held", load), **words)
        assert again.records == 0
        assert contents(place, "held") == contents(place, "filed")
