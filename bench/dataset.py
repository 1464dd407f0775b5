"""JSON lines for the benchmark: 600,000 nested records, 240 MB, one in five with a field that drifts.

The text depends on the seed alone, so that every run and every machine measures the same bytes.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

RECORDS = 600_000
FILES = 8
DRIFTING = 0.2

CITIES = ["Lisboa", "København", "Kraków", "Oulu", "Zürich", "Gent", "Brno", "Trieste"]
STATES = ["placed", "paid", "packed", "shipped", "delivered", "returned"]
CHANNELS = ["web shop", "phone", "market place"]
WORDS = ["gift", "express", "fragile", "repeat", "invoice", "pickup", "weekend", "student"]
FIRST_NAMES = ["Ada", "Bram", "Chiara", "Dilnoza", "Emre", "Freja", "Goran", "Hana"]
LAST_NAMES = ["Alves", "Berg", "Conti", "Dudek", "Eriksen", "Fischer", "Gruber", "Horvat"]

Record = dict[str, object]


def write(folder: Path, seed: int, records: int = RECORDS, drifting: float = DRIFTING) -> Path:
    """Write the records into ``FILES`` files below the folder, unless they are there, and return the folder."""
    done = folder / "_done"
    if not done.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for part in range(FILES):
            lines = _lines(random.Random(seed * FILES + part), part, records // FILES, drifting)
            with (folder / f"part-{part}.json").open("w", encoding="utf-8") as out:
                out.writelines(lines)
        done.touch()
    return folder


def _lines(chance: random.Random, part: int, records: int, drifting: float) -> Iterator[str]:
    for number in range(records):
        record = _record(chance, part * records + number)
        if chance.random() < drifting:
            chance.choice(DRIFTS)(record, chance)
        yield json.dumps(record, ensure_ascii=False, separators=(",", ":")) + "\n"


def _record(chance: random.Random, number: int) -> Record:
    return {
        "order_id": 1_000_000 + number,
        "placed_at": f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:15:07Z",
        "status": chance.choice(STATES),
        "paid": chance.random() < 0.8,
        "currency": "EUR",
        "channel": chance.choice(CHANNELS),
        "total": chance.randint(100, 99_999) / 100,
        "customer": {
            "id": chance.randint(1, 90_000),
            "name": f"{chance.choice(FIRST_NAMES)} {chance.choice(LAST_NAMES)}",
            "address": {"city": chance.choice(CITIES), "zip": chance.randint(1_000, 9_999), "geo": _point(chance)},
        },
        "tags": chance.sample(WORDS, chance.randint(1, 3)),
        "items": [_item(chance) for _ in range(chance.randint(1, 3))],
        "note": None if chance.random() < 0.5 else "please call before delivery",
    }


def _item(chance: random.Random) -> Record:
    sku = f"SKU-{chance.randint(10_000, 99_999)}"
    return {"sku": sku, "quantity": chance.randint(1, 9), "price": chance.randint(50, 20_000) / 100}


def _point(chance: random.Random) -> list[float]:
    return [chance.randint(3_500, 6_500) / 100, chance.randint(-900, 2_500) / 100]


def _total_as_text(record: Record, chance: random.Random) -> None:
    record["total"] = f"{record['total']} EUR"


def _tags_as_scalar(record: Record, chance: random.Random) -> None:
    record["tags"] = chance.choice(WORDS)


def _items_as_record(record: Record, chance: random.Random) -> None:
    record["items"] = _item(chance)


def _quantity_as_fraction(record: Record, chance: random.Random) -> None:
    record["items"] = [{**_item(chance), "quantity": chance.randint(1, 30) / 4}]


def _big_order_id(record: Record, chance: random.Random) -> None:
    record["order_id"] = 9_007_199_254_740_993 + chance.randint(0, 10**6)


def _zip_as_text(record: Record, chance: random.Random) -> None:
    record["customer"]["address"]["zip"] = f"DK-{chance.randint(1_000, 9_999)}"  # type: ignore[index]


def _new_field(record: Record, chance: random.Random) -> None:
    record["coupon"] = {"code": chance.choice(WORDS).upper(), "percent": chance.randint(5, 40)}


def _paid_as_number(record: Record, chance: random.Random) -> None:
    record["paid"] = chance.randint(0, 1)


DRIFTS: list[Callable[[Record, random.Random], None]] = [
    _total_as_text,
    _tags_as_scalar,
    _items_as_record,
    _quantity_as_fraction,
    _big_order_id,
    _zip_as_text,
    _new_field,
    _paid_as_number,
]
