"""Generated loads of drifting records into one table, with options of every kind.

Each seed is a table: its fields, what its values look like, the form of its source, and the options of its loads.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.drift import NUMBERS, STRINGS
from support.generated_records import (
    Make,
    array,
    boolean,
    day,
    epoch,
    fraction,
    instant,
    integral,
    local_time,
    long_decimal,
    money,
    number,
    spelled,
    word,
)

NAMES = ["id", "a", "A", "b.c", "d e", "ü", "_op", "n", "s", "at", "day", "price", "rec", "tags", "m", "x", "X_long"]
NAMES += ["x_string", "key", "_corrupt_record", "a_string", "a_double", "2x", "select", "value", "left", "secret"]
PINS = ["text", "json", "map", "bigint", "double", "decimal(20,4)", "string", "timestamp", "date", "freeze", "split"]
PINS += ["widen", "boolean", "int", "float", "map<string,string>", "timestamp_ntz"]
BROKEN = ["not json", "[]", "{", "5", '{"a":1,"a":2}', "null"]

Words = Mapping[str, Any]


@dataclass(frozen=True)
class Load:
    """A source, its target and the other arguments of `widen.ingest`."""

    source: Any
    target: str
    words: Words


def any_scalar(chance: random.Random) -> str:
    makes = [
        number(-99, 99),
        fraction,
        money,
        word,
        word,
        boolean,
        day,
        instant,
        spelled,
        integral,
        epoch,
        long_decimal,
    ]
    return chance.choice([*makes, *(lambda one: one.choice(NUMBERS),) * 2, lambda one: one.choice(STRINGS)])(chance)


def any_value(chance: random.Random, depth: int = 0) -> str:
    share = chance.random()
    if share < 0.08:
        return "null"
    if share < 0.9 or depth > 2:
        return any_scalar(chance)
    if share < 0.95:
        return f"[{','.join(any_value(chance, depth + 1) for _ in range(chance.randrange(4)))}]"
    return to_object({name: any_value(chance, depth + 1) for name in chance.sample(NAMES[:12], chance.randrange(3))})


def to_object(values: Mapping[str, str], *, is_ascii: bool = False) -> str:
    return "{" + ",".join(f"{json.dumps(name, ensure_ascii=is_ascii)}:{text}" for name, text in values.items()) + "}"


def always(text: str) -> Make:
    return lambda chance: text


MAKES: list[Make] = [
    *(number(-99, 99), number(0, 2**70), fraction, money, word, boolean, day, instant, local_time, spelled, integral),
    *(epoch, long_decimal, array(number(0, 9)), array(word), any_value, any_value),
    lambda chance: to_object({"k": any_value(chance, 1), "w": word(chance)}),
    lambda chance: f'[{{"k":{chance.randrange(9)}}}]',
    *map(always, ("null", "{}", "[]")),
]
ORDERS: list[Make] = [number(0, 10**4), number(0, 2), money, instant, number(-(2**70), 2**70), any_scalar]
"""What the sequences of a table look like."""


@dataclass
class Table:
    """What the loads of one seed have in common.

    Args:
        keyed: Whether loads are by key, and whether keys also come as texts.
        form: The form of the sources.
        fields: What the values of each field look like.
        order: What sequences look like.
    """

    chance: random.Random
    folder: Path
    keyed: int = 0
    form: str = "json"
    fields: dict[str, list[Make]] = field(default_factory=dict)
    order: Make = ORDERS[0]

    def options(self) -> dict[str, Any]:
        """Return options of a load; most of them are left out."""
        chance, names = self.chance, list(self.fields)
        choices = {
            "evolve": (0.5, lambda: chance.choice(["widen", "split", "freeze"])),
            "detect_dates": (0.35, lambda: chance.choice([True, [chance.choice(names)]])),
            "time_zone": (0.15, lambda: chance.choice(["Europe/Berlin", "UTC", "America/New_York"])),
            "integral_doubles": (0.25, lambda: "convert"),
            "numbers": (0.35, lambda: chance.choice(["exact", "decimal", "double"])),
            "pins": (0.3, lambda: {name: chance.choice(PINS) for name in chance.sample(names, min(3, len(names)))}),
            "mask": (0.15, lambda: [chance.choice(names)]),
            "exclude": (0.15, lambda: [chance.choice(names)]),
            "max_columns": (0.1, lambda: chance.choice([1, 3, 6])),
            "allow_nan": (0.1, lambda: True),
            "detect_maps": (0.1, lambda: True),
            "epoch_unit": (0.1, lambda: {chance.choice(names): chance.choice(["s", "ms", "us", "ns"])}),
            "no_stats": (0.1, lambda: [chance.choice(names)]),
        }
        found = {name: make() for name, (share, make) in choices.items() if chance.random() < share}
        if "detect_dates" in found and chance.random() < 0.5:
            found["date_spellings"] = "any"
        return found

    def lasting_options(self) -> dict[str, Any]:
        """Return the options that all loads of a table have."""
        chance, found = self.chance, dict[str, Any]()
        if chance.random() < 0.1:
            found["names"] = "exact"
        if chance.random() < 0.15:
            found["source_columns"] = True
        if self.form == "csv" and chance.random() < 0.7:
            found["detect_types"] = True
        if self.form in ("debezium", "maxwell"):
            found["envelope"] = self.form
        if self.keyed:
            found |= self._key_options()
        elif chance.random() < 0.1:
            found["strict"] = False
        if chance.random() < 0.25:
            found["catalog"] = str(self.folder / "catalog.db")
            found |= {"format_version": 3} if chance.random() < 0.3 else {}
        return found

    def _key_options(self) -> dict[str, Any]:
        chance, found = self.chance, dict[str, Any](key=["kid"])
        if chance.random() < (0.4 if self.form in ("debezium", "maxwell") else 0.85):
            found["sequence_by"] = "seq"
        if self.form not in ("debezium", "maxwell") and chance.random() < 0.7:
            found["delete_when"] = "opx = 'd'"
        kind = chance.random()
        if kind < 0.25 and "sequence_by" in found:
            found["history"] = True
        elif kind < 0.6:
            found["missing"] = "keep"
        return found

    def drift(self) -> None:
        """Add a field, and let the values of one field look like others, too."""
        self.fields.setdefault(self.chance.choice(NAMES), [self.chance.choice(MAKES)])
        self.fields[self.chance.choice(list(self.fields))].append(self.chance.choice(MAKES))

    def record(self) -> dict[str, str]:
        """Return a record, with its values as JSON."""
        chance = self.chance
        found = {name: chance.choice(makes)(chance) for name, makes in self.fields.items() if chance.random() < 0.88}
        if self.keyed:
            key = str(chance.randrange(6))
            own = {"kid": f'"{key}"' if self.keyed > 1 and chance.random() < 0.3 else key, "seq": self.order(chance)}
            found |= {name: value for name, value in own.items() if chance.random() < 0.97}
            found["opx"] = f'"{chance.choice("uudi")}"'
        return found

    def write(self, number: int, count: int) -> Any:
        """Return the source of a load, which is a file or a list of records."""
        chance, records = self.chance, [self.record() for _ in range(count)]
        if self.form == "csv":
            path = self.folder / "in" / f"{number}.csv"
            path.write_text(self._to_csv(records), encoding=chance.choice(["utf-8", "utf-8-sig"]), newline="")
            return path
        texts = [to_object(each, is_ascii=chance.random() < 0.5) for each in records]
        if self.form == "dicts":
            return [json.loads(text, parse_int=_to_int) for text in texts]
        if self.form != "json":
            texts = [self._event(at, text) for at, text in enumerate(texts)]
        if chance.random() < 0.2:
            texts.insert(chance.randrange(count + 1), chance.choice(BROKEN))
        path = self.folder / "in" / f"{number}.json"
        whole = chance.random() < 0.1
        path.write_text(f"[{','.join(texts)}]" if whole else "\n".join(texts), encoding="utf-8")
        return path

    def _to_csv(self, records: Sequence[Mapping[str, str]]) -> str:
        text, names = io.StringIO(), list(dict.fromkeys(name for each in records for name in each))
        form: Any = {"delimiter": self.chance.choice(",;\t|"), "lineterminator": self.chance.choice(["\n", "\r\n"])}
        rows = csv.writer(text, quoting=self.chance.choice([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]), **form)
        rows.writerow(names)
        for each in records:
            rows.writerow(_to_cell(each.get(name, "null")) for name in names)
        return text.getvalue()

    def _event(self, at: int, row: str) -> str:
        kind = self.chance.choice("crud")
        if self.form == "maxwell":
            word = {"c": "insert", "d": "delete"}.get(kind, "update")
            return f'{{"database":"d","table":"t","type":"{word}","ts":{1700000000 + at},"xid":{at},"data":{row}}}'
        before, after = (row, "null") if kind == "d" else ("null", row)
        source = f'{{"lsn":{self.chance.randrange(10**6)},"table":"t"}}'
        return f'{{"before":{before},"after":{after},"op":"{kind}","ts_ms":{1700000000000 + at},"source":{source}}}'


def _to_int(text: str) -> int | str:
    return int(text) if len(text) < 4000 else text  # Python reads no longer ones


def _to_cell(text: str) -> str:
    value = json.loads(text, parse_float=str, parse_int=str)
    return "" if value is None else value if isinstance(value, str) else text


def generated_loads(seed: int, folder: Path) -> Iterator[Load]:
    """Yield the loads of a table, each after its file is written."""
    chance = random.Random(seed)
    (folder / "in").mkdir(parents=True)
    table = Table(chance, folder, chance.choice([0, 0, 0, 1, 1, 2]))
    table.form = chance.choice(["json", "json", "json", "csv", "dicts", "debezium", "maxwell"])
    names = chance.sample(NAMES, chance.randrange(2, 8))
    table.fields = {name: [chance.choice(MAKES) for _ in range(chance.choice([1, 1, 1, 2, 3]))] for name in names}
    table.order = ORDERS[0] if chance.random() < 0.6 else chance.choice(ORDERS)
    words, lasting, count = table.options(), table.lasting_options(), chance.choice([1, 5, 30])
    target = "ns.t" if "catalog" in lasting else str(folder / "t")
    for at in range(chance.randrange(1, 5)):
        if chance.random() < 0.4:
            table.drift()
        own = table.options() if at and chance.random() < 0.3 else {}
        source = table.write(at, count)
        yield Load(source, target, {"allow_unmatched": True, **words, **own, **lasting})
