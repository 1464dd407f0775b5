"""Rows of small tables in this process: the condition and the columns of a caller, and rows as JSON.

Only what gives the same as Spark is done here; everything else is `NotLocal`, and Spark does it. The JSON is that of
Spark's ``to_json`` in UTC, nulls included.

Source: Spark's to_json and its JSON options; Java's Double.toString
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from widen.log.file_list import to_adds
from widen.log.snapshot import Snapshot
from widen.model.types import ArrayType, DataType, DecimalType, Field, MapType, StructType, plain_name, quote_name
from widen.protocol.data_skipping import And, Compare, IsNull, Not, Or, Predicate, UnknownPredicate
from widen.spark.arrow_types import to_arrow
from widen.spark.read.local_rows import NotLocal, RowSlice, plan_local_scan
from widen.spark.read.predicates import parse_predicate
from widen.spark.read.scan import select_files

MAX_LOCAL_BYTES = 128 * 2**20
"""The size of the files that a query reads from which on Spark is worth its start."""


def query_locally(
    snapshot: Snapshot, where: str | None = None, select: Sequence[str] = (), limit: int | None = None
) -> tuple[StructType, pa.Table]:
    """Return rows of a version that fulfil a condition, and their columns.

    Args:
        select: Names of columns; empty for all.

    Raises:
        NotLocal: only Spark can read the table, or evaluate the condition or the selected columns, exactly.
        CorruptFile: a file or a deletion vector cannot be read.
    """
    columns = [_find_column(snapshot.schema, name) for name in select] or list(snapshot.schema)
    if len({column.name for column in columns}) < len(columns):
        raise NotLocal("it selects a column twice")
    predicate = None if where is None else parse_predicate(where, snapshot.schema)
    files, scan = to_adds(snapshot.files()), plan_local_scan(snapshot)
    if predicate is not None:
        _ensure_exact(predicate)
        chosen = select_files(snapshot, predicate)
        files = [add for add in files if chosen.can_match(add.partition_values, add.stats)]
    if (predicate is not None or limit is None) and sum(add.size for add in files) > MAX_LOCAL_BYTES:
        raise NotLocal(f"its files have more than {MAX_LOCAL_BYTES // 2**20} MB")
    tables, rows = [scan.arrow_schema.empty_table()], 0
    for part in (part for add in files for part in scan.read(RowSlice(add))):
        kept = part if predicate is None else part.filter(_mask(predicate, part))
        tables.append(kept)
        rows += kept.num_rows
        if limit is not None and rows >= limit:
            break
    whole = pa.concat_tables(tables).select([column.name for column in columns])
    return StructType(tuple(columns)), whole if limit is None else whole.slice(0, limit)


def _find_column(schema: StructType, text: str) -> Field:
    found = next((column for column in schema if text in (column.name, quote_name(column.name))), None)
    if found is None:
        raise NotLocal(f"it evaluates {text}")
    return Field(found.name, found.type)


# ---- conditions ------------------------------------------------------------------------------------

_COMPARE: Mapping[str, Callable[[Any, Any], pa.ChunkedArray]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_FLOATING = frozenset({"float", "double"})


def _ensure_exact(predicate: Predicate) -> None:
    """Check that Arrow evaluates a condition as Spark does.

    Raises:
        NotLocal: it does not, or a part of it was not understood.
    """
    match predicate:
        case And(left, right) | Or(left, right):
            _ensure_exact(left)
            _ensure_exact(right)
        case Not(inner):
            _ensure_exact(inner)
        case Compare(_, data_type, _, value):
            if plain_name(data_type) == "binary":
                raise NotLocal("the condition compares values of the type binary")
            _constant(value, data_type)
        case UnknownPredicate():
            raise NotLocal("the condition is not a comparison of columns with constants")


def _constant(value: Any, data_type: DataType) -> pa.Scalar:
    try:
        return pa.scalar(value, pa.float64() if plain_name(data_type) in _FLOATING else to_arrow(data_type))
    except (pa.ArrowException, OverflowError, ValueError, TypeError) as error:
        raise NotLocal(f"the condition compares {data_type.sql} with a value that it cannot hold") from error


def _mask(predicate: Predicate, rows: pa.Table) -> Any:
    """Return for each row whether a condition is true, false or null."""
    match predicate:
        case And(left, right):
            return pc.and_kleene(_mask(left, rows), _mask(right, rows))
        case Or(left, right):
            return pc.or_kleene(_mask(left, rows), _mask(right, rows))
        case Not(inner):
            return pc.invert(_mask(inner, rows))
        case IsNull(path, _):
            return pc.is_null(_values(rows, path))
        case Compare(path, data_type, operator, value):
            values, constant = _values(rows, path), _constant(value, data_type)
            if plain_name(data_type) not in _FLOATING:
                return _COMPARE[operator](values, constant)
            # Spark compares floats as doubles, and NaN is above every number for it.
            doubles = values.cast(pa.float64())
            result = _COMPARE[operator](doubles, constant)
            return pc.or_(result, pc.is_nan(doubles)) if operator in (">", ">=") else result
    raise NotLocal("the condition is not a comparison of columns with constants")


def _values(rows: pa.Table, path: Sequence[str]) -> Any:
    values = rows.column(path[0])
    for step in path[1:]:
        values = pc.struct_field(values, step)
    return values


# ---- rows as JSON ----------------------------------------------------------------------------------

Encoder = Callable[[Any], str]


def json_lines(schema: StructType, rows: pa.Table) -> Iterator[str]:
    """Yield each row as a JSON object, as Spark's ``to_json`` writes it in UTC, nulls included.

    Raises:
        NotLocal: Spark writes a type, or a date out of the range of Python, in a way of its own.
    """
    encode = _encoder(schema)
    try:
        for batch in rows.to_batches(max_chunksize=1_000):
            yield from map(encode, batch.to_pylist())
    except (OverflowError, ValueError) as error:
        raise NotLocal("a date or time is not between the years 1 and 9999") from error


def _encoder(data_type: DataType) -> Encoder:
    match data_type:
        case StructType(fields):
            names = [_encode_text(field.name) for field in fields]
            return partial(_encode_struct, [*zip(fields, names, map(_encoder, (f.type for f in fields)), strict=True)])
        case ArrayType(element):
            return partial(_encode_list, _encoder(element))
        case MapType(key, value) if plain_name(key) == "string":
            return partial(_encode_map, _encoder(value))
        case DecimalType():
            return partial(_or_null, str)
    encode = _SCALARS.get(plain_name(data_type))
    if encode is None:
        raise NotLocal(f"values of the type {data_type.sql}")
    return partial(_or_null, encode)


def _or_null(encode: Encoder, value: Any) -> str:
    return "null" if value is None else encode(value)


def _encode_struct(fields: Sequence[tuple[Field, str, Encoder]], value: Any) -> str:
    if value is None:
        return "null"
    return "{" + ",".join(f"{name}:{encode(value[field.name])}" for field, name, encode in fields) + "}"


def _encode_list(encode: Encoder, value: Any) -> str:
    return "null" if value is None else f"[{','.join(map(encode, value))}]"


def _encode_map(encode: Encoder, value: Any) -> str:
    if value is None:
        return "null"
    return "{" + ",".join(f"{_encode_text(key)}:{encode(each)}" for key, each in value) + "}"


def _encode_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def java_number(value: float, shortest: str) -> str:
    """Return a floating-point number as Java writes it.

    Args:
        shortest: Its shortest form that reads back, as Python writes it.

    Example:
        >>> java_number(1e10, "10000000000.0"), java_number(0.0001, "0.0001"), java_number(1.0, "1.0")
        ('1.0E10', '1.0E-4', '1.0')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    sign, digits, exponent = _split_number(shortest)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        at = exponent + 1
        whole, rest = digits[: max(at, 0)].ljust(at, "0"), "0" * -min(at, 0) + digits[max(at, 0) :]
        return f"{sign}{whole or '0'}.{rest or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _split_number(text: str) -> tuple[str, str, int]:
    """Return the sign, the digits, and the power of ten of the first one."""
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    mantissa, _, power = text.partition("e")
    whole, _, rest = mantissa.partition(".")
    digits = (whole + rest).lstrip("0")
    first = len(whole) - 1 - (len(whole + rest) - len(digits))
    return sign, digits.rstrip("0") or "0", (first if digits else 0) + int(power or 0)


def _encode_float(value: float) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        return java_number(value, "")
    shortest = next(each for each in (f"{value:.{digits}g}" for digits in range(1, 10)) if _as_float(each) == value)
    return java_number(value, shortest)


def _as_float(text: str) -> float:
    """Return a number of 32 bits."""
    number: float = struct.unpack("f", struct.pack("f", float(text)))[0]
    return number


def _encode_time(value: datetime) -> str:
    zone = "Z" if value.tzinfo is not None else ""
    day, _, time = value.replace(tzinfo=None).isoformat(timespec="milliseconds").partition("T")
    return f'"{day}T{time}{zone}"'


def _encode_date(value: date) -> str:
    return f'"{value.isoformat()}"'


_SCALARS: Mapping[str, Encoder] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), str),
    "boolean": lambda value: "true" if value else "false",
    "string": _encode_text,
    "double": lambda value: java_number(value, repr(value)),
    "float": _encode_float,
    "binary": lambda value: f'"{b64encode(value).decode()}"',
    "date": _encode_date,
    "timestamp": _encode_time,
    "timestamp_ntz": _encode_time,
}
