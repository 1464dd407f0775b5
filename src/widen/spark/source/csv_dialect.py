"""How CSV files are written: the dialect, the header, and rows that span lines.

Source: RFC 4180; docs/evolution-rules.md#d16
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from widen.errors import InvalidOption, SourceError
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
        multi_line: Whether quoted fields may take several lines; None if they may, unless they look damaged.
        max_record_bytes: Maximum size of a row.
    """

    separator: str = ","
    quote: str | None = '"'
    escape: str | None = None
    header: bool = True
    null: str = ""
    encoding: str = "utf-8"
    detects: str = ""
    known: frozenset[str] = frozenset()
    multi_line: bool | None = None
    max_record_bytes: int = MAX_RECORD_BYTES


def fold_name(name: str) -> str:
    """Return the letters and digits of a name in one case: its column may be spelled otherwise."""
    return "".join(filter(str.isalnum, name)).casefold()


def parse_dialect(
    options: Mapping[str, str],
    *,
    detects: str = "",
    is_tabbed: bool = False,
    known: Iterable[str] = (),
    max_record_bytes: int = MAX_RECORD_BYTES,
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
    for key, option in (("header", "header"), ("multi_line", "multiLine")):
        if key in fields:
            if fields[key].lower() not in _BOOLEANS:
                raise InvalidOption(option=option, value=fields[key], expected="Must be true or false.")
            fields[key] = _BOOLEANS[fields[key].lower()]
    _ensure_encoding(fields.get("encoding", "utf-8"))
    fields |= {"quote": fields.get("quote", '"') or None, "escape": fields.get("escape") or None, "detects": detects}
    names = frozenset(map(fold_name, shared)) - {""}
    return CsvDialect(**fields, known=names, max_record_bytes=max_record_bytes)


_OPTIONS = {
    **dict.fromkeys(("sep", "delimiter"), "separator"),
    **dict.fromkeys(("encoding", "charset"), "encoding"),
    "quote": "quote",
    "escape": "escape",
    "header": "header",
    "nullvalue": "null",
    "multiline": "multi_line",
}


def _ensure_encoding(name: str) -> None:
    try:
        # Python also looks up codecs that are not for texts, such as base64; only using them tells.
        "\n".encode(name)
    except (LookupError, ValueError) as error:
        raise InvalidOption(
            option="encoding", value=name, expected="Must be an encoding that Python supports."
        ) from error


def is_splittable(dialect: CsvDialect) -> bool:
    """Tell whether a line break is a single byte in the encoding, so that a file can be read in blocks."""
    return "\n".encode(dialect.encoding) == b"\n"


def ensure_splittable(path: str, dialect: CsvDialect) -> None:
    """Check that a large file can be read in parts.

    Raises:
        SourceError: a line break is not a single byte in its encoding.
    """
    if not is_splittable(dialect):
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
