"""Data of several shapes for the warm benchmark. The text depends on the seed alone."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import dataset

FILES = 4
Make = Callable[[random.Random, int], object]

CSV_FIELDS = ["id", "placed_at", "status", "total", "customer", "city", "paid", "note", "sku", "zip"]
CSV_SCHEMA = (
    "id bigint, placed_at string, status string, total double, customer int, city string, paid boolean, note string, "
    "sku string, zip string"
)
CSV_TEXTS = ", ".join(f"{name} string" for name in CSV_FIELDS)


def write_json(folder: Path, seed: int, records: int, make: Make) -> Path:
    """Write JSON lines into `FILES` files below a folder, unless they are there; return the folder."""

    def lines(chance: random.Random, numbers: Iterable[int]) -> Iterable[str]:
        return (json.dumps(make(chance, n), ensure_ascii=False, separators=(",", ":")) + "\n" for n in numbers)

    return _write(folder, seed, records, "json", lambda out, chance, numbers: out.writelines(lines(chance, numbers)))


def write_csv(folder: Path, seed: int, records: int) -> Path:
    """Write CSV files with a header below a folder, unless they are there; return the folder."""

    def write(out: object, chance: random.Random, numbers: Iterable[int]) -> None:
        rows = csv.writer(out, lineterminator="\n")  # type: ignore[arg-type]
        rows.writerow(CSV_FIELDS)
        rows.writerows(_csv_row(chance, number) for number in numbers)

    return _write(folder, seed, records, "csv", write)


def _write(folder: Path, seed: int, records: int, ending: str, write: Callable[..., object]) -> Path:
    done = folder.with_name(folder.name + ".done")
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for part in range(FILES):
            numbers = range(part * records // FILES, (part + 1) * records // FILES)
            with (folder / f"part-{part}.{ending}").open("w", encoding="utf-8", newline="") as out:
                write(out, random.Random(seed * FILES + part), numbers)
        done.touch()
    return folder


def _csv_row(chance: random.Random, number: int) -> list[object]:
    at = f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:15:07Z"
    note = "" if chance.random() < 0.5 else "please call, before delivery"
    total, sku = chance.randint(100, 99_999) / 100, f"SKU-{chance.randint(10_000, 99_999)}"
    row = [number, at, chance.choice(dataset.STATES), total, chance.randint(1, 90_000), chance.choice(dataset.CITIES)]
    return [*row, "true" if chance.random() < 0.8 else "false", note, sku, f"{chance.randint(0, 9_999_999):08}"]


def wide(leaves: int) -> Make:
    """Return a maker of flat records with so many fields: integers, fractions, short texts and booleans in turn."""
    makers: list[Callable[[random.Random], object]] = [
        lambda chance: chance.randint(0, 10**6),
        lambda chance: chance.randint(0, 10**6) / 100,
        lambda chance: chance.choice(dataset.WORDS),
        lambda chance: chance.random() < 0.5,
    ]
    return lambda chance, _: {f"field_{at}": makers[at % len(makers)](chance) for at in range(leaves)}


def deep(chance: random.Random, number: int) -> object:
    """Return a record with 10 records, one in the other, and an array of records in each."""
    record: dict[str, object] = {"id": number, "name": chance.choice(dataset.WORDS)}
    for level in range(10):
        items = [{"n": chance.randint(1, 9), "word": chance.choice(dataset.WORDS)} for _ in range(2)]
        record = {"level": level, "below": record, "items": items}
    return record


def long_text(chance: random.Random, number: int) -> object:
    """Return a record with a text of 10,000 characters."""
    return {
        "id": number,
        "title": chance.choice(dataset.CITIES),
        "body": " ".join(chance.choices(dataset.WORDS, k=1_400)),
    }
