"""CSV rows and plain lines as JSON texts, so that they take the same path as JSON: one record of strings per row.

An empty field is null, and a quoted empty field is the empty string. A row with another number of fields than the first
line is not a record and is kept as a whole.

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
from widen.spark.source.json_texts import is_small, keep_file_order, text_lines, whole_files
from widen.spark.source.raw_batch import FILE, PART, RAW_SCHEMA, TEXT, as_raw_records
from widen.spark.source.source_files import SourceFiles, as_literal, unusable_source

LINE_FIELD = "value"
"""The field of the record of a plain line."""

_HEAD_LINES = 100
_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How the rows of CSV files are written.

    Args:
        separator: Character between fields.
        quote: Character around quoted fields; None for no quoting.
        escape: Character before a quote inside a field; None if the quote is doubled.
        header: Whether the first line of every file has the names; else the names are ``_c0``, ``_c1``, ...
        null: Unquoted text of null.
        encoding: Encoding of the files.
        detects: Whether texts that are JSON numbers, true or false become such values.
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    detects: bool = False


def parse_dialect(options: Mapping[str, str], *, detects: bool = False, is_tabbed: bool = False) -> CsvDialect:
    """Return the dialect of options with the names that Spark has for them, in any case.

    Args:
        options: For example ``{"sep": ";", "header": "false"}``.
        detects: See `CsvDialect`.
        is_tabbed: Whether the default separator is a tab.

    Raises:
        InvalidOption: an option is unknown or has an invalid value.
    """
    fields: dict[str, Any] = {"separator": "\t"} if is_tabbed else {}
    for name, value in options.items():
        key = _OPTIONS.get(name.lower())
        if key is None:
            raise InvalidOption(option="CSV option", value=name, expected=f"Must be one of: {', '.join(_OPTIONS)}.")
        fields[key] = value
    for key in ("separator", "quote", "escape"):
        if len(fields.get(key) or " ") != 1:
            raise InvalidOption(option=key, value=fields[key], expected="Must be a single character.")
    if fields.get("header", "true").lower() not in _BOOLEANS:
        raise InvalidOption(option="header", value=fields["header"], expected="Must be true or false.")
    fields["header"] = _BOOLEANS[fields.get("header", "true").lower()]
    _ensure_encoding(fields.get("encoding", "utf-8"))
    fields |= {"quote": fields.get("quote", '"') or None, "escape": fields.get("escape") or None, "detects": detects}
    return CsvDialect(**fields)


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
        raise InvalidOption(
            option="encoding", value=name, expected="Must be an encoding that Python supports."
        ) from error


def read_csv(spark: SparkSession, source: SourceFiles, dialect: CsvDialect) -> DataFrame:
    """Return the raw batch of CSV files.

    Tasks read a large file in parallel, unless one of its fields has a line break; then one task reads it.

    Args:
        spark: The session.
        source: The files.
        dialect: How their rows are written.

    Raises:
        SourceError: a large file has an encoding in which a line break is not a single byte.
    """
    small = [file for file in source.files if is_small(file)]
    frames = [_read_texts(whole_files(spark, source, small), partial(_texts_of_files, dialect))] if small else []
    frames += [_read_large(spark, file.path, dialect) for file in source.files if not is_small(file)]
    return reduce(DataFrame.unionAll, frames)


def read_lines(spark: SparkSession, source: SourceFiles, *, detects: bool = False) -> DataFrame:
    """Return the raw batch of plain text files: one record per line, with the field `LINE_FIELD`."""
    return _read_texts(text_lines(spark, [file.path for file in source.files]), partial(_texts_of_plain_lines, detects))


def _read_texts(texts: DataFrame, make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> DataFrame:
    return texts.mapInArrow(make, RAW_SCHEMA)


def _read_large(spark: SparkSession, path: str, dialect: CsvDialect) -> DataFrame:
    if "\n".encode(dialect.encoding) != b"\n":
        raise unusable_source(
            path, f"the file is too large to be read in {dialect.encoding}", "Convert it to UTF-8, or split it."
        )
    lines = spark.read.text(as_literal(path), lineSep="\n")
    head = lines.select(F.col("value").cast("binary")).limit(_HEAD_LINES).collect()
    names, _ = _read_header(b"".join(bytes(row[0]) + b"\n" for row in head), dialect)
    quotes = F.length("value") - F.length(F.replace("value", F.lit(dialect.quote or "\0")))
    has_breaks = bool(lines.where(quotes % 2 == 1).limit(1).count())
    rows = text_lines(spark, [path], "\n")
    return _read_texts(keep_file_order(rows) if has_breaks else rows, partial(_texts_of_lines, dialect, names))


# ---- on the executors ------------------------------------------------------------------------------


def _texts_of_files(dialect: CsvDialect, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for content, path in zip(batch.column(TEXT).to_pylist(), batch.column(FILE).to_pylist(), strict=True):
            text = _in_utf8(content, dialect)
            names, rows = ([], b"") if text is None else _read_header(text, dialect)
            yield as_raw_records([content] if text is None else _to_json_texts(rows, names, dialect), path)


def _texts_of_lines(
    dialect: CsvDialect, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the lines of one file; a row that continues in the next lines waits for them."""
    last_split: tuple[str, int] = ("", -1)
    incomplete_row = b""
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in (TEXT, FILE, PART)]
        for split, group in groupby(zip(*columns, strict=True), key=lambda row: (row[1], row[2])):
            data = b"".join(line + b"\n" for line, _, _ in group)
            rows = _in_utf8(data, dialect) or data
            is_start, last_split = split != last_split and split[1] == 0, split
            rows, incomplete_row = _split_whole_rows(
                incomplete_row + (_read_header(rows, dialect)[1] if is_start else rows), dialect
            )
            yield as_raw_records(_to_json_texts(rows, names, dialect), *last_split)
    yield as_raw_records(_to_json_texts(incomplete_row, names, dialect), *last_split)


def _texts_of_plain_lines(detects: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = [batch.column(name).to_pylist() for name in (TEXT, FILE, PART)]
        for last_split, group in groupby(zip(*columns, strict=True), key=lambda row: (row[1], row[2])):
            yield as_raw_records(
                [_to_json_record({LINE_FIELD: line}, detects=detects) or line for line, _, _ in group], *last_split
            )


def _in_utf8(data: bytes, dialect: CsvDialect) -> bytes | None:
    """Return texts in UTF-8. Bytes that the encoding does not have become surrogates; None if it cannot do that."""
    if codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig"):
        return data
    try:
        return data.decode(dialect.encoding, "surrogateescape").encode(errors="surrogatepass")
    except UnicodeDecodeError:
        return None


def _in_source_encoding(text: bytes, dialect: CsvDialect) -> bytes:
    """Return a text from `_in_utf8` unchanged if it is UTF-8, else with the bytes that the file has."""
    if codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig") or _is_utf8(text):
        return text
    return text.decode(errors="surrogatepass").encode(dialect.encoding, "surrogateescape")


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_header(data: bytes, dialect: CsvDialect) -> tuple[list[str], bytes]:
    """Return the names of the fields, and the rows without the header line."""
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
    """Return names without duplicates: a later one gets the first free number from 2 as a suffix."""
    names: list[str] = []
    for field in fields:
        numbered = (f"{field}_{number}" for number in count(2))
        names.append(field if field not in names else next(name for name in numbered if name not in names))
    return names


def _split_whole_rows(data: bytes, dialect: CsvDialect) -> tuple[bytes, bytes]:
    """Return the complete rows, and the beginning of a row whose quoted field continues."""
    quote = (dialect.quote or "\0").encode()
    escape = dialect.escape
    unescaped = data if escape is None else re.sub(re.escape(escape.encode()) + b".", b"..", data, flags=re.DOTALL)
    if unescaped.count(quote) % 2 == 0:
        return data, b""
    if len(data) > MAX_RECORD_BYTES:
        raise SourceError(source="A large CSV file", reason="a quoted field does not end", fix=_QUOTE_FIX)
    end = len(unescaped)
    while end and unescaped.count(quote, end) % 2 == 0:
        end = unescaped.rfind(b"\n", 0, end - 1) + 1
    return data[:end], data[end:]


_QUOTE_FIX = "Repair the file, or turn quoting off: quote=''."


def _to_json_texts(rows: bytes, names: Sequence[str], dialect: CsvDialect) -> list[bytes]:
    """Return the JSON texts of rows in order; a row that is not a record stays as it is."""
    if not rows.strip() or not names:
        return []
    # Arrow decodes refused rows, so rows that are not UTF-8 are parsed with a character for each of their bytes.
    is_utf8 = _is_utf8(rows)
    refused: list[tuple[int, bytes]] = []

    def refuse(row: pa.csv.InvalidRow) -> str:
        text = row.text.encode() if is_utf8 else _in_source_encoding(row.text.encode("latin-1"), dialect)
        refused.append((row.number or 0, text))
        return "skip"

    rows = rows if is_utf8 else rows.decode("latin-1").encode()
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
    columns = [column.to_pylist() for column in table.columns]
    fields = zip(*(columns if is_utf8 else map(_as_bytes, columns)), strict=True)
    texts = [
        _to_json_record(dict(zip(names, row, strict=True)), detects=dialect.detects)
        or _in_source_encoding(_join_fields(row, dialect), dialect)
        for row in fields
    ]
    for number, text in refused:
        texts.insert(max(number - 1, 0), text)
    return texts


def _as_bytes(values: Iterable[bytes | None]) -> list[bytes | None]:
    return [None if value is None else value.decode().encode("latin-1") for value in values]


def _to_json_record(fields: Mapping[str, bytes | None], *, detects: bool) -> bytes | None:
    """Return a record as JSON, or None if a field is not UTF-8."""
    try:
        texts = {name: None if value is None else value.decode() for name, value in fields.items()}
    except UnicodeDecodeError:
        return None
    return _encode({name: _to_json_token(text) for name, text in texts.items()} if detects else texts)


def _to_json_token(text: str | None) -> str | msgspec.Raw | None:
    return msgspec.Raw(text.encode()) if text and _JSON_TOKEN.fullmatch(text) else text


def _join_fields(row: Iterable[bytes | None], dialect: CsvDialect) -> bytes:
    return dialect.separator.encode().join(field or b"" for field in row)


_JSON_TOKEN = re.compile(r"true|false|0|-?[1-9][0-9]{0,37}|-?(?:0|[1-9][0-9]{0,9})\.[0-9]{0,4}[1-9]")
"""What comes back as it is: whole numbers, and fractions so short that a double says them, without further zeros."""

_encode = msgspec.json.Encoder().encode
