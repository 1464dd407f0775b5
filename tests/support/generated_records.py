"""Generated records of many tables and policies, some of them nasty, and tables that have columns for them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from support.drift import KEYS, NUMBERS, STRINGS
from support.time_texts import time_text
from widen.batches.text_tasks import drain_arrow_batches
from widen.evolution.evolve import evolve, merge_pass
from widen.evolution.policy import EpochUnit, FixedColumn, Mode, Numbers, Policy, TextForm
from widen.files.arrow_types import to_arrow_schema
from widen.json.field_rules import FileFields
from widen.json.observation import Observation
from widen.json.time_spellings import TimeSpelling
from widen.model.schema_json import parse_type
from widen.model.types import TIMESTAMP, StructType
from widen.rows.row_builder import RowBuilder

Make = Callable[[random.Random], str]


def number(low: int, high: int) -> Make:
    return lambda chance: str(chance.randint(low, high))


def fraction(chance: random.Random) -> str:
    # What has few bits after the point can lie in the middle between two shortest texts.
    halves = chance.getrandbits(53) / 2 ** chance.randrange(52)
    forms = (repr(chance.random()), f"{chance.random() * 100:.2f}", str(chance.randrange(100)), "0.25", "1.5e3")
    return chance.choice((*forms, repr(halves)))


def word(chance: random.Random) -> str:
    words = ["plain", "é😀", "two words", "", "x" * 40, "y" * 15 + "\t", 'a"b\\', "\x00", "/", "a: {b}"]
    return json.dumps(chance.choice(words), ensure_ascii=chance.random() < 0.5)


def boolean(chance: random.Random) -> str:
    return chance.choice(["true", "false"])


def day(chance: random.Random) -> str:
    return f'"{chance.randint(1, 9999):04}-{chance.randint(1, 12):02}-{chance.randint(1, 28):02}"'


def instant(chance: random.Random) -> str:
    micros = chance.choice(["", ".5", ".123", ".123456"])
    return f'{day(chance)[:-1]}T{chance.randint(0, 23):02}:07:59{micros}{chance.choice(["Z", "+00:00"])}"'


def local_time(chance: random.Random) -> str:
    return f'{day(chance)[:-1]}T{chance.randint(0, 23):02}:07:59{chance.choice(["", ".000001"])}"'


def money(chance: random.Random) -> str:
    return chance.choice([f"{chance.randint(-(10**7), 10**7)}.{chance.randint(0, 99):02}", "0.0", "7", "1e2", "12.500"])


def long_decimal(chance: random.Random) -> str:
    return (
        f"{chance.choice(['', '-'])}{chance.randint(10**13, 10**15)}.{chance.randint(0, 999):03}{chance.randint(1, 9)}"
    )


def integral(chance: random.Random) -> str:
    whole = str(chance.randint(-(10 ** chance.choice([1, 5, 17])), 10**5))
    return chance.choice([whole, f"{whole}.0", f"{whole}.0", f"{whole}.00", f"{whole}e2", f"{whole}.5", "-0.0"])


def spelled(chance: random.Random) -> str:
    return json.dumps(time_text(chance))


def epoch(chance: random.Random) -> str:
    return str(chance.randint(0, 10 ** chance.choice([9, 12, 15, 18])))


def array(make: Make) -> Make:
    return lambda chance: "[" + ",".join(nullable(make)(chance) for _ in range(chance.randrange(4))) + "]"


def record(**makes: Make) -> Make:
    def text(chance: random.Random) -> str:
        kept = [(key, make) for key, make in makes.items() if chance.random() < 0.9]
        return "{" + ",".join(f'"{key}":{nullable(make)(chance)}' for key, make in kept) + "}"

    return text


def entries(make: Make) -> Make:
    def text(chance: random.Random) -> str:
        keys = {f'"{chance.choice(["a", "b", "é", "c d", chr(92) * 2])}"' for _ in range(chance.randrange(4))}
        return "{" + ",".join(f"{key}:{nullable(make)(chance)}" for key in sorted(keys)) + "}"

    return text


def nullable(make: Make) -> Make:
    return lambda chance: "null" if chance.random() < 0.1 else make(chance)


def one_of(*makes: Make) -> Make:
    return lambda chance: chance.choice(makes)(chance)


def always(text: str) -> Make:
    return lambda _: text


SPACES = ("", "", "", "", " ", "  ", "\t", "\r")
NESTED = (
    *("[]", "{}", "[1]", "[null]", "[1,2.5]", '[1,"a"]', "[[1]]", "[[]]", '{"k":1}', '{"k":"x"}', '{"q":1}', "[1,]"),
    *('{"k":1,}', '{"k":1,"k":2}', "[0.1,-0]", '[{"k":1},{"k":null}]', '[{"k":1},null]', "tru", "True", "nul", "[1 2]"),
)


@dataclass(frozen=True)
class Setting:
    """A table before the interval, a policy, and a maker of the fields of its records.

    Args:
        declared: Columns that the table is created with; the first records add more.
        siblings: Of these, the columns beside others, each with its field.
        is_new: Whether the table has only those before the interval, so that all others are new columns.
        has_single_columns: Whether what the fast path accepts brings nothing new, even to new columns: each field has
            one, or its columns are those of the first records.
        is_known: Whether the fast path has always seen records before, without which it takes none of them.
    """

    makes: dict[str, Make]
    declared: str = ""
    policy: Policy = field(default_factory=Policy)
    siblings: Mapping[str, str] = field(default_factory=dict)
    is_new: bool = False
    has_single_columns: bool = False
    is_known: bool = False
    file_fields: FileFields | None = None

    def text(self, chance: random.Random, nasty: float) -> bytes:
        """Return a record; a share of its values and of its spelling is nasty."""
        keys = [key for key in self.makes if chance.random() < 0.85]
        if chance.random() < 0.3:
            chance.shuffle(keys)
        pairs = [
            (self._key(chance, key, nasty), any_value(chance) if chance.random() < nasty else self.makes[key](chance))
            for key in keys
        ]
        if chance.random() < nasty / 4:
            pairs.append((json.dumps(chance.choice(KEYS)), any_value(chance)))
        if chance.random() < nasty / 8 and pairs:
            pairs.append((pairs[0][0], "1"))
        space = chance.choice(SPACES)
        return f"{space}{{{','.join(f'{key}{space}:{value}{space}' for key, value in pairs)}}}{space}".encode()

    def _key(self, chance: random.Random, key: str, nasty: float) -> str:
        text = json.dumps(key, ensure_ascii=chance.random() < 0.5)
        return f'"\\u{ord(key[0]):04x}{text[2:]}' if key[:1].isalpha() and chance.random() < nasty / 4 else text


def any_value(chance: random.Random) -> str:
    kind = chance.random()
    if kind < 0.3:
        return chance.choice(NUMBERS)
    if kind < 0.4:
        return repr(chance.random() * 10 ** chance.randrange(-8, 20))
    if kind < 0.45:
        return str(chance.randrange(-(2**65), 2**65))
    if kind < 0.7:
        return chance.choice(STRINGS)
    if kind < 0.8:
        return chance.choice((instant, day, local_time, boolean, word))(chance)
    return chance.choice(NESTED)


def mutated(chance: random.Random, text: bytes) -> bytes:
    """Return a text with some bytes changed, removed, added or cut off."""
    data = bytearray(text)
    for _ in range(chance.randrange(1, 4)):
        at = chance.randrange(len(data) + 1)
        spliced = chance.choice(
            [b"", b"\xff", b"\x00", b'"', b"\\", b"{", b"}", b",", b":", b"1", b"e", b".", b"-", b" "]
        )
        data[at : at + chance.randrange(3)] = spliced
    return bytes(data[: chance.randrange(len(data) + 1)] if chance.random() < 0.05 else data)


PLAIN = {
    "id": number(-(2**62), 2**62),
    "n": number(-(2**31), 2**31 - 1),
    "d": fraction,
    "s": word,
    "b": boolean,
    "l": array(number(0, 99)),
    "t": array(word),
    "o": record(k=number(0, 99), w=word),
    "ol": array(record(k=number(0, 99), g=array(fraction))),
    "ll": array(array(number(0, 99))),
}
MIXED = {
    "m": one_of(number(0, 99), fraction, word, boolean, array(number(0, 9)), record(k=number(0, 9))),
    "two": one_of(array(number(0, 9)), array(word), array(boolean), number(0, 9)),
    "rec": one_of(record(k=number(0, 9)), array(record(k=number(0, 9))), record(k=word)),
    "big": one_of(number(0, 2**70), number(0, 99), fraction),
    "o": record(k=one_of(number(0, 99), word), w=word),
}
TYPES = {
    # All numbers of two and of four digits fit; of one with more digits, the exact path would widen the column.
    "by": number(-99, 99),
    "sh": number(-9999, 9999),
    "f": one_of(number(0, 99), lambda chance: chance.choice(["0.5", "-1.25", "1e3", "0.1"])),
    "price": money,
    "huge": number(-(10**38) + 1, 10**38 - 1),
    "day": day,
    "at": instant,
    "prices": array(money),
    "days": array(day),
    "inner": record(price=money, day=day),
}
DECLARED = (
    "struct<by: byte, sh: smallint, f: float, price: decimal(10,2), huge: decimal(38,0), day: date, at: timestamp, "
    "prices: array<decimal(12,3)>, days: array<date>, inner: struct<price: decimal(9,2), day: date>>"
)
DATED = frozenset([()])
HOLLOW = {
    "id": number(0, 99),
    "none": always("[]"),
    "object": always("{}"),
    "h": record(x=always("{}"), y=always("[]"), **{"é z": always("null")}),
    "deep": record(r=record(x=always("{}"), gone=always("{}"))),
    "o": record(k=number(0, 99), h=record(x=always("[]"), y=record(z=always("{}")))),
}
"""Records with fields that never have a value, and so no column."""

SETTINGS = {
    "plain": Setting(PLAIN),
    "plain, new": Setting(PLAIN, is_new=True),
    "several columns": Setting(MIXED, policy=Policy(Mode.SPLIT)),
    "several columns, widened": Setting(MIXED),
    "several columns, widened, new": Setting(
        {
            "q": one_of(number(0, 99), fraction, word),
            "o": record(q=one_of(number(-(2**60), 2**60), fraction, word)),
            "l": array(record(q=one_of(number(0, 2**31), fraction, word), d=one_of(number(0, 9), fraction))),
        },
        is_new=True,
        has_single_columns=True,
        is_known=True,
    ),
    "several columns, new": Setting(MIXED, policy=Policy(Mode.SPLIT), is_new=True),
    "types": Setting(TYPES, DECLARED, Policy(date_fields=DATED)),
    "dates": Setting(
        {"day": day, "at": instant, "here": local_time, "some": one_of(day, word, instant, number(0, 9)), "s": word},
        policy=Policy(Mode.SPLIT, date_fields=DATED, local_time_fields=DATED),
    ),
    "spellings": Setting(
        {"at": one_of(spelled, spelled, word), "here": one_of(spelled, local_time), "l": array(spelled), "s": word},
        "struct<at: timestamp, here: timestamp_ntz, s: string>",
        Policy(date_fields=DATED, local_time_fields=frozenset([("here",)]), spelling=TimeSpelling(is_any=True)),
    ),
    "spellings, new": Setting(
        {"at": spelled, "zoned": one_of(spelled, local_time)},
        policy=Policy(date_fields=DATED, spelling=TimeSpelling(is_any=True, zone="Europe/Berlin")),
        is_new=True,
    ),
    "dates, new": Setting({"day": day, "at": one_of(instant, word)}, policy=Policy(date_fields=DATED), is_new=True),
    "epochs": Setting(
        {"at": one_of(epoch, instant), "ms": one_of(epoch, instant), "n": epoch},
        "struct<at: timestamp, ms: timestamp>",
        Policy(date_fields=DATED, epoch_units={("ms",): EpochUnit.MILLISECONDS}),
    ),
    "epochs, pinned": Setting(
        {
            "at": one_of(number(-(10**10), 10**10), instant),
            "ms": one_of(number(0, 10**14), number(0, 9)),
            "us": number(0, 10**16),
            "old": one_of(*[number(0, 10**9)] * 9, epoch),
            "o": record(s=number(0, 10**9)),
        },
        "struct<ms: timestamp, old: timestamp, old_long: bigint>",
        Policy(
            pins=dict.fromkeys([("at",), ("ms",), ("us",), ("old",), ("o", "s")], TIMESTAMP),
            epoch_units={
                ("at",): EpochUnit.SECONDS,
                ("ms",): EpochUnit.MILLISECONDS,
                ("us",): EpochUnit.MICROSECONDS,
                ("old",): EpochUnit.NANOSECONDS,
                ("o", "s"): EpochUnit.MILLISECONDS,
            },
        ),
        {"old_long": "old"},
    ),
    "integral doubles": Setting(
        {
            "n": integral,
            "m": one_of(integral, number(0, 9), fraction),
            "l": array(integral),
            "s": one_of(word, integral),
            "at": integral,
        },
        "struct<at: timestamp>",
        Policy(takes_integral=True),
    ),
    "doubles": Setting({"d": one_of(fraction, money), "n": number(0, 2**62)}, policy=Policy(numbers=Numbers.DOUBLE)),
    "decimals": Setting({"d": one_of(fraction, money), "x": money}, policy=Policy(numbers=Numbers.DECIMAL)),
    "decimals beside doubles, new": Setting(
        {"d": one_of(long_decimal, money), "e": one_of(long_decimal, money, number(0, 999)), "s": word},
        is_new=True,
        has_single_columns=True,
    ),
    "long decimals, new": Setting(
        {"d": long_decimal, "n": number(2**64, 10**25), "s": word}, is_new=True, has_single_columns=True
    ),
    "maps": Setting(
        {"m": entries(number(0, 99)), "t": entries(word), "a": entries(array(number(0, 9))), "s": word},
        "struct<m: map<string,bigint>, t: map<string,string>, a: map<string,array<int>>>",
    ),
    "hollow": Setting(HOLLOW, is_known=True),
    "hollow, new": Setting(HOLLOW, is_new=True, is_known=True),
    "hollow, hidden": Setting(
        HOLLOW,
        policy=Policy(excluded=frozenset([("deep", "r", "gone")])),
        is_known=True,
    ),
    "hidden": Setting(
        {"secret": word, "gone": number(0, 9), "o": record(k=number(0, 9), secret=word), "s": word},
        policy=Policy(masked=frozenset([("secret",), ("o", "secret")]), excluded=frozenset([("gone",)])),
    ),
    "included": Setting(
        {"gone": one_of(word, number(0, 9)), "o": record(k=number(0, 9), w=word), "s": word, "last": boolean},
        policy=Policy(included=frozenset([("O",), ("s",)])),
    ),
    "texts": Setting(
        {
            "t": one_of(word, number(0, 99), array(word), record(k=number(0, 9), w=word)),
            "j": one_of(word, fraction, array(record(k=word)), boolean),
            "s": word,
        },
        policy=Policy(pins={("t",): TextForm.TEXT, ("j",): TextForm.JSON}),
    ),
    "fixed": Setting(
        {"p": number(0, 9), "q": word, "id": number(0, 99), "o": record(k=number(0, 9), w=word)},
        "struct<p: bigint, q: string, id: bigint, o: struct<k: bigint>>",
        Policy(
            fixed_columns={
                ("p",): FixedColumn("p", "NOT NULL", is_required=True),
                ("q",): FixedColumn("q", "a partition column", can_widen=False),
                ("o", "k"): FixedColumn("o.k", "NOT NULL", is_required=True),
            }
        ),
    ),
    "fixed, with siblings": Setting(
        {"p": one_of(number(0, 9), number(0, 2**66)), "q": word, "r": one_of(number(0, 9), fraction)},
        "struct<p: int, p_string: string, q: string, q_double: double, r: double, r_decimal: decimal(38,2)>",
        Policy(
            Mode.SPLIT,
            fixed_columns={
                ("p",): FixedColumn("p", "NOT NULL", is_required=True),
                ("q",): FixedColumn("q", "a partition column", can_widen=False),
                ("r",): FixedColumn("r", "a partition column", can_widen=False),
            },
        ),
        {"p_string": "p", "q_double": "q", "r_decimal": "r"},
    ),
    "keys": Setting(
        {'q"': number(0, 9), "back\\": word, "é": word, "": boolean, "\x00": number(0, 9), "longer key": word}
    ),
    "rescued": Setting(
        {**{key: PLAIN[key] for key in ("id", "s", "d")}, "o": record(k=number(0, 9))},
        "struct<id: bigint, s: string, d: double, o: struct<k: bigint>>",
        Policy(Mode.FREEZE),
    ),
    "file fields": Setting({"id": number(0, 9), "s": word}, file_fields=FileFields()),
}


FILE = "file:/data/region=north/f.jsonl"


def plan_of(setting: Setting, texts: list[bytes]) -> tuple[StructType, StructType, Observation]:
    """Return the columns before and in the interval of some texts, and what was observed of them."""
    parsed = parse_type(setting.declared or "struct<>")
    assert isinstance(parsed, StructType)
    sources = {name: {"widen.source": [source]} for name, source in setting.siblings.items()}
    declared = StructType(tuple(replace(each, metadata=sources.get(each.name, {})) for each in parsed))
    observation, schema = Observation(), declared
    for _ in range(6):
        apart = [tuple(path) for path in observation.apart]
        builder = RowBuilder(schema, setting.policy, declared, None, setting.file_fields, apart=apart)
        for start in range(0, len(texts), 20):
            builder.add(
                texts[start : start + 20], [(FILE, start + each) for each in range(len(texts[start : start + 20]))]
            )
            list(drain_arrow_batches(builder, to_arrow_schema(schema)))
            builder.adapt()
        observation, is_mixed = merge_pass(observation, builder.observation, schema, setting.policy)
        planned = evolve(declared, observation, setting.policy).schema
        if planned == schema and not is_mixed:
            break
        schema = planned
    return (declared if setting.is_new else schema), schema, observation
