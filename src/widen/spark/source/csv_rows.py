"""Rows of CSV as columns of texts, parsed by Arrow, and as JSON texts.

An empty field is null, and a quoted empty field is the empty string. A row with another number of fields than the first
line is not a record and is kept as a whole.

Source: RFC 4180; docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.csv

from widen.spark.source.csv_dialect import CsvDialect, is_utf8, to_source_encoding
from widen.spark.source.raw_batch import TextGroup

FRACTION_PATTERN = r"-?(?:0|[1-9][0-9]{0,9})\.[0-9]{0,4}[1-9]"
"""Fractions so short that a double says them, without further zeros."""

NUMBER_PATTERN = rf"0|-?[1-9][0-9]{{0,37}}|{FRACTION_PATTERN}"
"""Texts that come back as they are from a JSON number."""

EXACT_VALUES = rf"true|false|{NUMBER_PATTERN}"
"""Texts of numbers and booleans that every column for them gives back as they are."""

WRITTEN_VALUES = rf"{EXACT_VALUES}|-?(?:0|[1-9][0-9]*)\.[0-9]+(?:[eE][-+]?[0-9]+)?"
"""Also the fractions that only a decimal gives back as they are, such as 12.50, and all other fractions of JSON."""


@dataclass(frozen=True, slots=True)
class FieldGroup:
    """Adjacent records of one file as columns of texts.

    Args:
        file: URI of the file.
        part: The byte where the split of a large file begins.
        columns: The texts of each field; null for a missing value.
        refused: Texts that are not records, each with its index among the records and such texts.
        detects: The pattern of the texts that become numbers and booleans; empty if none do.
    """

    file: str
    part: int
    names: tuple[str, ...]
    columns: tuple[pa.Array, ...]
    refused: tuple[tuple[int, bytes], ...]
    detects: str

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.columns[0])

    def take(self, indexes: pa.Array) -> FieldGroup:
        """Return the records at some indexes, without refused texts."""
        return replace(self, columns=tuple(column.take(indexes) for column in self.columns), refused=())

    def slice(self, start: int, length: int) -> FieldGroup:
        """Return some adjacent records, without refused texts."""
        return replace(self, columns=tuple(column.slice(start, length) for column in self.columns), refused=())

    def record_numbers(self) -> Sequence[int]:
        """Return the number of each record among the records and refused texts, from 1."""
        refused = {index + 1 for index, _ in self.refused}
        numbers = range(1, self.records + len(refused) + 1)
        return [number for number in numbers if number not in refused] if refused else numbers

    def to_json_texts(self) -> list[bytes]:
        """Return the JSON text of each record, with the refused texts in their places."""
        rows = zip(*(column.to_pylist() for column in self.columns), strict=True)
        texts = [to_json_record(dict(zip(self.names, row, strict=True)), detects=self.detects) for row in rows]
        for index, text in self.refused:
            texts.insert(index, text)
        return texts

    def to_text_group(self) -> TextGroup:
        """Return the records as JSON texts."""
        return TextGroup(self.file, self.part, False, self.to_json_texts())


def parse_rows(
    rows: bytes, names: Sequence[str], dialect: CsvDialect, file: str = "", part: int = 0
) -> FieldGroup | TextGroup:
    """Return rows as columns of texts; as JSON texts if some are not UTF-8.

    Args:
        rows: Complete rows, as `widen.spark.source.csv_dialect.to_utf8` returns them.
        file: URI of their file.
        part: The byte where their split begins.
    """
    if not rows.strip() or not names:
        return TextGroup(file, part, False, [])
    if is_utf8(rows):
        columns, refused = _read_columns(rows, len(names), dialect)
        texts = tuple((index, text.encode()) for index, text in refused)
        return FieldGroup(file, part, tuple(names), tuple(columns), texts, dialect.detects)
    # Arrow decodes refused rows, so rows that are not UTF-8 are parsed with a character for each of their bytes.
    columns, refused = _read_columns(rows.decode("latin-1").encode(), len(names), dialect)
    records = zip(*(map(_to_bytes, column.to_pylist()) for column in columns), strict=True)
    json_texts = [_to_json_text(record, names, dialect) for record in records]
    for index, text in refused:
        json_texts.insert(index, to_source_encoding(text.encode("latin-1"), dialect))
    return TextGroup(file, part, False, json_texts)


def _read_columns(rows: bytes, width: int, dialect: CsvDialect) -> tuple[list[pa.Array], list[tuple[int, str]]]:
    """Return the columns of rows in UTF-8, and the rows with another width by their indexes."""
    refused: list[tuple[int, str]] = []

    def refuse(row: pa.csv.InvalidRow) -> str:
        refused.append((max((row.number or 0) - 1, 0), row.text))
        return "skip"

    keys = [str(at) for at in range(width)]
    table = pa.csv.read_csv(
        pa.BufferReader(rows),
        # With threads, Arrow does not know the numbers of invalid rows. A row with line breaks cannot span two blocks.
        read_options=pa.csv.ReadOptions(column_names=keys, use_threads=False, block_size=len(rows) + 1),
        parse_options=pa.csv.ParseOptions(
            delimiter=dialect.separator,
            quote_char=dialect.quote or False,
            double_quote=dialect.quote is not None and dialect.escape in (None, dialect.quote),
            escape_char=False if dialect.escape in (None, dialect.quote) else dialect.escape,
            newlines_in_values=True,
            invalid_row_handler=refuse,
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict.fromkeys(keys, pa.string()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[dialect.null],
            check_utf8=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns], refused


def _to_bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode("latin-1")


def _to_json_text(record: Sequence[bytes | None], names: Sequence[str], dialect: CsvDialect) -> bytes:
    """Return a record as JSON; as its text if a field is not UTF-8."""
    try:
        texts = [None if value is None else value.decode() for value in record]
    except UnicodeDecodeError:
        return to_source_encoding(_join_fields(record, dialect), dialect)
    return to_json_record(dict(zip(names, texts, strict=True)), detects=dialect.detects)


def to_json_record(fields: Mapping[str, str | None], *, detects: str) -> bytes:
    """Return a record as JSON.

    Args:
        detects: The pattern of the texts that become numbers and booleans; empty if none do.
    """
    if not detects:
        return _encode(fields)
    is_value = re.compile(detects).fullmatch
    return _encode(
        {name: msgspec.Raw(text.encode()) if text and is_value(text) else text for name, text in fields.items()}
    )


def _join_fields(row: Iterable[bytes | None], dialect: CsvDialect) -> bytes:
    return dialect.separator.encode().join(field or b"" for field in row)


_encode = msgspec.json.Encoder().encode
