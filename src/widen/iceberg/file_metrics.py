"""The metrics of a data file: counts and bounds by field id, as the tasks that write it send them to the driver.

Source: Iceberg's table specification, "Manifests", "Binary single-value serialization".
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import msgspec

from widen.errors import InvalidOption
from widen.iceberg.partitions import decode_partition
from widen.iceberg.schema_conversion import fixed_lengths
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, children, fields
from widen.model.lazy_module import import_lazily
from widen.model.types import ArrayType, DataType, MapType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import COLUMN_ID, nested_ids
from widen.protocol.file_statistics import is_private, private_columns

if TYPE_CHECKING:
    from pyiceberg import conversions as ice_conversions
    from pyiceberg import manifest as iceberg_manifest
    from pyiceberg import typedef as iceberg_typedef
    from pyiceberg import types as ice_types
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
else:
    iceberg_manifest = import_lazily("pyiceberg.manifest")
    iceberg_typedef = import_lazily("pyiceberg.typedef")
    ice_types = import_lazily("pyiceberg.types")
    ice_conversions = import_lazily("pyiceberg.conversions")


DEFAULT_MODE, COLUMN_MODE = "write.metadata.metrics.default", "write.metadata.metrics.column."
"""Table properties: the metrics of all columns, and of one column by its name."""

MAX_COLUMNS = "write.metadata.metrics.max-inferred-column-defaults"
"""Table property: how many leaf columns get metrics if no property names them."""

COUNTS_ONLY, WHOLE_BOUNDS = 0, -1
"""Modes beside a number of characters: no bounds, and bounds that are not truncated."""

_TRUNCATED, _DEFAULT_COLUMNS = "truncate(16)", "100"
_TRUNCATE = re.compile(r"truncate\(([1-9]\d*)\)")


class ColumnMetrics(msgspec.Struct, frozen=True, array_like=True):
    """The metrics of one leaf column in one file.

    Args:
        low: The lower bound in Iceberg's binary form; None without a bound.
        nans: The number of NaN values; None if the column cannot have any.
    """

    size_bytes: int
    values: int
    nulls: int | None = None
    low: bytes | None = None
    high: bytes | None = None
    nans: int | None = None


class FileMetrics(msgspec.Struct, frozen=True):
    """The metrics of one file."""

    rows: int
    offsets: list[int]
    columns: dict[int, ColumnMetrics]


def metrics_modes(schema: StructType, properties: Mapping[str, str]) -> Mapping[int, int]:
    """Return the metrics of each leaf column by field id: `COUNTS_ONLY`, `WHOLE_BOUNDS` or a number of characters.

    Columns without metrics are missing. Leaves inside lists and maps have no bounds. A bound of a uuid or fixed column
    must be as long as its values, so it is not truncated.

    Source: PyIceberg: ``Table properties``.
    """
    modes: dict[int, int] = {}
    default = properties.get(DEFAULT_MODE, _TRUNCATED)
    fixed = {number for _, field in fields(schema) for _, number, _ in fixed_lengths(field)}
    limit = _parse_limit(properties.get(MAX_COLUMNS, _DEFAULT_COLUMNS)) if DEFAULT_MODE not in properties else None
    private = private_columns(schema, properties)
    for position, (path, number, is_repeated) in enumerate(leaf_ids(schema)):
        name = COLUMN_MODE + ".".join(path)
        inferred = "none" if limit is not None and position >= limit else default
        option = name if name in properties else DEFAULT_MODE
        mode = _parse_mode(option, properties.get(name, inferred))
        if mode is not None:
            whole = WHOLE_BOUNDS if number in fixed and mode != COUNTS_ONLY else mode
            modes[number] = COUNTS_ONLY if is_repeated or is_private(path, private) else whole
    return modes


def _parse_limit(text: str) -> int:
    if not text.isdecimal():
        raise InvalidOption(option=MAX_COLUMNS, value=text, expected="Must be an integer >= 0.")
    return int(text)


def _parse_mode(name: str, text: str) -> int | None:
    named = {"none": None, "counts": COUNTS_ONLY, "full": WHOLE_BOUNDS}
    mode = text.strip().lower()
    if mode in named:
        return named[mode]
    match = _TRUNCATE.fullmatch(mode)
    if match is None:
        raise InvalidOption(option=name, value=text, expected="Must be none, counts, full or truncate(N).")
    return int(match[1])


def leaf_ids(schema: StructType) -> Iterator[tuple[Path, int, bool]]:
    """Yield the path of every leaf, its field id, and whether it is inside a list or a map, in the order of files."""
    return _leaf_ids(schema, (), 0, {}, (), is_repeated=False)


def _leaf_ids(
    data_type: DataType, path: Path, number: int, items: Mapping[Path, int], inner: Path, *, is_repeated: bool
) -> Iterator[tuple[Path, int, bool]]:
    # items: the ids of elements, keys and values in the nearest field; inner: the path from that field.
    match data_type:
        case StructType(fields):
            for field in fields:
                below = (*path, field.name)
                ids = nested_ids(field)
                yield from _leaf_ids(field.type, below, field.metadata[COLUMN_ID], ids, (), is_repeated=is_repeated)
        case ArrayType() | MapType():
            for step, child in children(data_type):
                steps = (*inner, step)
                yield from _leaf_ids(child, (*path, step), items[steps], items, steps, is_repeated=True)
        case _:
            yield path, number, is_repeated


# ---- bounds ---------------------------------------------------------------------------------------

BOOLEAN, INT, LONG, FLOAT, DOUBLE, TEXT, BYTES, DECIMAL = "?", "<i", "<q", "<f", "<d", "text", "bytes", "decimal"
"""The binary forms of single values. Dates are `INT`, timestamps `LONG`; `DECIMAL` is an unscaled integer."""


def encode_value(form: str, value: Any) -> bytes:
    """Return a value in Iceberg's binary form.

    Args:
        value: A boolean, a number, or the bytes of a string in UTF-8.

    Source: Iceberg's table specification, "Binary single-value serialization".

    Example:
        >>> encode_value(LONG, 1).hex(), encode_value(DECIMAL, -129).hex()
        ('0100000000000000', 'ff7f')
    """
    if form in (TEXT, BYTES):
        return bytes(value)
    if form == DECIMAL:
        # The shortest two's complement: -128 fits a byte, 128 does not.
        size = (value + (value < 0)).bit_length() // 8 + 1
        return int(value).to_bytes(size, "big", signed=True)
    return struct.pack(form, value)


def lower_bound(form: str, value: Any, mode: int) -> bytes | None:
    """Return the lower bound of a column; None if the mode is `COUNTS_ONLY`."""
    if mode == COUNTS_ONLY:
        return None
    return _truncate(form, value, mode) if form in (TEXT, BYTES) else encode_value(form, value)


def upper_bound(form: str, value: Any, mode: int) -> bytes | None:
    """Return the upper bound of a column. A truncated one is rounded up; None if that is not possible."""
    if mode == COUNTS_ONLY:
        return None
    if form not in (TEXT, BYTES):
        return encode_value(form, value)
    head = _truncate(form, value, mode)
    if len(head) == len(value):
        return head
    return _next_text(head.decode()) if form == TEXT else _next_bytes(head)


def _truncate(form: str, value: bytes, mode: int) -> bytes:
    if mode == WHOLE_BOUNDS:
        return value
    return value.decode()[:mode].encode() if form == TEXT else value[:mode]


def _next_text(head: str) -> bytes | None:
    """Return a string that is greater than every string with this beginning, as short as possible."""
    for end in range(len(head), 0, -1):
        last = ord(head[end - 1]) + 1
        last = 0xE000 if last == 0xD800 else last  # surrogates are not characters
        if last <= 0x10FFFF:
            return (head[: end - 1] + chr(last)).encode()
    return None


def _next_bytes(head: bytes) -> bytes | None:
    stripped = head.rstrip(b"\xff")
    return stripped[:-1] + bytes([stripped[-1] + 1]) if stripped else None


# Data files that tasks have written, as PyIceberg commits them; no file is opened again.
#
# Source: Iceberg's table specification, "Manifests".


_DATA_PATH = "write.data.path"


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A data file that is written but not committed.

    Args:
        stats: Its metrics, as `widen.iceberg.file_metrics.FileMetrics` in JSON.
        partition: Its partition values; see `widen.iceberg.partitions.encode_partition`.
    """

    path: str
    size: int
    stats: str
    partition: str = ""
    is_sorted: bool = False

    @property
    def metrics(self) -> FileMetrics:
        """The counts and bounds of its columns."""
        return _decode_metrics(self.stats)


_decode_metrics = msgspec.json.Decoder(FileMetrics).decode


def data_location(metadata: TableMetadata) -> str:
    """Return the location of new data files."""
    return str(metadata.properties.get(_DATA_PATH) or f"{metadata.location.rstrip('/')}/data").rstrip("/")


def to_data_file(file: IcebergFile, metadata: TableMetadata) -> iceberg_manifest.DataFile:
    """Return a written file as PyIceberg's, with its counts and bounds; the file is not opened."""
    metrics = file.metrics
    columns = metrics.columns
    arguments: dict[str, Any] = {
        "content": iceberg_manifest.DataFileContent.DATA,
        "file_path": f"{data_location(metadata)}/{file.path}",
        "file_format": iceberg_manifest.FileFormat.PARQUET,
        "partition": iceberg_typedef.Record(*decode_partition(file.partition)),
        "record_count": metrics.rows,
        "file_size_in_bytes": file.size,
        "column_sizes": {number: each.size_bytes for number, each in columns.items()},
        "value_counts": {number: each.values for number, each in columns.items()},
        "null_value_counts": {number: each.nulls for number, each in columns.items() if each.nulls is not None},
        "nan_value_counts": {number: each.nans for number, each in columns.items() if each.nans is not None},
        "lower_bounds": {number: each.low for number, each in columns.items() if each.low is not None},
        "upper_bounds": {number: each.high for number, each in columns.items() if each.high is not None},
        "key_metadata": None,
        "split_offsets": metrics.offsets,
        "equality_ids": None,
        "sort_order_id": metadata.default_sort_order_id if file.is_sorted else None,
    }
    data_file = iceberg_manifest.DataFile.from_args(**arguments)
    data_file.spec_id = metadata.default_spec_id
    return data_file


# The ids of leaf columns, and their bounds in manifests as Python values.
#
# Source: Iceberg's table specification, "Binary single-value serialization"


_NARROW_BYTES = 4
"""The length of bounds that were written before the column became a long or a double."""


@dataclass(frozen=True, slots=True)
class ColumnIds:
    """A leaf column as manifests know it."""

    number: int
    type: Any


def column_ids(schema: Schema) -> Mapping[Path, ColumnIds]:
    """Return the leaf columns of a schema by their paths in the model."""
    return dict(_below((), schema.as_struct(), -1))


def _below(path: Path, data_type: Any, number: int) -> Iterator[tuple[Path, ColumnIds]]:
    match data_type:
        case ice_types.StructType(fields=fields):
            for each in fields:
                yield from _below((*path, each.name), each.field_type, each.field_id)
        case ice_types.ListType():
            yield from _below((*path, ELEMENT), data_type.element_type, data_type.element_id)
        case ice_types.MapType():
            yield from _below((*path, KEY), data_type.key_type, data_type.key_id)
            yield from _below((*path, VALUE), data_type.value_type, data_type.value_id)
        case _:
            yield path, ColumnIds(number, data_type)


def read_bound(column: ColumnIds, bound: bytes | None) -> Any:
    """Return a bound as a Python value; None if it has no simple value, or does not exist.

    Example:
        >>> from pyiceberg.types import LongType
        >>> read_bound(ColumnIds(1, LongType()), bytes([7, 0, 0, 0]))
        7
    """
    if bound is None:
        return None
    data_type = column.type
    if len(bound) == _NARROW_BYTES:
        narrow = {ice_types.LongType(): ice_types.IntegerType(), ice_types.DoubleType(): ice_types.FloatType()}
        data_type = narrow.get(data_type, data_type)
    try:
        value: Any = ice_conversions.from_bytes(data_type, bound)
    except (ValueError, UnicodeDecodeError):  # a truncated string may end within a character
        return None
    match data_type:
        case ice_types.DateType():
            return date.fromordinal(date(1970, 1, 1).toordinal() + value)
        case ice_types.TimestampType() | ice_types.TimestamptzType():
            return _to_datetime(value, has_zone=isinstance(data_type, ice_types.TimestamptzType))
        case ice_types.BinaryType() | ice_types.FixedType() | ice_types.UUIDType():
            return None
    return value


def _to_datetime(micros: int, *, has_zone: bool) -> datetime | None:
    try:
        moment = datetime.fromtimestamp(micros // 1_000_000, timezone.utc).replace(microsecond=micros % 1_000_000)
    except (ValueError, OverflowError):
        return None
    return moment if has_zone else moment.replace(tzinfo=None)
