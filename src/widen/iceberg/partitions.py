"""The partition fields of a table, and the values that tasks compute for them, without PyIceberg.

Source: Iceberg's table specification, "Partitioning", "Partition Transforms".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from widen.errors import InvalidOption
from widen.evolution.policy import FixedColumn
from widen.model.column_path import Path, format_path, parse_path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import INTEGER, LONG, ArrayType, DataType, DecimalType, MapType, StructType, is_atomic, name_key
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import NameAllocator

if TYPE_CHECKING:
    from pyiceberg import partitioning as iceberg_partitioning
    from pyiceberg import schema as iceberg_schema
    from pyiceberg import transforms as iceberg_transforms
    from pyiceberg.expressions import BooleanExpression, BoundPredicate
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.transforms import TruncateTransform
else:
    iceberg_partitioning = import_lazily("pyiceberg.partitioning")
    iceberg_transforms = import_lazily("pyiceberg.transforms")

iceberg_typedef = import_lazily("pyiceberg.typedef")
ice = import_lazily("pyiceberg.expressions")
ice_transforms = import_lazily("pyiceberg.transforms")


IDENTITY, VOID = "identity", "void"
_SIZED = frozenset({"bucket", "truncate"})
_TIMES = ("year", "month", "day", "hour")
_NAMES: Mapping[str, str] = {"truncate": "trunc", **{name: name for name in ("bucket", *_TIMES)}}
"""The end of the name of a partition field, as Iceberg for Spark names it."""

_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)
# Iceberg's reference implementation numbers partition fields from 1000 on.
_FIRST_ID = 1000


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition specification.

    Args:
        source: The path of the column, through structs only; empty if the column was dropped.
        transform: The name of the transform: identity, void, bucket, truncate, year, month, day or hour; or another
            writer's transform, which Widen can only read.
        size: The number of buckets, or the width of a truncation; else 0.
    """

    name: str
    source: Path
    transform: str
    size: int = 0

    def __str__(self) -> str:
        source = format_path(self.source)
        size = f"{self.size}, " if self.size else ""
        return source if self.transform == IDENTITY else f"{self.transform}({size}{source})"

    @property
    def key(self) -> tuple[Path, str, int]:
        """What the field is made of, to be compared without regard to case."""
        return tuple(name_key(step) for step in self.source), self.transform, self.size

    def is_of(self, columns: Container[str]) -> bool:
        """Return whether the field is made of one of these columns of the table; a void field is not."""
        return bool(self.source) and self.source[0] in columns


def read_partition_fields(metadata: TableMetadata) -> tuple[PartitionField, ...]:
    """Return the fields of the partition specification that new files get."""
    schema = metadata.schema()
    return tuple(_to_field(field, schema) for field in metadata.spec().fields)


def _to_field(field: iceberg_partitioning.PartitionField, schema: iceberg_schema.Schema) -> PartitionField:
    name, _, rest = str(field.transform).partition("[")
    if name == VOID:
        return PartitionField(field.name, (), VOID)
    if isinstance(field.transform, iceberg_transforms.UnknownTransform):
        return PartitionField(field.name, _path_of(schema, field.source_id), _unknown_name(field.transform))
    source = _path_of(schema, field.source_id)
    return PartitionField(field.name, source, name, int(rest.rstrip("]")) if rest else 0)


def _unknown_name(transform: Any) -> str:
    return str(transform._transform)


def unknown_transforms(metadata: TableMetadata) -> list[str]:
    """Return the transforms of the current partition specification and sort order that PyIceberg does not know.

    Source: Iceberg's table specification, "Partition Transforms": readers ignore them, writers must not write.
    """
    transforms = [each.transform for each in metadata.spec().fields]
    transforms += [each.transform for each in metadata.sort_order().fields]
    unknown = iceberg_transforms.UnknownTransform
    return list(dict.fromkeys(_unknown_name(each) for each in transforms if isinstance(each, unknown)))


def _path_of(schema: iceberg_schema.Schema, number: int) -> Path:
    """Return the path of a column with a field id; names may contain dots."""

    def search(fields: Iterable[Any], path: Path) -> Path | None:
        for field in fields:
            below = (*path, field.name)
            if field.field_id == number:
                return below
            inner = search(getattr(field.field_type, "fields", ()), below)
            if inner is not None:
                return inner
        return None

    return search(schema.fields, ()) or ()


def partition_columns(fields: Iterable[PartitionField]) -> dict[Path, FixedColumn]:
    """Return the columns that ingestion must not reroute, because partitions are made of them.

    Their types may widen: each transform gives the same value for the wider type.

    Source: docs/evolution-rules.md#d12; Iceberg's table specification, "Schema Evolution".
    """
    return {each.source: FixedColumn(each.source[-1], "a partition column") for each in fields if each.source}


def is_unpartitioned(spec: iceberg_partitioning.PartitionSpec) -> bool:
    """Return whether files of a specification are in one partition: it has no fields, or only void ones.

    A field that is dropped from a table of format version 1 stays as a void one.

    Source: Iceberg's table specification, "Scan Planning": equality deletes of an unpartitioned spec apply to all files
    """
    return all(isinstance(field.transform, iceberg_transforms.VoidTransform) for field in spec.fields)


def rounded_sources(metadata: TableMetadata) -> frozenset[int]:
    """Return the ids of the double columns whose values are partition values: PyIceberg rounds those to a float.

    It writes them exactly, but loses their last digits when it reads a manifest.
    """
    sources = {
        field.source_id
        for spec in metadata.partition_specs
        for field in spec.fields
        if isinstance(field.transform, iceberg_transforms.IdentityTransform)
    }
    columns = (schema.find_field(number) for schema in metadata.schemas for number in sources & schema.field_ids)
    return frozenset(each.field_id for each in columns if str(each.field_type) == "double")


# ---- new tables -----------------------------------------------------------------------------------


def parse_partition_by(texts: Sequence[str]) -> tuple[PartitionField, ...]:
    """Return the partition fields of a new table; their names are given by `name_partition_fields`.

    Args:
        texts: Columns and calls of transforms, e.g. ``day(placed_at)``, ``bucket(16, id)``, ``truncate(4, code)``.
    """
    return tuple(map(_parse_field, texts))


def _parse_field(text: str) -> PartitionField:
    match = _CALL.fullmatch(text)
    if match is None:
        return PartitionField("", parse_path(text.strip()), IDENTITY)
    # Spark's DDL for Iceberg spells the transforms years, months, days and hours.
    name, arguments = match[1].lower().removesuffix("s"), match[2]
    size = 0
    if name in _SIZED:
        number, _, arguments = arguments.partition(",")
        size = int(number) if number.strip().isdigit() else 0
    if name not in (IDENTITY, *_SIZED, *_TIMES) or (name in _SIZED and size < 1) or not arguments.strip():
        expected = "Must be a column, or year, month, day, hour, bucket(N, column) or truncate(N, column)."
        raise InvalidOption(option="partition_by", value=text, expected=expected)
    return PartitionField("", parse_path(arguments.strip()), name, size)


def resolve_partition_fields(fields: Iterable[PartitionField], schema: StructType) -> tuple[PartitionField, ...]:
    """Return partition fields with their names and with the paths as the schema spells them.

    Raises:
        InvalidOption: a column does not exist, the transform cannot take its values, or a field is given twice.
    """
    names, result = NameAllocator(schema.names), []
    used: dict[tuple[Path, str, int], PartitionField] = {}
    for each in fields:
        if used.setdefault(each.key, each) is not each:
            raise InvalidOption(option="partition_by", value=str(each), expected="Must name each field once.")
        source, data_type = _find_column(each, schema)
        column = ".".join(source)
        if each.transform == IDENTITY and len(source) == 1:
            name = source[0]
        else:
            name = names.take(f"{column}_{_NAMES[each.transform]}" if each.transform in _NAMES else column)
        ensure_transformable(each, data_type)
        result.append(PartitionField(name, source, each.transform, each.size))
    return tuple(result)


def ensure_transformable(field: PartitionField, data_type: DataType) -> None:
    """Check that the transform of a field takes values of a type.

    Raises:
        InvalidOption: it does not.
    """
    if not _can_transform(field.transform, data_type):
        column = format_path(field.source)
        expected = f"The column {column} is {data_type.sql}, which {field.transform} cannot take."
        raise InvalidOption(option="partition_by", value=column, expected=expected)


def _find_column(field: PartitionField, schema: StructType) -> tuple[Path, DataType]:
    names = ", ".join(each.name for each in schema)
    expected = f"Must name a column of the new table. Its first records have {names}."
    refused = InvalidOption(option="partition_by", value=format_path(field.source), expected=expected)
    current: DataType = schema
    for step in field.source:
        if isinstance(current, (ArrayType, MapType)) or is_atomic(current):
            raise refused
        column = current.find(step) if isinstance(current, StructType) else None
        if column is None:
            raise refused
        current = column.type
    return resolve(schema, field.source)


_NUMBERS = frozenset({"integer", "long"})
_DATES, _TIMESTAMPS = frozenset({"date"}), frozenset({"timestamp", "timestamp_ntz"})
_TEXTS = frozenset({"string", "binary"})
_TAKEN: Mapping[str, frozenset[str]] = {
    "bucket": _NUMBERS | _DATES | _TIMESTAMPS | _TEXTS,
    "truncate": _NUMBERS | _TEXTS,
    "hour": _TIMESTAMPS,
    **dict.fromkeys(("year", "month", "day"), _DATES | _TIMESTAMPS),
}
"""The types that each transform takes; bucket and truncate take decimals, and identity takes every atomic type."""


def _can_transform(transform: str, data_type: DataType) -> bool:
    if isinstance(data_type, DecimalType):
        return transform in (IDENTITY, *_SIZED)
    return is_atomic(data_type) and (transform == IDENTITY or str(data_type) in _TAKEN[transform])


def to_partition_spec(
    fields: Iterable[PartitionField], schema: iceberg_schema.Schema
) -> iceberg_partitioning.PartitionSpec:
    """Return the partition specification of a new table."""
    partition_fields = [
        iceberg_partitioning.PartitionField(
            source_id=_id_of(schema, each.source),
            field_id=_FIRST_ID + position,
            transform=iceberg_transforms.parse_transform(
                f"{each.transform}[{each.size}]" if each.size else each.transform
            ),
            name=each.name,
        )
        for position, each in enumerate(fields)
    ]
    return iceberg_partitioning.PartitionSpec(*partition_fields)


def _id_of(schema: iceberg_schema.Schema, path: Path) -> int:
    fields: Any = schema.fields
    column = None
    for step in path:
        column = next(field for field in fields if field.name == step)
        fields = getattr(column.field_type, "fields", ())
    assert column is not None
    return int(column.field_id)


# ---- sort orders ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column that sorts rows.

    Args:
        source: The path of the column, through structs only.
    """

    source: Path
    is_descending: bool = False
    is_null_first: bool = True

    def __str__(self) -> str:
        order = "DESC" if self.is_descending else "ASC"
        return f"{format_path(self.source)} {order} NULLS {'FIRST' if self.is_null_first else 'LAST'}"


_SORT_KEY = re.compile(r"(.+?)(?:\s+(ASC|DESC))?(?:\s+NULLS\s+(FIRST|LAST))?", re.IGNORECASE | re.DOTALL)


def parse_sort_keys(texts: Sequence[str]) -> tuple[SortKey, ...]:
    """Return the keys of a sort order; nulls come first in ascending and last in descending order by default.

    Raises:
        InvalidOption: a text is not a key, or a column is given twice.

    Source: Spark's WRITE ORDERED BY for Iceberg
    """
    keys = [_parse_sort_key(text) for text in texts]
    for at, key in enumerate(keys):
        if any(name_key(format_path(key.source)) == name_key(format_path(each.source)) for each in keys[:at]):
            raise InvalidOption(option="sort_by", value=format_path(key.source), expected="Must name each column once.")
    return tuple(keys)


def _parse_sort_key(text: str) -> SortKey:
    match = _SORT_KEY.fullmatch(text.strip())
    if match is None:
        raise InvalidOption(option="sort_by", value=text, expected="Must be a column, e.g. id or placed_at DESC.")
    is_descending = (match[2] or "").upper() == "DESC"
    is_null_first = not is_descending if match[3] is None else match[3].upper() == "FIRST"
    return SortKey(parse_path(match[1]), is_descending, is_null_first)


def read_sort_keys(metadata: TableMetadata) -> tuple[SortKey, ...]:
    """Return the columns that sort new files; empty if the table has no sort order, or one with a bucket.

    Every other known transform keeps the order of the values: rows sorted by the values are also sorted by the
    transform.

    Source: Iceberg's table specification, "Sorting"
    """
    schema, keys = metadata.schema(), []
    for field in metadata.sort_order().fields:
        if isinstance(field.transform, (iceberg_transforms.BucketTransform, iceberg_transforms.UnknownTransform)):
            return ()
        source = _path_of(schema, field.source_id)
        if source:
            keys.append(SortKey(source, field.direction.value == "desc", field.null_order.value == "nulls-first"))
    return tuple(keys)


# ---- values ---------------------------------------------------------------------------------------


def encode_partition(values: Sequence[Any]) -> str:
    """Return the partition values of a file as JSON: a type mark and the value for each field."""
    return _encode([_with_mark(value) for value in values]).decode()


def decode_partition(text: str) -> list[Any]:
    """Return the partition values from `encode_partition`, as PyIceberg writes them."""
    return [_DECODED[mark](value) for mark, value in msgspec.json.decode(text)] if text else []


_encode = msgspec.json.Encoder().encode


def _with_mark(value: Any) -> tuple[str, Any]:
    match value:
        case Decimal():
            return "d", str(value)
        case bytes():
            return "b", value.hex()
        case float() if not isfinite(value):  # JSON has no such numbers
            return "f", str(value)
    return "", value


_DECODED: Mapping[str, Callable[[Any], Any]] = {"d": Decimal, "b": bytes.fromhex, "f": float, "": lambda value: value}


_MASK, _ROUND_1, _ROUND_2 = 0xFFFFFFFF, 0xCC9E2D51, 0x1B873593


def bucket_of(value: bytes, buckets: int) -> int:
    """Return the bucket of a value: its 32-bit Murmur3 hash, without the sign, modulo the number of buckets.

    Args:
        value: The bytes that Iceberg hashes: see `hashed_bytes`.

    Source: Iceberg's table specification, "Appendix B: 32-bit Hash Requirements".

    Example:
        >>> bucket_of((34).to_bytes(8, "little"), 2**31) == 2017239379
        True
    """
    return (_murmur3(value) & 0x7FFFFFFF) % buckets


def hashed_bytes(value: Any) -> bytes:
    """Return the bytes that Iceberg hashes for a value.

    Args:
        value: An integer (also for dates and timestamps), a decimal, a string or bytes.
    """
    match value:
        case int():
            return value.to_bytes(8, "little", signed=True)
        case Decimal():
            unscaled = _to_unscaled(value)
            return unscaled.to_bytes((unscaled + (unscaled < 0)).bit_length() // 8 + 1, "big", signed=True)
        case str():
            return value.encode()
    return bytes(value)


def _to_unscaled(value: Decimal) -> int:
    """Return the digits of a decimal as an integer; arithmetic on decimals would round to 28 digits."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _murmur3(data: bytes) -> int:
    result, whole = 0, len(data) // 4 * 4
    for start in range(0, whole, 4):
        result ^= _mix(int.from_bytes(data[start : start + 4], "little"))
        result = (result << 13 | result >> 19) & _MASK
        result = (result * 5 + 0xE6546B64) & _MASK
    if whole < len(data):
        result ^= _mix(int.from_bytes(data[whole:], "little"))
    result ^= len(data)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, 1)):
        result = ((result ^ result >> shift) * factor) & _MASK
    return result


def _mix(block: int) -> int:
    block = (block * _ROUND_1) & _MASK
    return ((block << 15 | block >> 17) * _ROUND_2) & _MASK


def truncate_value(value: Any, width: int) -> Any:
    """Return a value truncated to a width: numbers down to a multiple, strings and bytes to their beginning.

    Args:
        value: An integer, a decimal, a string or bytes.

    Source: Iceberg's table specification, "Truncate Transform Details".

    Example:
        >>> truncate_value(-1, 10), truncate_value(Decimal("10.65"), 50), truncate_value("iceberg", 3)
        (-10, Decimal('10.50'), 'ice')
    """
    match value:
        case int():
            return value - value % width
        case Decimal():
            unscaled = _to_unscaled(value)
            result = unscaled - unscaled % width
            digits = tuple(map(int, str(abs(result))))
            return Decimal((int(result < 0), digits, int(value.as_tuple().exponent)))
    return value[:width]


# The values that cannot become partition values: their rows are refused, or quarantined.
#
# Source: Iceberg's table specification, "Partition Transforms".


def truncation_limits(fields: Iterable[PartitionField], schema: StructType) -> Mapping[str, str]:
    """Return SQL conditions that allow numbers to be truncated, by the partition field.

    A type does not hold the multiple of the width below its smallest values. Iceberg for Spark lets integers overflow
    there, and then skips their files although they have rows that it looks for.

    Source: Iceberg's table specification, "Truncate Transform Details".
    """
    limits = {}
    for each in fields:
        data_type = resolve(schema, each.source)[1] if each.transform == "truncate" else None
        decimals = data_type.scale if isinstance(data_type, DecimalType) else 0
        smallest = 1 - 10**data_type.precision if isinstance(data_type, DecimalType) else _SMALLEST.get(data_type)
        if smallest is not None and smallest % each.size:
            limit = Decimal((1, tuple(map(int, str(-smallest // each.size * each.size))), -decimals))
            column = format_path(each.source)
            limits[f"partition field {each.name}"] = f"{column} IS NULL OR {column} >= {limit:f}"
    return limits


_SMALLEST: Mapping[DataType | None, int] = {INTEGER: -(2**31), LONG: -(2**63)}


def calendar_limits(fields: Iterable[PartitionField], schema: StructType) -> Mapping[str, str]:
    """Return SQL conditions that allow PyIceberg to commit dates and times, by the partition field.

    It writes days, hours and the values themselves with Python's calendar into the summary of a snapshot.
    """
    limits = {}
    for each in fields:
        data_type = resolve(schema, each.source)[1] if each.transform in _IN_CALENDAR else None
        condition = _CALENDAR.get(str(data_type))
        if condition is not None:
            column = format_path(each.source)
            limits[f"partition field {each.name}"] = f"{column} IS NULL OR {column} BETWEEN {condition}"
    return limits


_IN_CALENDAR = frozenset({IDENTITY, "day", "hour"})
_CALENDAR: Mapping[str, str] = {
    "date": "DATE'0001-01-01' AND DATE'9999-12-31'",
    "timestamp": "TIMESTAMP'0001-01-01 00:00:00Z' AND TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    "timestamp_ntz": "TIMESTAMP_NTZ'0001-01-01 00:00:00' AND TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
}


def value_limits(fields: Iterable[PartitionField], schema: StructType) -> Mapping[str, str]:
    """Return the conditions of `truncation_limits` and of `calendar_limits`."""
    return {**truncation_limits(fields, schema), **calendar_limits(fields, schema)}


def are_in_calendar(partitions: Iterable[str], metadata: TableMetadata) -> bool:
    """Return whether PyIceberg can commit files with these partition values; see `calendar_limits`."""
    spec, schema = metadata.spec(), metadata.schema()
    try:
        for text in dict.fromkeys(partitions):
            spec.partition_to_path(iceberg_typedef.Record(*decode_partition(text)), schema)
    except OverflowError:
        return False
    return True


# Truncated integers that have overflowed: the partitions that Iceberg for Java gives to the smallest numbers.
#
# A type does not hold the multiple of the width below its smallest values. Java gives these rows a partition at the
# other end of the type, which a filter such as ``x < 0`` would skip. Rows that we write there are refused or
# quarantined; see `widen.iceberg.partitions.truncation_limits`.
#
# Source: Iceberg's table specification, "Truncate Transform Details"


_BITS = {"int": (32,), "long": (32, 64)}
"""The possible former sizes of a column of each type: an integer may have been widened."""


def overflowing_truncation(width: int) -> TruncateTransform[int]:
    """Return a truncation that skips no file with an overflowed partition value."""
    truncation: TruncateTransform[int] = _truncation_class()(width)
    return truncation


@cache
def _truncation_class() -> type[TruncateTransform[int]]:
    class OverflowingTruncation(ice_transforms.TruncateTransform):  # type: ignore[misc, name-defined]
        def project(self, name: str, pred: BoundPredicate) -> BooleanExpression | None:
            projected: BooleanExpression | None = super().project(name, pred)
            sizes = _BITS.get(str(pred.term.ref().field.field_type), ())
            overflowed = [2 ** (bits - 1) - rest for bits in sizes if (rest := -(2 ** (bits - 1)) % self.width)]
            if projected is not None and overflowed:
                projected = ice.Or(projected, ice.In(name, overflowed))
            return projected

    return OverflowingTruncation
