"""CSV and plain lines as JSON texts, so that they take the same way as JSON: a record of texts for each row.

An empty field is null, and a quoted empty one the empty text. A row with more or fewer fields than the first line has
names is no record and is kept whole.

Source: RFC 4180; docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import count, groupby
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.csv
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import InvalidOption, SourceError
from widen.observe.json_document import BOM
from widen.observe.json_stream_split import MAX_RECORD_BYTES
from widen.spark.source.json_texts import (
    FILE,
    PART,
    RAW_SCHEMA,
    TEXT,
    as_raw_records,
    is_small,
    keep_file_order,
    text_lines,
    whole_files,
)
from widen.spark.source.source_files import SourceFiles, as_literal, unusable_source

LINE_FIELD = "value"
"""The field of a record that is a line."""

_HEAD_LINES = 100
_TRUTH = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How rows are written.

    Args:
        separator: What stands between fields.
        quote: What may stand around a field; None for nothing.
        escape: What makes a quote in a field stand for itself; the quote itself by default.
        header: Whether the first line of every file has the names; else they are ``_c0``, ``_c1`` and so on.
        null: The text, unquoted, that stands for null.
        encoding: Of the files.
        detects: Whether texts that look as JSON would write a number, true or false are taken for that.
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    detects: bool = False


def parse_dialect(options: Mapping[str, str], *, detects: bool = False, is_tabbed: bool = False) -> CsvDialect:
    """Return what options say, by the names that Spark gives them, in any case.

    Args:
        options: E.g. ``{"sep": ";", "header": "false"}``.
        detects: As in `CsvDialect`.
        is_tabbed: Whether tabs stand between fields unless an option says otherwise.

    Raises:
        InvalidOption: an option is none, or cannot have that value.
    """
    said: dict[str, Any] = {"separator": "\t"} if is_tabbed else {}
    for name, value in options.items():
        key = _OPTIONS.get(name.lower())
        if key is None:
            raise InvalidOption(option="an option of CSV", value=name, expected=f"It is one of {', '.join(_OPTIONS)}.")
        said[key] = value
    for key in ("separator", "quote", "escape"):
        if len(said.get(key) or " ") != 1:
            raise InvalidOption(option=key, value=said[key], expected="It is one character.")
    if said.get("header", "true").lower() not in _TRUTH:
        raise InvalidOption(option="header", value=said["header"], expected="It is true or false.")
    said["header"] = _TRUTH[said.get("header", "true").lower()]
    _ensure_encoding(said.get("encoding", "utf-8"))
    said |= {"quote": said.get("quote", '"') or None, "escape": said.get("escape") or None, "detects": detects}
    return CsvDialect(**said)


_OPTIONS = {
    **dict.fromkeys(("sep", "delimiter"), "separator"),
    **dict.fromkeys(("encoding", "charset"), "encoding"),
    "quote": "quote",
    "escape": "escape",
    "header": "header",
    "nullvalue": "null",
}


def _ensure_encoding(name: str) -> None:
    try:
        codecs.lookup(name)
    except LookupError as error:
        raise InvalidOption(option="encoding", value=name, expected="Name one that Python knows.") from error


def read_csv(spark: SparkSession, source: SourceFiles, dialect: CsvDialect) -> DataFrame:
    """Return the raw batch of files of CSV.

    A large file is read in parallel unless a field of it has a line break; then one task reads it.

    Args:
        spark: The session.
        source: The files.
        dialect: How their rows are written.

    Raises:
        SourceError: a large file is in an encoding in which a line break is no single byte.
    """
    small = [file for file in source.files if is_small(file)]
    frames = [_read_texts(whole_files(spark, source, small), partial(_of_files, dialect))] if small else []
    frames += [_large(spark, file.path, dialect) for file in source.files if not is_small(file)]
    return reduce(DataFrame.unionAll, frames)


def read_lines(spark: SparkSession, source: SourceFiles, *, detects: bool = False) -> DataFrame:
    """Return the raw batch of plain texts: a record for each line, with the field `LINE_FIELD`."""
    return _read_texts(text_lines(spark, [file.path for file in source.files]), partial(_of_texts, detects))


def _read_texts(texts: DataFrame, make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> DataFrame:
    return texts.mapInArrow(make, RAW_SCHEMA)


def _large(spark: SparkSession, path: str, dialect: CsvDialect) -> DataFrame:
    if "\n".encode(dialect.encoding) != b"\n":
        raise unusable_source(
            path, f"it is too large to be read in {dialect.encoding}", "Bring it to UTF-8, or split it."
        )
    lines = spark.read.text(as_literal(path), lineSep="\n")
    head = lines.select(F.col("value").cast("binary")).limit(_HEAD_LINES).collect()
    names, _ = _names(b"".join(bytes(row[0]) + b"\n" for row in head), dialect)
    quotes = F.length("value") - F.length(F.replace("value", F.lit(dialect.quote or "\0")))
    has_breaks = bool(lines.where(quotes % 2 == 1).limit(1).count())
    rows = text_lines(spark, [path], "\n")
    return _read_texts(keep_file_order(rows) if has_breaks else rows, partial(_of_lines, dialect, names))


# ---- on the executors ------------------------------------------------------------------------------


def _of_files(dialect: CsvDialect, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for content, path in zip(batch.column(TEXT).to_pylist(), batch.column(FILE).to_pylist(), strict=True):
            names, rows = _names(_in_utf8(content, dialect), dialect)
            yield as_raw_records(_texts(rows, names, dialect), path)


def _of_lines(dialect: CsvDialect, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the lines of one file; a row that goes on in the next lines waits for them."""
    place: tuple[str, int] = ("", -1)
    waiting = b""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in (TEXT, FILE, PART)]
        for found, group in groupby(zip(*columns, strict=True), key=lambda row: (row[1], row[2])):
            rows = _in_utf8(b"".join(line + b"\n" for line, _, _ in group), dialect)
            is_start, place = found != place and found[1] == 0, found
            rows, waiting = _whole_rows(waiting + (_names(rows, dialect)[1] if is_start else rows), dialect)
            yield as_raw_records(_texts(rows, names, dialect), *place)
    yield as_raw_records(_texts(waiting, names, dialect), *place)


def _of_texts(detects: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in (TEXT, FILE, PART)]
        for place, group in groupby(zip(*columns, strict=True), key=lambda row: (row[1], row[2])):
            yield as_raw_records([_record({LINE_FIELD: line}, detects=detects) or line for line, _, _ in group], *place)


def _in_utf8(data: bytes, dialect: CsvDialect) -> bytes:
    if codecs.lookup(dialect.encoding).name == "utf-8":
        return data
    return data.decode(dialect.encoding, errors="backslashreplace").encode()


def _names(data: bytes, dialect: CsvDialect) -> tuple[list[str], bytes]:
    """Return the names of the fields, and the rows without the line that says them."""
    data = data.removeprefix(BOM)
    end, quote = data.find(b"\n"), (dialect.quote or "\0").encode()
    while end >= 0 and data.count(quote, 0, end) % 2:
        end = data.find(b"\n", end + 1)
    first = (data if end < 0 else data[:end]).decode(errors="replace")
    fields = next(csv.reader([first.rstrip("\r")], delimiter=dialect.separator, quotechar=dialect.quote), [])
    if not dialect.header:
        return [f"_c{at}" for at in range(len(fields))], data
    return _unique_names(fields), b"" if end < 0 else data[end + 1 :]


def _unique_names(fields: Iterable[str]) -> list[str]:
    """Return names of which no two are the same: a later one gets the first number from 2 behind it that is free."""
    names: list[str] = []
    for field in fields:
        numbered = (f"{field}_{number}" for number in count(2))
        names.append(field if field not in names else next(name for name in numbered if name not in names))
    return names


def _whole_rows(data: bytes, dialect: CsvDialect) -> tuple[bytes, bytes]:
    """Return the rows that end here, and the beginning of one that does not, for a quote is open."""
    quote = (dialect.quote or "\0").encode()
    escape = dialect.escape
    bare = data if escape is None else re.sub(re.escape(escape.encode()) + b".", b"..", data, flags=re.DOTALL)
    if bare.count(quote) % 2 == 0:
        return data, b""
    if len(data) > MAX_RECORD_BYTES:
        raise SourceError(source="A large file of CSV", reason="a quote is open and has no end", fix=_NO_QUOTE)
    end = len(bare)
    while end and bare.count(quote, end) % 2 == 0:
        end = bare.rfind(b"\n", 0, end - 1) + 1
    return data[:end], data[end:]


_NO_QUOTE = "Repair the file, or say that nothing stands around its fields: quote=''."


def _texts(rows: bytes, names: Sequence[str], dialect: CsvDialect) -> list[bytes]:
    """Return the JSON texts of rows, in their order; of one that is no record, the row as it is."""
    refused: list[tuple[int, bytes]] = []

    def refuse(row: pa.csv.InvalidRow) -> str:
        refused.append((row.number or 0, row.text.encode()))
        return "skip"

    if not rows.strip() or not names:
        return []
    keys = [str(at) for at in range(len(names))]
    table = pa.csv.read_csv(
        pa.BufferReader(rows),
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
            column_types=dict.fromkeys(keys, pa.binary()),
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            null_values=[dialect.null],
            check_utf8=False,
        ),
    )
    fields = zip(*(column.to_pylist() for column in table.columns), strict=True)
    texts = [
        _record(dict(zip(names, row, strict=True)), detects=dialect.detects) or _row(row, dialect) for row in fields
    ]
    for number, text in refused:
        texts.insert(max(number - 1, 0), text)
    return texts


def _record(fields: Mapping[str, bytes | None], *, detects: bool) -> bytes | None:
    """Return a record as JSON, or None if a field is no UTF-8."""
    try:
        texts = {name: None if value is None else value.decode() for name, value in fields.items()}
    except UnicodeDecodeError:
        return None
    return _encode({name: _token(text) for name, text in texts.items()} if detects else texts)


def _token(text: str | None) -> str | msgspec.Raw | None:
    return msgspec.Raw(text.encode()) if text and _TOKEN.fullmatch(text) else text


def _row(row: Iterable[bytes | None], dialect: CsvDialect) -> bytes:
    return dialect.separator.encode().join(field or b"" for field in row)


_TOKEN = re.compile(r"true|false|0|-?[1-9][0-9]{0,37}|-?(?:0|[1-9][0-9]{0,9})\.[0-9]{0,4}[1-9]")
"""What comes back as it is: whole numbers, and fractions so short that a double says them, without further zeros."""

_encode = msgspec.json.Encoder().encode
