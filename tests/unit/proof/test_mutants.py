"""Seeded faults in the code that makes rows, one at a time: the proof must find each of them.

The rows go through a Parquet file like those of tasks; see `widen.files.data_writer`.
"""

from __future__ import annotations

import json
import pkgutil
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.proof import encode_records, encode_rows, forms_of_arrow, layouts_of, sum_records, sum_rows
from support.stable_interval import ingest_texts
from widen.batches import text_tasks as arrow_columns
from widen.evolution.policy import EpochUnit, Mode, Policy, TextForm
from widen.files.arrow_types import to_arrow_schema
from widen.json.document import InvalidJson, JsonNumber
from widen.json.field_rules import FieldRule, FieldRules
from widen.model.native_kernel import find_kernel
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.proof.canonical import digest
from widen.proof.row_encoder import LayoutMatcher, RecordLayout
from widen.proof.source_reader import SourceReader
from widen.rows import row_builder
from widen.rows.row import MISSING
from widen.rows.row_builder import RowBuilder

POLICY = Policy(
    Mode.SPLIT,
    pins={
        ("m",): parse_type("map<string,bigint>"),
        ("j",): TextForm.JSON,
        ("price",): parse_type("decimal(10,2)"),
        ("at",): parse_type("timestamp"),
        ("rest",): Mode.FREEZE,
    },
    date_fields=frozenset([("day",)]),
    epoch_units={("seen",): EpochUnit.SECONDS},
    masked=frozenset([("secret",)]),
    excluded=frozenset([("hidden",)]),
)

RECORDS: list[dict[str, Any]] = [
    {
        "s": f"text {number}",
        "other": f"word {number}",
        "n": number,
        "k": 1000 + number,
        "d": number + 0.25,
        "b": number % 2 == 0,
        "r": {"x": number, "y": {"z": f"deep {number}"}},
        "list": [number, number + 1],
        "items": [{"sku": f"A{number}", "q": number}, {"sku": "B", "q": 2}],
        "m": {"Key": number, "key": 7},
        "j": {"a": [number, 1.5]},
        "price": number + 0.5,
        "at": f"2024-05-{number + 1:02}T10:00:00Z",
        "day": f"2024-05-{number + 1:02}",
        "secret": f"salary {number}",
        "hidden": number,
        "drift": number if number % 2 else f"drifts {number}",
        "A": number,
        "a": -number,
        "e": [[], [number]],
        "seen": 1_700_000_000 + number,
    }
    for number in range(8)
]
PLAIN: list[dict[str, Any]] = [
    {
        "id": number,
        "name": f"name {number}",
        "one": [1, 1.0, True, "1", "true", None][number % 6],
        "zero": [0.0, -0.0, 0, False, "0", ""][number % 6],
        "gone": None if number % 2 else "null",
        "price": [72.7, 0.1, 5e-324, 123456789.25, 1e21, 0.0001][number % 6],
        "long": "x" * 200 + f"{number}",
        "at": f"2024-05-{number + 1:02}T23:30:00Z",
        "note": ":5.0,",
        "point": [float(number), 47.5],
        "tags": [["a", "b"], [], ["a,b"], [None], ["", ""], ["null"]][number % 6],
        "lines": [{"sku": f"A{number}", "n": number}, {"sku": "B", "n": None}][: number % 3],
        "pair": {"left": {"x": number}, "right": {"x": 100 + number}},
        "again": 7,
    }
    for number in range(12)
]
PLAIN.append(PLAIN[1])
TEXTS = [
    *(json.dumps(record).encode() for record in RECORDS),
    b'{"s":"exact","d":0.1000000000000000055,"n":9007199254740993,"list":[],"r":{"x":null},"secret":12}',
    b'{"s":"exact too","j":1e5,"day":"no day","rest":[1.50],"m":{"k":null},"drift":[1,"x"]}',
    b'{"s":"midnight","day":"2024-05-01T00:00:00Z"}',
    b'{"s":"twice","s":"twice"}',
    b"not json",
]
Patch = Callable[[Any], Any]


@dataclass(frozen=True)
class Mutant:
    """A fault: what is patched, and how."""

    where: Any
    name: str
    patch: Patch


@dataclass(frozen=True)
class Setting:
    """Texts, and the table that they are written to."""

    policy: Policy
    schema: StructType
    texts: list[bytes]

    def expected(self) -> list[object]:
        """Return the rows that the texts must have: by their digests, encoded in each layout, and as the sum."""
        reader = SourceReader(self.schema, self.policy)
        digests = Counter(digest(row.form) for text in self.texts for row in reader.read(text))
        encoded = (encode_records(self.schema, self.policy, self.texts, layout) for layout in self.layouts())
        total = sum_records(self.schema, self.policy, self.texts)
        return [digests, *(Counter(text for text, _, _ in each) for each in encoded), total]

    def layouts(self) -> list[RecordLayout]:
        """Return the layouts in which the proof may encode the rows."""
        return layouts_of(self.schema, self.policy, self.texts)

    def written(self, path: Path) -> list[object]:
        """Return the rows that the writer makes of the texts, read back from a file, like `expected`."""
        maker = RowBuilder(self.schema, self.policy, self.schema)
        places = [("f", number) for number in range(1, len(self.texts) + 1)]
        maker.add(self.texts, places)
        pq.write_table(
            pa.Table.from_batches(arrow_columns.drain_arrow_batches(maker, to_arrow_schema(self.schema))), path
        )
        batches = pq.read_table(path).to_batches()
        digests = Counter(digest(form) for batch in batches for form in forms_of_arrow(self.schema, self.policy, batch))
        encoded = (
            [each for batch in batches for each in encode_rows(self.schema, self.policy, batch, layout)]
            for layout in self.layouts()
        )
        total = sum_rows(self.schema, self.policy, batches)
        return [digests, *(Counter(text for text, _, _ in each) for each in encoded), total]


@pytest.fixture(autouse=True)
def _without_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most faults are in the Python code; those of the kernel's texts are `IN_KERNEL`."""
    monkeypatch.setattr(row_builder, "find_kernel", lambda: None)


@pytest.fixture(scope="module")
def drifting() -> Setting:
    """Return records of all sorts, for the exact path."""
    declared = parse_type("struct<seen: timestamp>")
    assert isinstance(declared, StructType)
    return Setting(POLICY, ingest_texts(declared, TEXTS, POLICY).plan.schema, TEXTS)


@pytest.fixture(scope="module")
def quiet() -> Setting:
    """Return records for the fast path."""
    policy = Policy(
        Mode.SPLIT, {("m",): parse_type("map<string,bigint>")}, masked=POLICY.masked, excluded=POLICY.excluded
    )
    kept = ("s", "other", "n", "k", "r", "list", "items", "m", "secret", "hidden")
    texts = [json.dumps({key: record[key] for key in kept}).encode() for record in RECORDS]
    return Setting(policy, ingest_texts(None, texts, policy).plan.schema, texts)


@pytest.fixture(scope="module")
def plain() -> Setting:
    """Return records that are their own form, so that most texts are not parsed."""
    policy = Policy(Mode.SPLIT)
    texts = [json.dumps(record).encode() for record in PLAIN]
    return Setting(policy, ingest_texts(None, texts, policy).plan.schema, texts)


def test_without_a_fault_nothing_is_caught(drifting: Setting, quiet: Setting, plain: Setting, tmp_path: Path) -> None:
    for setting in (drifting, quiet, plain):
        assert setting.written(tmp_path / "rows.parquet") == setting.expected()


# ---- faults in the rows that reach a file ----------------------------------------------------------


def rows_edited(edit: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> Mutant:
    def patch(drained: Any) -> Any:
        def mutated(maker: RowBuilder, arrow: pa.Schema) -> Iterator[pa.RecordBatch]:
            for batch in drained(maker, arrow):
                yield pa.RecordBatch.from_pylist(edit(batch.to_pylist()), schema=arrow)

        return mutated

    return Mutant(arrow_columns, "drain_arrow_batches", patch)


def each_row(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> Mutant:
    return rows_edited(lambda rows: [row | edit(row) for row in rows])


def where_there(name: str, edit: Callable[[Any], Any]) -> Mutant:
    return each_row(lambda row: {name: edit(row[name])} if row[name] is not None else {})


def shifted(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    values = [row[name] for row in rows]
    return [{**row, name: value} for row, value in zip(rows, [*values[1:], *values[:1]], strict=True)]


def masked_rows(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "secret": f"salary {at}"} for at, row in enumerate(rows)]


IN_ROWS = {
    "a column is dropped": each_row(lambda row: {"s": None}),
    "two columns are swapped": each_row(lambda row: {"s": row["other"], "other": row["s"]}),
    "two number columns are swapped": each_row(lambda row: {"n": row["k"], "k": row["n"]}),
    "two values of a column are swapped": rows_edited(lambda rows: shifted(rows, "n")),
    "a nested column is off by one row": rows_edited(lambda rows: shifted(rows, "r")),
    "the first row is dropped": rows_edited(lambda rows: rows[1:]),
    "the last row is dropped": rows_edited(lambda rows: rows[:-1]),
    "a row is written twice": rows_edited(lambda rows: [*rows, *rows[:1]]),
    "a row is written twice in place of another": rows_edited(lambda rows: [rows[-1], *rows[1:]]),
    "a fraction is rounded": where_there("d_double", lambda value: float(round(value))),
    "a fraction is off by its last bit": where_there("d_double", lambda value: value * (1 + 2**-52)),
    "a number is off by one": where_there("n", lambda value: value + 1),
    "a number loses its sign": where_there("a", lambda value: abs(value)),
    "a decimal is cut": where_there("price", lambda value: Decimal(int(value))),
    "a text is cut": where_there("s", lambda value: value[:4]),
    "a text is stripped of its last character": where_there("other", lambda value: value[:-1]),
    "the case of a text is folded": where_there("s", str.upper),
    "a text becomes empty": where_there("s", lambda value: ""),
    "a boolean is turned": where_there("b", lambda value: not value),
    "one value becomes null": rows_edited(lambda rows: [{**rows[0], "n": None, "k": None}, *rows[1:]]),
    "an element of an array is lost": where_there("list", lambda value: value[:-1]),
    "an array is reversed": where_there("list", lambda value: value[::-1]),
    "an array is sorted with a null put in": where_there("list", lambda value: [None, *value]),
    "an empty array becomes null": each_row(lambda row: {"list": row["list"] or None}),
    "a record of an array is lost": where_there("items", lambda value: value[1:]),
    "a field of an array's records is lost": where_there(
        "items", lambda value: [{**each, "q": None} for each in value]
    ),
    "a deep field is lost": where_there("r", lambda value: {**value, "y": {"z": None}}),
    "a key of a map is folded": where_there("m", lambda value: list({k.lower(): v for k, v in value}.items())),
    "a value of a map is lost": where_there("m", lambda value: [(key, None) for key, _ in value]),
    "the keys A and a are swapped": each_row(lambda row: {"a": row["A_2"], "A_2": row["a"]}),
    "a day is off by one": where_there("day_date", lambda value: value + timedelta(days=1)),
    "a midnight becomes its date": each_row(
        lambda row: {"day": None, "day_timestamp": None, "day_date": date(2024, 5, 1)} if row["s"] == "midnight" else {}
    ),
    "a midnight becomes its date beside its text": each_row(
        lambda row: {"day_timestamp": None, "day_date": date(2024, 5, 1)} if row["s"] == "midnight" else {}
    ),
    "an instant becomes its midnight": where_there("at", lambda value: value.replace(hour=0)),
    "an instant is off by a millisecond": where_there("at", lambda value: value + timedelta(milliseconds=1)),
    "an instant is in another time zone": where_there("at", lambda value: value + timedelta(hours=2)),
    "the sibling has another value": where_there("drift_long", lambda value: value + 1),
    "a value is in the text of another row": rows_edited(lambda rows: shifted(rows, "drift")),
    "the rescue column is dropped": each_row(lambda row: {"_rescued": None}),
    "a number in the rescue column is spelled otherwise": where_there("_rescued", lambda v: v.replace("1.50", "1.5")),
    "a corrupt text is dropped": rows_edited(lambda rows: [row for row in rows if row["_corrupt_record"] is None]),
    "a corrupt text is cut": where_there("_corrupt_record", lambda value: value[:-1]),
    "a corrupt text gets another's values": each_row(lambda row: {"n": 1} if row["_corrupt_record"] else {}),
    "a mask is not applied": rows_edited(masked_rows),
    "a mask is applied to another field": where_there("other", lambda value: "***"),
    "the JSON of a field is cut": where_there("j", lambda value: value[:-1]),
}


# ---- faults in the functions that make rows --------------------------------------------------------


def without(key: str) -> Patch:
    """Let a function that returns a record lose a field."""

    def patch(function: Any) -> Any:
        def mutated(*given: Any, **words: Any) -> Any:
            found = function(*given, **words)
            return {k: v for k, v in found.items() if k != key} if isinstance(found, dict) else found

        return mutated

    return patch


def with_texts(old: bytes, new: bytes) -> Patch:
    """Let the fast decoder read other texts."""
    return lambda function: lambda self, texts: function(self, [text.replace(old, new) for text in texts])


def with_kernel_texts(old: bytes, new: bytes) -> Patch:
    """Let the kernel read other texts."""
    return lambda function: (
        lambda self, texts, complete, positions: function(
            self, texts, [text.replace(old, new) for text in complete], positions
        )
    )


def with_keys_swapped(function: Any) -> Any:
    """Let the fast decoder swap the keys n and k."""
    swapped = {b'"n":': b'"k":', b'"k":': b'"n":'}
    return lambda self, texts: function(
        self, [re.sub(rb'"[nk]":', lambda found: swapped[found[0]], text) for text in texts]
    )


def last_key_wins(parse: Any) -> Any:
    def mutated(text: bytes, *more: Any, **words: Any) -> Any:
        found = parse(text, *more, **words)
        return json.loads(text, parse_int=JsonNumber) if isinstance(found, InvalidJson) and text[:1] == b"{" else found

    return mutated


def rounding(parse: Any) -> Any:
    return lambda text, *more, **words: parse(text.replace(b"0.1000000000000000055", b"0.1"), *more, **words)


def never(word: str) -> Patch:
    """Let no column take values of a kind."""
    return lambda convert: lambda value, kind, *more: MISSING if kind == word else convert(value, kind, *more)


def unmasked(value: Any) -> Any:
    def mutated(self: FieldRules, given: Any) -> Any:
        return json.dumps(given) if self.take is FieldRule.MASKED else value(self, given)

    return mutated


def wrong_sibling(route_value: Any) -> Any:
    def mutated(row: dict[str, Any], slots: Any, value: Any) -> None:
        route_value(row, tuple(slot for slot in slots if slot.name != "n"), value)

    return mutated


IN_FUNCTIONS = {
    "the shared reading drops a field": Mutant("widen.json.field_rules.FieldRules", "record", without("s")),
    "the parser skips a field": Mutant("widen.rows.row_builder", "parse_document", without("n")),
    "the parser takes the last of two keys": Mutant("widen.rows.row_builder", "parse_document", last_key_wins),
    "the parser rounds": Mutant("widen.rows.row_builder", "parse_document", rounding),
    "doubles get into no column": Mutant("widen.rows.row", "_to_cell", never("double")),
    "texts get into no column": Mutant("widen.rows.row", "_to_cell", never("string")),
    "longs are routed to the wrong column": Mutant("widen.rows.row", "route_value", wrong_sibling),
    "nothing is rescued": Mutant("widen.rows.row_builder", "rescue", lambda rescue: lambda *given: None),
    "masks are not applied to records that are read exactly": Mutant(
        "widen.json.field_rules.FieldRules", "value", unmasked
    ),
    "rows that are read exactly are dropped": Mutant(
        "widen.rows.row_builder.RowBuilder", "pop_rows", lambda rows: lambda self: rows(self)[1:]
    ),
    "corrupt texts are cut": Mutant(
        "widen.rows.row.Redactor", "redact_corrupt", lambda corrupt: lambda self, text: corrupt(self, text[1:])
    ),
}

IN_DECODER = {
    "the decoder skips a field": Mutant(
        "widen.rows.column_assembler.RecordDecoder", "decode", with_texts(b'"word 1"', b"null")
    ),
    "the decoder alters a value": Mutant(
        "widen.rows.column_assembler.RecordDecoder", "decode", with_texts(b"deep 1", b"deep 2")
    ),
    "the decoder takes one key for another": Mutant(
        "widen.rows.column_assembler.RecordDecoder", "decode", with_keys_swapped
    ),
    "masks are not applied to decoded records": Mutant(
        "widen.rows.column_assembler", "_redact_value", lambda redacted: lambda value, cell: str(value)
    ),
    "an array is cut where it is taken apart": Mutant(
        "widen.batches.text_tasks", "_pairs", lambda pairs: lambda value: pairs(value)[:1] if value else value
    ),
}


def with_columns_swapped(decode: Any) -> Any:
    """Let the kernel return the columns n and k in each other's places."""

    def mutated(*given: Any) -> Any:
        batch = decode(*given)
        if batch.rows is not None:
            n, k = (batch.rows.schema.get_field_index(name) for name in ("n", "k"))
            columns = list(batch.rows.columns)
            columns[n], columns[k] = columns[k], columns[n]
            object.__setattr__(batch, "rows", pa.RecordBatch.from_arrays(columns, schema=batch.rows.schema))
        return batch

    return mutated


IN_KERNEL = {
    "the kernel skips a field": Mutant(
        "widen.rows.native_decoder.NativeDecoder", "add", with_kernel_texts(b'"word 1"', b"null")
    ),
    "the kernel alters a value": Mutant(
        "widen.rows.native_decoder.NativeDecoder", "add", with_kernel_texts(b"deep 1", b"deep 2")
    ),
    "the kernel alters a number": Mutant(
        "widen.rows.native_decoder.NativeDecoder", "add", with_kernel_texts(b'"k": 100', b'"k": 10')
    ),
    "the kernel cuts an array": Mutant(
        "widen.rows.native_decoder.NativeDecoder", "add", with_kernel_texts(b"[1, 2]", b"[1]")
    ),
    "the kernel takes one key of a map for another": Mutant(
        "widen.rows.native_decoder.NativeDecoder", "add", with_kernel_texts(b'"Key": 3', b'"KEY": 3')
    ),
    "the kernel reads null as a text": Mutant(
        "widen.rows.native_decoder.NativeDecoder", "add", with_kernel_texts(b'"B"', b"null")
    ),
    "the kernel drops a record": Mutant(
        "widen.rows.native_decoder.NativeDecoder", "add", with_kernel_texts(b'{"s": "text 3"', b' {"s": "text 4"')
    ),
    "the rows of the kernel are in the wrong columns": Mutant(
        "widen.rows.native_decoder.NativeDecoder",
        "decode",
        with_columns_swapped,
    ),
}

MUTANTS = {**IN_ROWS, **IN_FUNCTIONS}


def swapped(rows: list[dict[str, Any]], at: int, other: int, *names: str) -> list[dict[str, Any]]:
    """Let two rows have each other's values in some columns."""
    edited = [dict(row) for row in rows]
    for name in names:
        edited[at][name], edited[other][name] = rows[other][name], rows[at][name]
    return edited


def with_value(rows: list[dict[str, Any]], at: int, /, **values: Any) -> list[dict[str, Any]]:
    return [{**row, **values} if number == at else row for number, row in enumerate(rows)]


OF_PLAIN_RECORDS = {
    "a duplicate is dropped": rows_edited(lambda rows: [row for n, row in enumerate(rows) if n != 12]),
    "one of two equal rows becomes another row": rows_edited(lambda rows: [*rows[:12], rows[2]]),
    "a row is there once more": rows_edited(lambda rows: [*rows, rows[12]]),
    "two rows have each other's names": rows_edited(lambda rows: swapped(rows, 2, 3, "name")),
    "two rows have each other's records": rows_edited(lambda rows: swapped(rows, 2, 3, "pair")),
    "two rows have each other's arrays": rows_edited(lambda rows: swapped(rows, 2, 5, "lines")),
    "a record has its sibling's values": where_there("pair", lambda v: {"left": v["right"], "right": v["left"]}),
    "a value moves to the sibling of another record": rows_edited(
        lambda rows: with_value(
            with_value(rows, 2, pair={**rows[2]["pair"], "right": rows[3]["pair"]["right"]}),
            3,
            pair={**rows[3]["pair"], "right": rows[2]["pair"]["right"]},
        )
    ),
    "a value is in the next key": each_row(lambda row: {"again": row["id"], "id": row["again"]}),
    "true becomes 1": rows_edited(lambda rows: with_value(rows, 2, one="1", one_double=1.0, one_boolean=None)),
    "1 becomes true": rows_edited(lambda rows: with_value(rows, 0, one="true", one_double=None, one_boolean=True)),
    'the text "1" becomes 1': rows_edited(lambda rows: with_value(rows, 3, one_double=1.0)),
    '1 becomes the text "1"': rows_edited(lambda rows: with_value(rows, 0, one_double=None)),
    'the text "true" becomes true': rows_edited(lambda rows: with_value(rows, 4, one_boolean=True)),
    "-0.0 becomes 0.0": rows_edited(lambda rows: with_value(rows, 1, zero="0.0", zero_double=0.0)),
    "0.0 becomes -0.0": rows_edited(lambda rows: with_value(rows, 0, zero="-0.0", zero_double=-0.0)),
    "-0.0 becomes 0.0 in one of two columns": rows_edited(lambda rows: with_value(rows, 1, zero_double=0.0)),
    "an empty text becomes null": rows_edited(lambda rows: with_value(rows, 5, zero=None)),
    'null becomes the text "null"': rows_edited(lambda rows: with_value(rows, 1, gone="null")),
    'the text "null" becomes null': rows_edited(lambda rows: with_value(rows, 0, gone=None)),
    "a number becomes NaN": where_there("price", lambda value: float("nan")),
    "a number becomes infinite": where_there("price", lambda value: float("inf")),
    "the least number becomes 0": where_there("price", lambda value: value if value > 1e-300 else 0.0),
    "a number is off by its last bit": where_there("price", lambda value: value * (1 + 2**-52)),
    "a large number loses its digits": where_there("price", lambda value: float(f"{value:.9g}")),
    "a long text has another end": where_there("long", lambda value: value[:-1] + "y"),
    "a long text has another middle": where_there("long", lambda value: value[:100] + "y" + value[101:]),
    "a text ends with a NUL": where_there("name", lambda value: value + "\0"),
    "a text ends with a space": where_there("name", lambda value: value + " "),
    "a letter is composed otherwise": where_there("name", lambda value: value.replace("e", "é")),
    "a time is two hours later": where_there("at", lambda value: value.replace("T23:", "T21:")),
    "a day is the next one in another time zone": where_there("at", lambda value: value.replace("T23:", "T01:")),
    "a text loses what looks like a zero fraction": where_there("note", lambda value: value.replace(".0", "")),
    "a number gets a fraction": where_there("point", lambda value: [value[0] + 0.5, value[1]]),
    "a number of a pair is lost": where_there("point", lambda value: [value[0] or None, value[1]]),
    "an array is split at a comma": where_there("tags", lambda value: ["a", "b"] if value == ["a,b"] else value),
    "two items are joined by a comma": where_there("tags", lambda value: ["a,b"] if value == ["a", "b"] else value),
    "an array of a null is empty": where_there("tags", lambda value: [each for each in value if each is not None]),
    "an empty array has a null": where_there("tags", lambda value: value or [None]),
    "an empty text is lost in an array": where_there("tags", lambda value: value[1:] if value[:1] == [""] else value),
    'the text "null" becomes null in an array': where_there(
        "tags", lambda value: [None if each == "null" else each for each in value]
    ),
    "an item moves to the array of another row": rows_edited(
        lambda rows: with_value(
            with_value(rows, 2, lines=rows[2]["lines"][:1]), 1, lines=[*rows[1]["lines"], rows[2]["lines"][1]]
        )
    ),
    "fields move between the items of an array": where_there(
        "lines", lambda v: [{**v[0], "n": v[1]["n"]}, {**v[1], "n": v[0]["n"]}] if len(v) == 2 else v
    ),
    "JSON is written into a text": rows_edited(lambda rows: with_value(rows, 0, name='name 0","one":1', one=None)),
    "the mark of an extension is a text": where_there("name", lambda value: '~1"NaN"'),
    "a record becomes null": rows_edited(lambda rows: with_value(rows, 3, pair=None)),
    "a record becomes empty": rows_edited(
        lambda rows: with_value(rows, 3, pair={"left": {"x": None}, "right": {"x": None}})
    ),
    "all values of a row become null": rows_edited(lambda rows: with_value(rows, 3, **dict.fromkeys(rows[3]))),
}


@pytest.mark.parametrize("name", OF_PLAIN_RECORDS)
def test_the_proof_catches_of_records_that_are_not_parsed(
    name: str, plain: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(OF_PLAIN_RECORDS[name], plain, tmp_path, monkeypatch)


def test_most_plain_records_are_not_parsed(plain: Setting) -> None:
    fields = SourceReader(plain.schema, plain.policy).fields
    _, layout = plain.layouts()
    matches = [LayoutMatcher(fields, layout).match(text) for text in plain.texts]
    assert sum(match is not None for match in matches) >= 4


@pytest.mark.parametrize("name", MUTANTS)
def test_the_proof_catches(name: str, drifting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check(MUTANTS[name], drifting, tmp_path, monkeypatch)


@pytest.mark.parametrize("name", IN_DECODER)
def test_the_proof_catches_of_decoded_records(
    name: str, quiet: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check(IN_DECODER[name], quiet, tmp_path, monkeypatch)


@pytest.mark.skipif(find_kernel() is None, reason="the kernel is not installed")
@pytest.mark.parametrize("name", IN_KERNEL)
def test_the_proof_catches_of_records_that_the_kernel_decodes(
    name: str, quiet: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_builder, "find_kernel", find_kernel)
    check(IN_KERNEL[name], quiet, tmp_path, monkeypatch)


def check(mutant: Mutant, setting: Setting, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the proof finds the fault in the rows, and that the fault does not reach the proof itself."""
    truth = setting.expected()
    where = pkgutil.resolve_name(mutant.where) if isinstance(mutant.where, str) else mutant.where
    monkeypatch.setattr(where, mutant.name, mutant.patch(getattr(where, mutant.name)))
    assert setting.expected() == truth, "the fault reaches the proof's own reading of the source"
    for written, expected in zip(setting.written(path / "rows.parquet"), truth, strict=True):
        assert written != expected
