"""Records of many shapes. The text depends on the seed alone, so that every run measures the same bytes.

`SHAPES` are those of `bench/shapes.py`. No record is tuned to what Widen does fast: a shape stands for sources that
somebody has.
"""

from __future__ import annotations

import csv
import gzip
import json
import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
        rows = csv.writer(out, lineterminator="\n")
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


# ---- the shapes of bench/shapes.py -----------------------------------------------------------------

Record = dict[str, Any]
MakeRecord = Callable[[random.Random, int], Record]


class Spelled(float):
    """A number that JSON spells as it was given."""

    def __new__(cls, text: str) -> Spelled:
        number = super().__new__(cls, text)
        number.text = text  # type: ignore[attr-defined]
        return number

    def __repr__(self) -> str:
        return str(self.text)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Shape:
    """Records of one shape.

    Args:
        make: Returns the record of a number.
        files: Number of files that the bytes are spread over.
        form: ``json``, ``csv``, ``parquet`` or ``gz``.
        is_spaced: Whether there are spaces after commas and colons.
        is_ascii: Whether characters outside of ASCII are written as escapes.
        drifting: Share of the records whose field drifts.
        drift: Changes a record in place.
        options: Options of the ingestion.
    """

    make: MakeRecord
    files: int = 1
    form: str = "json"
    is_spaced: bool = False
    is_ascii: bool = False
    drifting: float = 0.0
    drift: Callable[[random.Random, Record], None] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def line(self, chance: random.Random, number: int) -> str:
        """Return the JSON of a record."""
        record = self.make(chance, number)
        if self.drift is not None and chance.random() < self.drifting:
            self.drift(chance, record)
        separators = (", ", ": ") if self.is_spaced else (",", ":")
        return _to_json(record, self.is_ascii, separators)

    def lines(self, seed: int, size_bytes: int) -> Iterable[str]:
        """Yield lines of JSON, of about so many bytes in all."""
        chance, left, number = random.Random(seed), size_bytes, seed * 10_000_000
        while left > 0:
            line = self.line(chance, number)
            left -= len(line) + 1
            number += 1
            yield line


def _to_json(value: Any, is_ascii: bool, separators: tuple[str, str]) -> str:
    # The encoders of Python write floats of every class by `float.__repr__`.
    comma, colon = separators
    if isinstance(value, dict):
        inner = (
            json.dumps(k, ensure_ascii=is_ascii) + colon + _to_json(v, is_ascii, separators) for k, v in value.items()
        )
        return "{" + comma.join(inner) + "}"
    if isinstance(value, list):
        return "[" + comma.join(_to_json(item, is_ascii, separators) for item in value) + "]"
    return repr(value) if isinstance(value, Spelled) else json.dumps(value, ensure_ascii=is_ascii)


def write_shape(folder: Path, shape: Shape, seed: int, size_bytes: int) -> Path:
    """Write the records of a shape below a folder, unless they are there; return the folder.

    Parquet is written by the caller, from the JSON that this function writes for it.
    """
    done = folder.with_name(folder.name + ".done")
    if done.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    lines = list(shape.lines(seed, size_bytes))
    for part in range(shape.files):
        some = lines[part * len(lines) // shape.files : (part + 1) * len(lines) // shape.files]
        if shape.form == "csv":
            _write_csv_lines(folder / f"part-{part:04}.csv", some)
        elif shape.form == "gz":
            with gzip.open(folder / f"part-{part:04}.json.gz", "wt", encoding="utf-8") as out:
                out.writelines(f"{line}\n" for line in some)
        else:
            (folder / f"part-{part:04}.json").write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    done.touch()
    return folder


def _write_csv_lines(file: Path, lines: Iterable[str]) -> None:
    records = list(map(json.loads, lines))
    with file.open("w", encoding="utf-8", newline="") as out:
        rows = csv.writer(out, lineterminator="\n")
        rows.writerow(records[0])
        rows.writerows(["" if v is None else json.dumps(v).strip('"') for v in record.values()] for record in records)


def _flat(chance: random.Random, number: int) -> Record:
    return {
        "id": number,
        "kind": chance.choice(dataset.STATES),
        "user": f"u-{chance.randint(1, 90_000)}",
        "count": chance.randint(0, 500),
        "ok": chance.random() < 0.9,
        "city": chance.choice(dataset.CITIES),
        "score": chance.randint(0, 10_000) / 100,
        "agent": chance.choice(dataset.WORDS),
        "bytes": chance.randint(0, 10**7),
        "page": f"/{chance.choice(dataset.WORDS)}/{chance.randint(1, 999)}",
        "code": chance.choice([200, 201, 301, 404, 500]),
        "ms": chance.randint(1, 3_000),
    }


def _event(chance: random.Random, number: int) -> Record:
    return {
        "event_id": 1_700_000_000_000_000_000 + number * 1_000_003,
        "type": chance.choice(["view", "click", "buy"]),
        "at": f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}T{chance.randint(0, 23):02}:05:59Z",
        "user": {"id": chance.randint(10**9, 10**10), "name": chance.choice(dataset.FIRST_NAMES), "tier": None},
        "place": {"city": chance.choice(dataset.CITIES), "geo": {"point": dataset._point(chance), "radius": 2.5}},
        "lines": [dataset._item(chance) for _ in range(chance.randint(0, 4))],
        "weights": [chance.randint(1, 10**6) / 10**4 for _ in range(3)],
        "labels": chance.sample(dataset.WORDS, 2),
    }


def _deep_six(chance: random.Random, number: int) -> Record:
    record: Record = {"n": number, "word": chance.choice(dataset.WORDS)}
    for level in range(5):
        record = {"level": level, "v": chance.randint(0, 10**6), "name": chance.choice(dataset.CITIES), "below": record}
    return record


def _with_id(**makers: Callable[[random.Random], Any]) -> MakeRecord:
    return lambda chance, number: {"id": number, **{key: make(chance) for key, make in makers.items()}}


def _eight(make: Callable[[random.Random], Any]) -> MakeRecord:
    return _with_id(**{f"x{n}": make for n in range(8)})


def _some(make: Callable[[random.Random], Any], least: int = 0, most: int = 12) -> Callable[[random.Random], list[Any]]:
    return lambda chance: [make(chance) for _ in range(chance.randint(least, most))]


def _word(chance: random.Random) -> str:
    return chance.choice(dataset.WORDS)


def _digits(chance: random.Random, most: int) -> str:
    return str(chance.randint(1, 9)) + "".join(chance.choice("0123456789") for _ in range(most - 1))


def _fraction(digits: int, after: int) -> Callable[[random.Random], Spelled]:
    """Return a maker of fractions with so many digits, some of them after the point; the last one is not zero."""

    def make(chance: random.Random) -> Spelled:
        text = _digits(chance, digits - 1) + chance.choice("123456789")
        return Spelled(f"{text[:-after]}.{text[-after:]}")

    return make


def _exponent(chance: random.Random) -> Spelled:
    return Spelled(
        f"{chance.randint(1, 9)}.{chance.randint(1, 99)}e{chance.choice(['-', '+', ''])}{chance.randint(1, 20)}"
    )


def _sentence(chance: random.Random) -> str:
    return " ".join(chance.choices(dataset.WORDS, k=6))


def _escaped(chance: random.Random) -> str:
    return f'{_word(chance)} "{_word(chance)}"\n\t{_word(chance)}\\{_word(chance)}'


def _foreign(chance: random.Random) -> str:
    return " ".join(chance.choices(["Größe", "naïve", "東京", "Łódź", "emoji 😀", "señor"], k=4))


def _sparse(chance: random.Random, number: int) -> Record:
    keys = sorted(chance.sample(range(60), 6))
    return {"id": number, **{f"field_{key}": chance.randint(0, 999) if key % 2 else _word(chance) for key in keys}}


def _nulls(chance: random.Random, number: int) -> Record:
    return {**_flat(chance, number), "never": None, "note": None, "other": {"deep": None, "x": chance.randint(0, 9)}}


def _shuffled(chance: random.Random, number: int) -> Record:
    fields = list(_flat(chance, number).items())
    chance.shuffle(fields)
    return dict(fields)


def _empties(chance: random.Random, number: int) -> Record:
    items: list[Any] = [[], [1, 2]]
    return {
        "id": number,
        "list": chance.choice(items),
        "none": [],
        "object": {},
        "text": _sentence(chance),
        "r": {"x": {}},
    }


def _map_like(chance: random.Random, number: int) -> Record:
    return {"id": number, "counts": {f"key {chance.randint(0, 250)}": chance.randint(0, 99) for _ in range(8)}}


def _dates(chance: random.Random, number: int) -> Record:
    day = f"2026-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"
    clock = f"{chance.randint(0, 23):02}:{chance.randint(0, 59):02}:07"
    return {"id": number, "day": day, "at": f"{day}T{clock}Z", "fine": f"{day}T{clock}.{chance.randint(0, 10**6):06}Z"}


def _arrays_of_records(chance: random.Random, number: int) -> Record:
    lines = [{**dataset._item(chance), "total": chance.randint(1, 10**6) / 100} for _ in range(chance.randint(0, 8))]
    return {"id": number, "lines": lines}


def _scalar_drift(chance: random.Random, record: Record) -> None:
    record["count"] = f"{record['count']} pieces"


def _array_drift(chance: random.Random, record: Record) -> None:
    record["labels"] = chance.choice(dataset.WORDS)


def _nested_drift(chance: random.Random, record: Record) -> None:
    for line in record["lines"]:
        line["quantity"] = chance.choice([f"{line['quantity']} pc", line["quantity"] + 0.5])


def _events_drift(chance: random.Random, record: Record) -> None:
    chance.choice([_array_drift, _nested_drift, lambda c, r: r["place"].update(city=c.randint(1, 99))])(chance, record)


SHAPES: dict[str, Shape] = {
    "flat": Shape(_flat),
    "nested events": Shape(_event, files=4),
    "orders of make bench": Shape(dataset._record, files=4),
    "depth 6": Shape(_deep_six),
    "depth 21, arrays of records": Shape(lambda chance, number: dict(deep(chance, number))),  # type: ignore[call-overload]
    "arrays of integers": Shape(_with_id(numbers=_some(lambda c: c.randint(-(10**6), 10**6), 0, 40))),
    "arrays of fractions": Shape(_with_id(numbers=_some(lambda c: c.randint(1, 10**6) / 10**3, 0, 40))),
    "arrays of texts": Shape(_with_id(words=_some(_word, 0, 30))),
    "arrays of arrays": Shape(_with_id(grid=_some(_some(lambda c: c.randint(0, 99), 0, 6), 0, 6))),
    "arrays of records": Shape(_arrays_of_records),
    "fractions of 2 digits": Shape(_eight(_fraction(6, 2))),
    "fractions of 15 digits": Shape(_eight(_fraction(15, 9))),
    "fractions of 17 digits, as Python prints them": Shape(_eight(lambda c: c.random())),
    "decimals of 18 digits": Shape(_with_id(**{f"x{n}": _fraction(18, 6) for n in range(4)})),
    "decimals of 20 digits": Shape(_with_id(**{f"x{n}": _fraction(20, 4) for n in range(4)})),
    "integral fractions (5.0)": Shape(_eight(lambda c: float(c.randint(0, 10**5)))),
    "zeros at the end (12.50)": Shape(_eight(lambda c: Spelled(f"{c.randint(1, 999)}.{c.randint(0, 9)}0"))),
    "exponents": Shape(_with_id(**{f"x{n}": _exponent for n in range(6)}, text=_sentence)),
    "integers of 19 digits": Shape(_with_id(**{f"x{n}": lambda c: c.randint(10**18, 2**63 - 1) for n in range(6)})),
    "integers from 2^63": Shape(
        _with_id(**{f"x{n}": lambda c: c.randint(2**63, 10**25) for n in range(3)}, text=_sentence)
    ),
    "texts with \\uXXXX": Shape(_with_id(**{f"text{n}": _foreign for n in range(4)}), is_ascii=True),
    "texts with escapes": Shape(_with_id(**{f"text{n}": _escaped for n in range(4)})),
    "texts beyond ASCII": Shape(_with_id(**{f"text{n}": _foreign for n in range(6)})),
    "long texts": Shape(lambda chance, number: dict(long_text(chance, number))),  # type: ignore[call-overload]
    "sparse, 6 of 60 fields": Shape(_sparse),
    "always null": Shape(_nulls),
    "empty lists and objects": Shape(_empties),
    "shuffled keys": Shape(_shuffled),
    "spaces": Shape(_event, is_spaced=True),
    "wide, 500 fields": Shape(lambda chance, number: dict(wide(500)(chance, number))),  # type: ignore[call-overload]
    "wide, 2,000 fields": Shape(lambda chance, number: dict(wide(2_000)(chance, number))),  # type: ignore[call-overload]
    "map-like, 250 keys": Shape(_map_like),
    "dates as texts": Shape(_dates),
    "dates, detected": Shape(_dates, options={"detect_dates": True}),
    "drift 1 % in a scalar": Shape(_flat, drifting=0.01, drift=_scalar_drift),
    "drift 20 % in a scalar": Shape(_flat, drifting=0.2, drift=_scalar_drift),
    "drift 20 % in an array": Shape(_event, drifting=0.2, drift=_array_drift),
    "drift 20 % in a nested array": Shape(_event, drifting=0.2, drift=_nested_drift),
    "drift 20 % anywhere in nested events": Shape(_event, files=4, drifting=0.2, drift=_events_drift),
    "gz": Shape(_event, form="gz"),
    "100 files": Shape(_flat, files=100),
    "2,000 files": Shape(_flat, files=2_000),
    "CSV, texts": Shape(_flat, form="csv"),
    "CSV, types": Shape(_flat, form="csv", options={"detect_types": True}),
    "Parquet, flat": Shape(_flat, form="parquet"),
    "Parquet, nested": Shape(_event, form="parquet"),
}
