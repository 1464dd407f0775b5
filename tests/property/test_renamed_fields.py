"""Fields that a source has renamed: with `alter_column(source=…)` a table gets the rows as if they had their old names.

The rows of records with the old names say what is expected. The proof has a rule of its own for what a name stands for.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from support.iceberg_files import embedded_catalog
from widen.errors import InvalidOption, ItemRenameRefused
from widen.files.expressions import query_locally
from widen.model.native_kernel import KERNEL_VARIABLE, find_kernel

EVERY = os.environ.get("WIDEN_TEST_FAULTS") == "1"
NEW_NAMES = {"n": "n2", "x": "Größe", "s": "part"}
FIRST = {"id": 0, "n": 1, "s": {"x": 1, "y": "a"}, "items": [{"x": 2}], "tags": {"n": 1}}
COLUMNS = {"n": "n2", "s": "part", "s.x": "Größe", "items.element.x": "Größe"}
OPTIONS: Sequence[Mapping[str, Any]] = (
    {},
    {"names": "exact"},
    {"evolve": "split"},
    {"key": ["id"]},
    {"key": ["n"], "sequence_by": "id"},
    {"mask": ["n"], "exclude": ["s.x"]},
    {"pins": {"n": "text"}},
)


class Place:
    """A table of one of the formats.

    Args:
        catalog: That of an Iceberg table; None for Delta.
    """

    def __init__(self, folder: Path, name: str, *, is_iceberg: bool) -> None:
        self.folder, self.words = folder, {}
        self.table = str(folder / name)
        if is_iceberg:
            embedded_catalog(folder)
            self.table, self.words = f"ns.{name}", {"catalog": str(folder / "catalog.db")}

    def load(self, file: Path, **options: Any) -> widen.IngestResult:
        done = widen.ingest(file, self.table, engine="local", verify=True, **self.words, **options)
        assert done.verification is not None
        assert done.verification.is_clean, str(done.verification)
        return done

    def open(self) -> widen.Table | widen.IcebergTable:
        return widen.IcebergTable(self.table, **self.words) if self.words else widen.Table(self.table)

    def rows(self) -> list[str]:
        return sorted(json.dumps(row, default=str, sort_keys=True) for row in _rows(self.open()))


def _rows(table: Any) -> list[dict[str, Any]]:
    if isinstance(table, widen.IcebergTable):
        return table.table.scan().to_arrow().to_pylist()
    return query_locally(table.snapshot)[1].to_pylist()


def renamed(value: Any, chance: random.Random | None, *, is_map: bool = False) -> Any:
    """Return a value with the new names of fields, or each with one of both."""
    if isinstance(value, list):
        return [renamed(each, chance) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        NEW_NAMES.get(key, key) if not is_map and (chance is None or chance.random() < 0.5) else key: renamed(
            each, chance, is_map=key == "tags"
        )
        for key, each in value.items()
    }


def record(chance: random.Random, number: int) -> dict[str, Any]:
    inside = {"x": chance.choice([1, 2.5, "t", None]), "y": chance.choice(["b", 7])}
    whole = {
        "id": number,
        "n": chance.choice([number, number, 2**40 + number, f"t{number}"]),
        "s": inside,
        "items": [{"x": chance.choice([1, None, "u"])} for _ in range(chance.randrange(3))],
        "tags": {"n": number},
    }
    return {key: each for key, each in whole.items() if key in ("id", "n") or chance.random() < 0.8}


def write(file: Path, records: Sequence[Mapping[str, Any]]) -> Path:
    file.write_text("".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records), encoding="utf-8")
    return file


@pytest.mark.parametrize("is_iceberg", [False, True], ids=["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(len(OPTIONS)))
def test_renamed_fields_fill_the_columns_of_the_old_names(
    seed: int, is_iceberg: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, options = random.Random(seed), {"pins": {"tags": "map"}, **OPTIONS[seed]}
    options["pins"] = {"tags": "map", **options["pins"]}
    batches = [[record(chance, 10 * at + each) for each in range(1, 7)] for at in range(2)]
    expected = Place(tmp_path, "expected", is_iceberg=is_iceberg)
    first = write(tmp_path / "first.jsonl", [FIRST])
    for at, batch in enumerate([[FIRST], *batches]):
        expected.load(write(tmp_path / f"old{at}.jsonl", batch), **options)
    for kernel in ("", "off") if EVERY else (("", "off")[seed % 2],):
        monkeypatch.setenv(KERNEL_VARIABLE, kernel)
        find_kernel.cache_clear()
        place = Place(tmp_path, f"renamed{kernel}", is_iceberg=is_iceberg)
        place.load(first, **options)
        hidden = {"s.x"} if "exclude" in options else set()
        for column, name in COLUMNS.items():
            if column not in hidden:
                place.open().alter_column(column, source=name)
        for at, (batch, mixed) in enumerate(zip(batches, (None, chance), strict=True)):
            records = [renamed(each, mixed) for each in batch]
            if hidden:
                records = [json.loads(json.dumps(each, ensure_ascii=False).replace("Größe", "x")) for each in records]
            place.load(write(tmp_path / f"new{kernel}{at}.jsonl", records), **options)
        assert place.rows() == expected.rows()
    find_kernel.cache_clear()


def make(folder: Path, file: str, columns: Mapping[str, list[Any]]) -> Path:
    """Write columns as a file whose format its name says."""
    path = folder / file
    if path.suffix == ".csv":
        rows = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    else:
        pq.write_table(pa.table(dict(columns)), path)
    return path


@pytest.mark.parametrize("is_iceberg", [False, True], ids=["delta", "iceberg"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_other_formats(suffix: str, is_iceberg: bool, tmp_path: Path) -> None:
    place = Place(tmp_path, "t", is_iceberg=is_iceberg)
    place.load(make(tmp_path, f"a.{suffix}", {"id": [1], "n": ["a"]}))
    place.open().alter_column("n", source="n2")
    done = place.load(make(tmp_path, f"b.{suffix}", {"id": [2], "N2": ["b"]}))
    assert [str(each) for each in done.plan.renamed] == ["N2 is n"]
    place.load(make(tmp_path, f"c.{suffix}", {"id": [3], "n2": ["secret"]}), mask=["n2"])
    assert [json.loads(row)["n"] for row in place.rows()] == ["a", "b", "***"]


@pytest.mark.parametrize("is_iceberg", [False, True], ids=["delta", "iceberg"])
def test_a_record_with_both_names_has_two_fields(is_iceberg: bool, tmp_path: Path) -> None:
    place = Place(tmp_path, "t", is_iceberg=is_iceberg)
    place.load(write(tmp_path / "a.jsonl", [{"n": 1}]))
    place.open().alter_column("n", source="n2")
    place.load(write(tmp_path / "b.jsonl", [{"n": 2, "n2": 3}]))
    place.load(write(tmp_path / "c.jsonl", [{"n2": 4}]))
    assert place.rows() == ['{"n": 1, "n2": null}', '{"n": 2, "n2": 3}', '{"n": null, "n2": 4}']


@pytest.mark.parametrize("is_iceberg", [False, True], ids=["delta", "iceberg"])
def test_the_old_name_can_go(is_iceberg: bool, tmp_path: Path) -> None:
    place = Place(tmp_path, "t", is_iceberg=is_iceberg)
    place.load(write(tmp_path / "a.jsonl", [{"s": {"x": 1}}]))
    place.open().alter_column("s", source="part", drop_source="s")
    place.load(write(tmp_path / "b.jsonl", [{"part": {"x": 2}}, {"s": "other"}]))
    rows = ['{"s": null, "s_2": "other"}', '{"s": {"x": 1}, "s_2": null}', '{"s": {"x": 2}, "s_2": null}']
    assert place.rows() == rows


@pytest.mark.parametrize("is_iceberg", [False, True], ids=["delta", "iceberg"])
def test_mistakes_are_named(is_iceberg: bool, tmp_path: Path) -> None:
    place = Place(tmp_path, "t", is_iceberg=is_iceberg)
    first = {"id": 1, "n": 1, "m": 2, "s": {"x": 1}, "tags": ["a"]}
    place.load(write(tmp_path / "a.jsonl", [first]), key=["id"], mask=["m"], allow_unmatched=True)
    cases: Sequence[tuple[str, Mapping[str, str], type[Exception], str]] = (
        ("n", {"source": "M"}, InvalidOption, "Column m holds this field"),
        ("n", {"source": ""}, InvalidOption, "beside 'n'"),
        ("s.x", {"source": "s.y"}, InvalidOption, "not a path"),
        ("tags.element", {"source": "x"}, ItemRenameRefused, "given another source field"),
        ("n", {"drop_source": "x"}, InvalidOption, "Must be one of: n."),
        ("n", {"drop_source": "n"}, InvalidOption, "the only field"),
        ("id", {"source": "id2", "drop_source": "id"}, InvalidOption, "widen.keys"),
        ("m", {"source": "m2", "drop_source": "m"}, InvalidOption, "widen.hiddenFields"),
    )
    for column, words, error, text in cases:
        with pytest.raises(error, match=text):
            place.open().alter_column(column, **words)
