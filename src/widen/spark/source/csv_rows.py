"""Rows of CSV as columns of texts, parsed by Arrow, and as JSON texts.

An empty field is null, and a quoted empty field is the empty string. A row with another number of fields than the first
line is not a record and is kept as a whole.

Source: RFC 4180; docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.csv

from widen.spark.source.csv_dialect import CsvDialect, to_source_encoding
from widen.spark.source.csv_scan import RefusedLine, ScannedRows
from widen.spark.source.raw_batch import RefusedTexts, TextGroup, as_raw_records

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
        lines: The line of each record in the file, or in its part.
        refused: The lines that are not records.
        detects: The pattern of the texts that become numbers and booleans; empty if none do.
    """

    file: str
    part: int
    names: tuple[str, ...]
    columns: tuple[pa.Array, ...]
    lines: Sequence[int]
    refused: tuple[RefusedLine, ...]
    detects: str

    @property
    def records(self) -> int:
        """The number of records."""
        return len(self.columns[0])

    def take(self, indexes: pa.Array) -> FieldGroup:
        """Return the records at some indexes, without refused lines."""
        columns, lines = tuple(column.take(indexes) for column in self.columns), self.lines
        return replace(self, columns=columns, lines=[lines[at] for at in indexes.to_pylist()], refused=())

    def slice(self, start: int, length: int) -> FieldGroup:
        """Return some adjacent records, without refused lines."""
        columns = tuple(column.slice(start, length) for column in self.columns)
        return replace(self, columns=columns, lines=self.lines[start : start + length], refused=())

    def to_json_texts(self) -> list[bytes]:
        """Return the JSON text of each record."""
        rows = zip(*(column.to_pylist() for column in self.columns), strict=True)
        return [to_json_record(dict(zip(self.names, row, strict=True)), detects=self.detects) for row in rows]

    def to_text_groups(self) -> Iterator[TextGroup]:
        """Yield the records as JSON texts, and the refused lines."""
        if self.records:
            yield TextGroup(self.file, self.part, False, self.to_json_texts(), self.lines)
        if self.refused:
            texts, lines = [each.text for each in self.refused], [each.line for each in self.refused]
            yield TextGroup(self.file, self.part, False, texts, lines, [each.reason for each in self.refused])

    def to_raw(self) -> Iterator[pa.RecordBatch]:
        """Yield the records and the refused lines as parts of a raw batch."""
        for group in self.to_text_groups():
            if group.reasons is None:
                yield as_raw_records(group.texts, group.file, group.part)
            else:
                refused = RefusedTexts(group.part, group.texts, list(group.lines or ()), list(group.reasons))
                yield refused.to_raw(group.file)


def parse_rows(
    scanned: ScannedRows, names: Sequence[str], dialect: CsvDialect, file: str = "", part: int = 0
) -> Iterator[FieldGroup]:
    """Yield rows as columns of texts, unless there are none.

    Args:
        file: URI of their file.
        part: The byte where their split begins.
    """
    if not scanned.rows.strip(b"\r\n") or not names:
        return
    columns, others = _read_columns(scanned.rows, len(names), dialect)
    lines = scanned.row_lines(len(columns[0]) + len(others))
    refused, kept, markers = [], set(range(len(lines))), iter(scanned.refused)
    marker = scanned.marker.decode()
    for index, text, width in others:
        kept.discard(index)
        if marker and text == marker:
            refused += next(markers)
            continue
        reason = f"{width} field{'s' * (width != 1)}, expected {len(names)}"
        texts = (to_source_encoding(each, dialect) for each in text.encode().splitlines())
        refused += [RefusedLine(number, each, reason) for number, each in enumerate(texts, lines[index])]
    record_lines = [lines[index] for index in sorted(kept)] if others else lines
    yield FieldGroup(file, part, tuple(names), tuple(columns), record_lines, tuple(refused), dialect.detects)


def _read_columns(rows: bytes, width: int, dialect: CsvDialect) -> tuple[list[pa.Array], list[tuple[int, str, int]]]:
    """Return the columns of rows in UTF-8, and the rows with another width: their indexes, texts and widths."""
    refused: list[tuple[int, str, int]] = []

    def refuse(row: pa.csv.InvalidRow) -> str:
        refused.append((max((row.number or 0) - 1, 0), row.text, row.actual_columns))
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


_encode = msgspec.json.Encoder().encode
