"""How CSV files are written: the dialect, the header, and rows that span lines.

Source: RFC 4180; docs/evolution-rules.md#d16
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from widen.errors import InvalidOption, SourceError
from widen.observe.json_document import BOM
from widen.observe.json_stream_split import MAX_RECORD_BYTES

_BOOLEANS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class CsvDialect:
    """How the rows of CSV files are written.

    Args:
        quote: Character around quoted fields; None for no quoting.
        escape: Character before a quote inside a field; None if the quote is doubled.
        header: Whether the first line of every file has the names; else the names are ``_c0``, ``_c1``, ...
        null: Unquoted text of null.
        detects: The pattern of the texts that become numbers and booleans; empty if none do.
        known: The fields that the table has, as `fold_name` returns them: one of them is in each header. Empty if a
            header may have any names.
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    detects: str = ""
    known: frozenset[str] = frozenset()


def fold_name(name: str) -> str:
    """Return the letters and digits of a name in one case: its column may be spelled otherwise."""
    return "".join(filter(str.isalnum, name)).casefold()


def parse_dialect(
    options: Mapping[str, str], *, detects: str = "", is_tabbed: bool = False, known: Iterable[str] = ()
) -> CsvDialect:
    """Return the dialect of options with the names that Spark has for them, in any case.

    Args:
        options: For example ``{"sep": ";", "header": "false"}``.
        is_tabbed: Whether the default separator is a tab.
        known: The fields that the table has. They are not compared if the options say whether there is a header.

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
    shared = () if "header" in fields else known
    if fields.get("header", "true").lower() not in _BOOLEANS:
        raise InvalidOption(option="header", value=fields["header"], expected="Must be true or false.")
    fields["header"] = _BOOLEANS[fields.get("header", "true").lower()]
    _ensure_encoding(fields.get("encoding", "utf-8"))
    fields |= {"quote": fields.get("quote", '"') or None, "escape": fields.get("escape") or None, "detects": detects}
    return CsvDialect(**fields, known=frozenset(map(fold_name, shared)) - {""})


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
        # Python also looks up codecs that are not for texts, such as base64; only using them tells.
        "\n".encode(name)
    except (LookupError, ValueError) as error:
        raise InvalidOption(
            option="encoding", value=name, expected="Must be an encoding that Python supports."
        ) from error


def ensure_splittable(path: str, dialect: CsvDialect) -> None:
    """Check that a large file can be read in parts.

    Raises:
        SourceError: a line break is not a single byte in its encoding.
    """
    if "\n".encode(dialect.encoding) != b"\n":
        reason = f"the file is too large to be read in {dialect.encoding}"
        raise SourceError(source=path, reason=reason, fix="Convert it to UTF-8, or split it.")


def to_utf8(data: bytes, dialect: CsvDialect) -> bytes | None:
    """Return texts in UTF-8. Bytes that the encoding does not have become surrogates; None if it cannot do that."""
    if codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig"):
        return data
    try:
        return data.decode(dialect.encoding, "surrogateescape").encode(errors="surrogatepass")
    except UnicodeDecodeError:
        return None


def to_source_encoding(text: bytes, dialect: CsvDialect) -> bytes:
    """Return a text from `to_utf8` unchanged if it is UTF-8, else with the bytes that the file has."""
    if codecs.lookup(dialect.encoding).name in ("utf-8", "utf-8-sig") or is_utf8(text):
        return text
    return text.decode(errors="surrogatepass").encode(dialect.encoding, "surrogateescape")


def is_utf8(text: bytes) -> bool:
    """Tell whether a text is UTF-8."""
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def read_header(data: bytes, dialect: CsvDialect, path: str) -> tuple[list[str], bytes]:
    """Return the names of the fields, and the rows without the header line.

    Args:
        path: The file, for the error.

    Raises:
        SourceError: the table has none of the fields, so that the line is probably a record of a file without header.
    """
    data = data.removeprefix(BOM)
    end, quote = data.find(b"\n"), (dialect.quote or "\0").encode()
    # After an odd number of quotes the line break is in a quoted name.
    while end >= 0 and data.count(quote, 0, end) % 2:
        end = data.find(b"\n", end + 1)
    first = (data if end < 0 else data[:end]).decode(errors="replace")
    fields = next(csv.reader([first.rstrip("\r")], delimiter=dialect.separator, quotechar=dialect.quote), [])
    if not dialect.header:
        return [f"_c{at}" for at in range(len(fields))], data
    if dialect.known and fields and dialect.known.isdisjoint(map(fold_name, fields)):
        raise SourceError(source=path, reason="the table has none of the fields in its first line", fix=_HEADER_FIX)
    return _unique_names(fields), b"" if end < 0 else data[end + 1 :]


def _unique_names(fields: Iterable[str]) -> list[str]:
    """Return names without duplicates: a later one gets the first free number from 2 as a suffix."""
    names: list[str] = []
    for field in fields:
        numbered = (f"{field}_{number}" for number in count(2))
        names.append(field if field not in names else next(name for name in numbered if name not in names))
    return names


def split_whole_rows(data: bytes, dialect: CsvDialect) -> tuple[bytes, bytes]:
    """Return the complete rows, and the beginning of a row whose quoted field continues.

    Raises:
        SourceError: the field does not end.
    """
    quote = (dialect.quote or "\0").encode()
    escape = dialect.escape
    # An escaped quote does not end a field. The dots keep the offsets, which are used for the data below.
    unescaped = data if escape is None else re.sub(re.escape(escape.encode()) + b".", b"..", data, flags=re.DOTALL)
    if unescaped.count(quote) % 2 == 0:
        return data, b""
    if len(data) > MAX_RECORD_BYTES:
        raise SourceError(source="A large CSV file", reason="a quoted field does not end", fix=_QUOTE_FIX)
    end = len(unescaped)
    while end and unescaped.count(quote, end) % 2 == 0:
        end = unescaped.rfind(b"\n", 0, end - 1) + 1
    return data[:end], data[end:]


_HEADER_FIX = (
    "If the file lacks its header, add the line with the names. If it has another separator, set the option sep. "
    "If all its fields are new, set the option header=true."
)
_QUOTE_FIX = "Repair the file, or turn quoting off: quote=''."
