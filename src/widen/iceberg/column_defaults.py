"""Defaults of columns, which tables of format version 3 have: values of old rows, and of new ones that lack a field.

A default is a value, not an expression. In the model, the value for new rows is the SQL literal that Delta tables have
in the same place, so that loads, statements and the proof treat both formats alike.

Source: Iceberg's table specification, "Default values" and "Schema Evolution"
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

from widen.errors import CorruptMetadata, IcebergDefaultRefused, IcebergDefaultsNotSupported
from widen.iceberg.metadata_files import ROW_IDS
from widen.model.column_path import Path, format_path
from widen.model.lazy_module import import_lazily
from widen.model.schema_json import LITERAL, from_literal, to_literal
from widen.model.types import StructType
from widen.protocol.column_metadata import DEFAULT
from widen.schema.literals import read_literal
from widen.schema.table_state import parse_expression

if TYPE_CHECKING:
    from pyiceberg import types as ice_types
    from pyiceberg.schema import Schema
    from pyiceberg.table.update import TableUpdate
    from pyiceberg.types import IcebergType, NestedField
    from sqlglot import errors
    from sqlglot import expressions as sql
else:
    ice_types = import_lazily("pyiceberg.types")
    errors, sql = map(import_lazily, ("sqlglot.errors", "sqlglot.expressions"))

# ---- the value of new rows, as SQL ----------------------------------------------------------------


def default_text(data_type: IcebergType, value: Any) -> str | None:
    """Return a default in Spark SQL; None without a default, or if it has no literal, as for structs and lists."""
    write = _TEXTS.get(type(data_type).__name__) if _is_value(data_type, value) else None
    return None if write is None else write(value)


def ensure_write_defaults(schema: Schema, location: str) -> None:
    """Check that the defaults for new rows are values of the types of their columns."""
    for field in schema.fields:
        known = _TEXTS.keys() if field.write_default is not None else ()
        if type(field.field_type).__name__ in known and not _is_value(field.field_type, field.write_default):
            raise _corrupt(location, "write-default", field)


def _is_value(data_type: IcebergType, value: Any) -> bool:
    return type(to_plain(value)) in _TYPES.get(type(data_type).__name__, ())


def _corrupt(location: str, key: str, field: NestedField) -> CorruptMetadata:
    reason = f"{getattr(field, key.replace('-', '_'))!r} is not a value of the type {field.field_type}"
    return CorruptMetadata(location=location, name=f"{key} of the column {field.name}", reason=reason, fix=_FIX)


def _number_text(value: Any) -> str:
    number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    plain = format(number, "f")
    return plain if len(plain) <= _PLAIN_DIGITS else f"{value!r}D"


def _text(value: str) -> str:
    return to_literal(value).replace("${", "$\\{")  # Spark would put a variable there


def _bytes_text(value: Any) -> str:
    return f"X'{(value.bytes if isinstance(value, UUID) else value).hex().upper()}'"


_PLAIN_DIGITS = 17
"""The most characters of a double that are written without an exponent."""

_TEXTS: Mapping[str, Callable[[Any], str]] = {
    "BooleanType": lambda value: "true" if value else "false",
    "IntegerType": str,
    "LongType": str,
    "FloatType": _number_text,
    "DoubleType": _number_text,
    "DecimalType": lambda value: format(Decimal(value), "f"),
    "DateType": lambda value: f"DATE '{value.isoformat()}'",
    "TimestampType": lambda value: f"TIMESTAMP_NTZ '{value.isoformat(sep=' ')}'",
    "TimestamptzType": lambda value: f"TIMESTAMP '{value.astimezone(timezone.utc).isoformat(sep=' ')}'",
    "StringType": _text,
    "BinaryType": _bytes_text,
    "FixedType": _bytes_text,
    "UUIDType": _bytes_text,
}
"""How a default of each type is written."""


def parse_default(text: str, data_type: IcebergType, path: Path) -> Any:
    """Return the value of a literal as PyIceberg reads a default of this type; None for NULL.

    Raises:
        IcebergDefaultRefused: the text is not a literal of the type.
    """
    name = type(data_type).__name__
    given = _constant(text)
    read = _VALUES.get(name)
    if given is None:
        return None
    value = None if given is _NO_LITERAL or read is None else read(data_type, given)
    if value is None:
        raise IcebergDefaultRefused(column=format_path(path), expression=text, type=str(data_type))
    return value


def with_column_defaults(
    updates: Iterable[TableUpdate], schema: StructType, format_version: int
) -> tuple[TableUpdate, ...]:
    """Return the updates of a new table with the defaults of its columns, which PyIceberg leaves out.

    There are no old rows, so only new ones need a value.

    Raises:
        IcebergDefaultsNotSupported: the format version has no defaults.
        IcebergDefaultRefused: a default is not a literal of the type of its column.
    """
    texts = {each.name: each.metadata[DEFAULT] for each in schema if DEFAULT in each.metadata}
    if texts and format_version < ROW_IDS:
        raise IcebergDefaultsNotSupported(column=next(iter(texts)), version=format_version)
    return tuple(_with_write_defaults(each, texts) if hasattr(each, "schema_") else each for each in updates)


def _with_write_defaults(update: Any, texts: Mapping[str, str]) -> TableUpdate:
    fields = [
        each.model_copy(update={"write_default": parse_default(texts[each.name], each.field_type, (each.name,))})
        if each.name in texts
        else each
        for each in update.schema_.fields
    ]
    old = update.schema_
    schema = type(old)(*fields, schema_id=old.schema_id, identifier_field_ids=old.identifier_field_ids)
    return update.model_copy(update={"schema_": schema})  # type: ignore[no-any-return]


_NO_LITERAL = object()


def _constant(text: str) -> Any:
    """Return the value of a literal, or `_NO_LITERAL`."""
    if re.fullmatch(LITERAL, text.strip()):
        return from_literal(text.strip())  # sqlglot reads escapes differently than Spark
    try:
        node = parse_expression(text)
    except (errors.SqlglotError, RecursionError):
        return _NO_LITERAL
    if isinstance(node, sql.HexString):
        digits = node.name
        return bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))
    literal = read_literal(node)
    return _NO_LITERAL if literal is None else literal.value


def _whole(bits: int) -> Callable[[IcebergType, Any], int | None]:
    def read(_: IcebergType, value: Any) -> int | None:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None

    return read


def _real(largest: float) -> Callable[[IcebergType, Any], float | None]:
    def read(_: IcebergType, value: Any) -> float | None:
        if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)):
            return None
        number = float(value)
        return number if math.isfinite(number) and abs(number) <= largest else None  # JSON has no others

    return read


def _digits(data_type: Any, value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return None
    scaled = _EXACT.scaleb(Decimal(value), data_type.scale)
    if scaled != _EXACT.to_integral_value(scaled) or abs(int(scaled)) >= 10**data_type.precision:
        return None
    return _EXACT.scaleb(Decimal(int(scaled)), -data_type.scale)


_EXACT = Context(prec=100)
"""Decimals of SQL have up to 38 digits; Python's own context rounds to 28."""


def _day(_: IcebergType, value: Any) -> date | None:
    if isinstance(value, str):
        value = _constant(f"DATE {to_literal(value)}")
    return value if isinstance(value, date) and not isinstance(value, datetime) else None


def _moment(word: str, *, has_zone: bool) -> Callable[[IcebergType, Any], datetime | None]:
    def read(_: IcebergType, value: Any) -> datetime | None:
        if isinstance(value, str):
            value = _constant(f"{word} {to_literal(value)}")
        is_one = isinstance(value, datetime) and (value.tzinfo is not None) == has_zone
        return value if is_one else None

    return read


def _uuid(_: IcebergType, value: Any) -> UUID | None:
    if isinstance(value, bytes):
        return UUID(bytes=value) if len(value) == 16 else None
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


_VALUES: Mapping[str, Callable[[Any, Any], Any]] = {
    "BooleanType": lambda _, value: value if isinstance(value, bool) else None,
    "IntegerType": _whole(32),
    "LongType": _whole(64),
    "FloatType": _real(3.4028234663852886e38),
    "DoubleType": _real(math.inf),
    "DecimalType": _digits,
    "DateType": _day,
    "TimestampType": _moment("TIMESTAMP_NTZ", has_zone=False),
    "TimestamptzType": _moment("TIMESTAMP", has_zone=True),
    "StringType": lambda _, value: value if isinstance(value, str) else None,
    "BinaryType": lambda _, value: value if isinstance(value, bytes) else None,
    "FixedType": lambda kind, value: value if isinstance(value, bytes) and len(value) == len(kind) else None,
    "UUIDType": _uuid,
}
"""What each type makes of the value of a literal; None if it takes no such value."""


# ---- the values of old rows -----------------------------------------------------------------------


def initial_defaults(schema: Schema, location: str) -> dict[int, Any]:
    """Return the values that old rows have in columns that their files lack, by field id.

    Dates are days and times microseconds since 1970, uuids bytes, and a struct a dict of its fields by name.
    """
    defaults = {}
    for number in schema.field_ids:
        field = schema.find_field(number)
        if field.initial_default is not None and _is_known(field.field_type):
            value = _default_of(field.field_type, field.initial_default)
            if value is None:
                raise _corrupt(location, "initial-default", field)
            defaults[number] = value
    return defaults


_FIX = "Set a different default with the client that created it."


def _is_known(data_type: IcebergType) -> bool:
    return not isinstance(data_type, ice_types.PrimitiveType) or type(data_type).__name__ in _TYPES


def _default_of(data_type: IcebergType, value: Any) -> Any:
    """Return a default; None if it is not a value of its type.

    A default of a struct names no fields: each field has its own default.

    Source: Iceberg's table specification, "Default values"
    """
    if isinstance(data_type, ice_types.StructType):
        return {
            each.name: None if each.initial_default is None else _default_of(each.field_type, each.initial_default)
            for each in data_type.fields
        }
    return to_plain(value) if _is_value(data_type, value) else None


_TYPES: Mapping[str, tuple[type, ...]] = {
    "UnknownType": (),
    "BooleanType": (bool,),
    **dict.fromkeys(("IntegerType", "LongType", "DateType", "TimestampType", "TimestamptzType", "TimeType"), (int,)),
    **dict.fromkeys(("FloatType", "DoubleType"), (int, float)),
    "DecimalType": (Decimal, int),
    "StringType": (str,),
    **dict.fromkeys(("BinaryType", "FixedType", "UUIDType"), (bytes,)),
}
"""The types of the values that `to_plain` returns for each Iceberg type."""


def to_plain(value: Any) -> Any:
    """Return a PyIceberg value with dates as days, and times as microseconds since 1970 or midnight."""
    match value:
        case UUID():
            return value.bytes
        case datetime():
            return (value.replace(tzinfo=value.tzinfo or timezone.utc) - _EPOCH) // timedelta(microseconds=1)
        case date():
            return (value - _EPOCH.date()).days
        case time():
            return (datetime.combine(_EPOCH.date(), value.replace(tzinfo=timezone.utc)) - _EPOCH) // timedelta(
                microseconds=1
            )
    return value


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
