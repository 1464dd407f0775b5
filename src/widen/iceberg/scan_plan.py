"""The files of a snapshot that a scan reads, and the delete files that apply to them; read from its manifests.

PyIceberg evaluates the row filter on manifests and data files. This module decides which delete files apply to a data
file, because PyIceberg refuses equality deletes and does not read the data file of a deletion vector.

Source: Iceberg's table specification, "Scan Planning"
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from datetime import date, datetime, timedelta, timezone
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING, Any

from widen.errors import UnsupportedFeatureForRead
from widen.iceberg.file_metrics import DECIMAL, encode_value, leaf_ids
from widen.iceberg.metadata_files import read_manifests, translate_file_errors
from widen.iceberg.partitions import is_unpartitioned, overflowing_truncation, rounded_sources
from widen.model.column_path import Path, leaves
from widen.model.lazy_module import import_lazily
from widen.model.types import DataType, DecimalType, StructType, plain_name
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import to_physical_path
from widen.protocol.data_skipping import (
    NEGATED,
    And,
    Compare,
    ConstantPredicate,
    ConstantUnlessNull,
    IsNull,
    Not,
    Or,
    Predicate,
    UnknownPredicate,
)
from widen.protocol.file_statistics import value_at
from widen.protocol.partition_values import Scalar, is_float32, parse_timestamp

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile, ManifestEntry
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from widen.iceberg.snapshots import ReadPoint

ice_manifest = import_lazily("pyiceberg.manifest")
ice_table = import_lazily("pyiceberg.table")
ice_transforms = import_lazily("pyiceberg.transforms")
ice = import_lazily("pyiceberg.expressions")
literals = import_lazily("pyiceberg.expressions.literals")


class DeleteKind(str, Enum):
    """How a delete file says which rows are deleted."""

    POSITIONS = "positions"
    VECTORS = "vectors"
    EQUALITY = "equality"


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A data file.

    Args:
        path: Its location, as the manifest has it.
        rows: The number of its rows, deleted ones included.
        partition: A text that is equal for all files of one partition and one spec.
        values: The values of identity partition fields by the id of their source column.
    """

    path: str
    size_bytes: int
    rows: int
    sequence: int
    partition: str
    values: tuple[tuple[int, Any], ...]


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A delete file.

    Args:
        partition: The partition that it applies to, as for `ScannedFile`; None for every partition.
        rows: The number of its rows, or of the rows that its vectors delete.
        data_file: The only data file that it applies to, if the manifest says so.
    """

    kind: DeleteKind
    path: str
    size_bytes: int
    sequence: int
    partition: str | None
    rows: int
    equality_ids: tuple[int, ...] = ()
    data_file: str | None = None

    def applies_to(self, file: ScannedFile) -> bool:
        """Return whether it may delete rows of a data file.

        Source: Iceberg's table specification, "Scan Planning"
        """
        is_newer = self.sequence > file.sequence if self.kind is DeleteKind.EQUALITY else self.sequence >= file.sequence
        is_same_partition = self.partition is None or self.partition == file.partition
        return is_newer and is_same_partition and self.data_file in (None, file.path)


@dataclass(frozen=True, slots=True)
class IcebergScan:
    """The files that a scan reads."""

    files: tuple[ScannedFile, ...]
    deletes: tuple[DeleteFile, ...]


def plan_scan(point: ReadPoint, io: FileIO, predicate: Predicate | None = None) -> IcebergScan:
    """Return the files of a snapshot that may have rows that fulfil a condition; no files without a snapshot."""
    metadata, snapshot = point.metadata, point.snapshot
    if snapshot is None:
        return IcebergScan((), ())
    row_filter = to_row_filter(predicate or UnknownPredicate(), point.schema)
    manifests = read_manifests(metadata, io, snapshot)
    planner = ice_table.ManifestGroupPlanner(_with_safe_partitions(metadata), io, row_filter)
    with translate_file_errors(snapshot.manifest_list):  # bounds that cannot be compared
        entries = chain.from_iterable(planner.plan_manifest_entries([each for each in manifests if each.is_data]))
        files = tuple(_to_scanned_file(metadata, entry) for entry in entries)
    deletes = (
        _delete_file(metadata, entry)
        for manifest in manifests
        if not manifest.is_data
        for entry in manifest.fetch_manifest_entry()
    )
    return IcebergScan(files, tuple(find_applying(files, deletes)))


def _with_safe_partitions(metadata: TableMetadata) -> TableMetadata:
    """Return metadata that skips no file because of a partition value that was rounded or has overflowed."""
    rounded = rounded_sources(metadata)
    specs = [
        spec.model_copy(update={"fields": tuple(_with_safe_transform(field, rounded) for field in spec.fields)})
        for spec in metadata.partition_specs
    ]
    return metadata.model_copy(update={"partition_specs": specs})


def _with_safe_transform(field: PartitionField, rounded: frozenset[int]) -> PartitionField:
    transform = field.transform
    if field.source_id in rounded:
        transform = ice_transforms.VoidTransform()
    elif isinstance(transform, ice_transforms.TruncateTransform):
        transform = overflowing_truncation(transform.width)
    return field.model_copy(update={"transform": transform})


def added_by(metadata: TableMetadata, io: FileIO, snapshot: Snapshot) -> tuple[ScannedFile, ...]:
    """Return the data files that a snapshot added."""
    return tuple(
        _to_scanned_file(metadata, entry)
        for manifest in read_manifests(metadata, io, snapshot)
        if manifest.added_snapshot_id == snapshot.snapshot_id and manifest.is_data
        for entry in manifest.fetch_manifest_entry()
        if entry.snapshot_id == snapshot.snapshot_id
    )


def _to_scanned_file(metadata: TableMetadata, entry: ManifestEntry) -> ScannedFile:
    file = entry.data_file
    _ensure_parquet(metadata, file, (ice_manifest.FileFormat.PARQUET,))
    fields = metadata.specs()[file.spec_id].fields
    values = tuple(
        (field.source_id, file.partition[at])
        for at, field in enumerate(fields)
        if isinstance(field.transform, ice_transforms.IdentityTransform)
    )
    sequence = entry.sequence_number or 0
    return ScannedFile(
        file.file_path, file.file_size_in_bytes, file.record_count, sequence, _partition(metadata, file), values
    )


def _partition(metadata: TableMetadata, file: DataFile) -> str:
    values = [file.partition[at] for at in range(len(metadata.specs()[file.spec_id].fields))]
    return f"{file.spec_id}:{values!r}"


def _delete_file(metadata: TableMetadata, entry: ManifestEntry) -> DeleteFile:
    file = entry.data_file
    _ensure_parquet(metadata, file, (ice_manifest.FileFormat.PARQUET, ice_manifest.FileFormat.PUFFIN))
    kind = delete_kind(file)
    is_global = kind is DeleteKind.EQUALITY and is_unpartitioned(metadata.specs()[file.spec_id])
    return DeleteFile(
        kind=kind,
        path=file.file_path,
        size_bytes=file.file_size_in_bytes,
        sequence=entry.sequence_number or 0,
        partition=None if is_global else _partition(metadata, file),
        rows=file.record_count,
        equality_ids=tuple(sorted(file.equality_ids or ())),
        data_file=_only_data_file(file) if kind is not DeleteKind.EQUALITY else None,
    )


def delete_kind(file: DataFile) -> DeleteKind:
    """Return the kind of a delete file."""
    if file.content == ice_manifest.DataFileContent.EQUALITY_DELETES:
        return DeleteKind.EQUALITY
    return DeleteKind.VECTORS if file.file_format == ice_manifest.FileFormat.PUFFIN else DeleteKind.POSITIONS


_PATH_ID = 2147483546
"""The reserved id of the column ``file_path`` of position deletes."""


def _only_data_file(file: DataFile) -> str | None:
    """Return the data file that both bounds of the paths name; bounds that may be cut off differ."""
    low, high = ((bounds or {}).get(_PATH_ID) for bounds in (file.lower_bounds, file.upper_bounds))
    return low.decode(errors="replace") if low is not None and low == high else None


def _ensure_parquet(metadata: TableMetadata, file: DataFile, supported: tuple[Any, ...]) -> None:
    if file.file_format not in supported:
        features = f"files in the format {str(file.file_format.value).lower()}, e.g. {file.file_path}"
        raise UnsupportedFeatureForRead(verb="read", location=metadata.location, features=features)


@dataclass(frozen=True, slots=True)
class ReplacedDeletes:
    """Manifests of delete files that apply to no file any more, and what is in them.

    Args:
        counts: The entries of a snapshot summary that count what is removed with them.
    """

    manifests: frozenset[str] = frozenset()
    counts: Mapping[str, str] = field(default_factory=dict)
    size_bytes: int = 0


def find_replaced_deletes(
    metadata: TableMetadata, io: FileIO, snapshot: Snapshot, removed: Collection[str]
) -> ReplacedDeletes:
    """Return the manifests of delete files that apply to no data file of a snapshot without some of its files.

    Files that are added later are newer than all these deletes, so the deletes do not apply to them.

    Source: Iceberg's table specification, "Scan Planning"
    """
    manifests = read_manifests(metadata, io, snapshot)
    deletes = {each.manifest_path: each.fetch_manifest_entry() for each in manifests if not each.is_data}
    if not deletes:
        return ReplacedDeletes()
    entries = chain.from_iterable(each.fetch_manifest_entry() for each in manifests if each.is_data)
    files = tuple(_to_scanned_file(metadata, each) for each in entries if each.data_file.file_path not in removed)
    dead = {
        path: listed
        for path, listed in deletes.items()
        if next(find_applying(files, (_delete_file(metadata, each) for each in listed)), None) is None
    }
    counts, size_bytes = Counter[str](), 0
    for each in chain.from_iterable(dead.values()):
        size_bytes += each.data_file.file_size_in_bytes
        kind = "equality" if delete_kind(each.data_file) is DeleteKind.EQUALITY else "position"
        counts["removed-delete-files"] += 1
        counts[f"removed-{kind}-delete-files"] += 1
        counts[f"removed-{kind}-deletes"] += each.data_file.record_count
    return ReplacedDeletes(frozenset(dead), {name: str(count) for name, count in counts.items()}, size_bytes)


def find_applying(files: tuple[ScannedFile, ...], deletes: Iterable[DeleteFile]) -> Iterator[DeleteFile]:
    """Yield the delete files that apply to a file; each is compared only with the oldest file of its partition."""
    oldest: dict[str, ScannedFile] = {}
    by_path = {file.path: file for file in files}
    for file in files:
        if file.partition not in oldest or file.sequence < oldest[file.partition].sequence:
            oldest[file.partition] = file
    for delete in deletes:
        candidates = [by_path.get(delete.data_file)] if delete.data_file else oldest.values()
        if delete.partition is not None and not delete.data_file:
            candidates = [oldest.get(delete.partition)]
        if any(file is not None and delete.applies_to(file) for file in candidates):
            yield delete


# Statistics of files in the log of a Delta table, as counts and bounds of Iceberg.
#
# Source: PROTOCOL.md#per-file-statistics; Iceberg's table specification, "Binary single-value serialization"


@dataclass(frozen=True)
class StatisticsColumn:
    """A column with statistics.

    Args:
        path: Its path in the statistics, in physical names.
        encode: Returns a bound in Iceberg's binary form, given the value in the log, which was decoded with decimals
            for fractions, and whether it is the upper one; None if there are no bounds of this type.
    """

    number: int
    path: Path
    encode: Callable[[Any, bool], bytes | None] | None


def statistics_columns(schema: StructType, mode: str) -> Iterator[StatisticsColumn]:
    """Yield the columns that can have statistics: leaves outside of arrays and maps."""
    for (path, data_type), (_, number, is_repeated) in zip(leaves(schema), leaf_ids(schema), strict=True):
        if not is_repeated:
            name = str(data_type)
            encode = _decimal_encoder(data_type) if isinstance(data_type, DecimalType) else _ENCODERS.get(name)
            yield StatisticsColumn(number, to_physical_path(schema, path, mode), encode)


def null_counts(columns: Iterable[StatisticsColumn], nulls: Any) -> Iterator[tuple[int, int]]:
    """Yield the number of nulls of each column by field id, where the log has it."""
    for leaf in columns:
        count = value_at(nulls, leaf.path)
        if isinstance(count, int):
            yield leaf.number, count


def bounds(columns: Iterable[StatisticsColumn], values: Any, *, is_upper: bool) -> Iterator[tuple[int, bytes]]:
    """Yield the bounds of each column by field id in Iceberg's binary form, where the log has them."""
    for leaf in columns:
        value = None if leaf.encode is None else value_at(values, leaf.path)
        bound = leaf.encode(value, is_upper) if value is not None and leaf.encode is not None else None
        if bound is not None:
            yield leaf.number, bound


def _number_encoder(form: str) -> Callable[[Any, bool], bytes | None]:
    def encode(value: Any, is_upper: bool) -> bytes | None:
        return struct.pack(form, value) if isinstance(value, int) else None

    return encode


def _encode_double(value: Any, is_upper: bool) -> bytes | None:
    return struct.pack("<d", float(value)) if isinstance(value, (int, Decimal)) else None


def _encode_float(value: Any, is_upper: bool) -> bytes | None:
    """Return a bound only where it is exactly a float, for the text in the log may be rounded."""
    if not isinstance(value, (int, Decimal)) or not -3e38 < float(value) < 3e38:
        return None
    data = struct.pack("<f", float(value))
    return data if struct.unpack("<f", data)[0] == float(value) else None


def _encode_date(value: Any, is_upper: bool) -> bytes | None:
    try:
        return struct.pack("<i", (date.fromisoformat(value) - EPOCH.date()).days)
    except (ValueError, TypeError):
        return None


def _encode_time(value: Any, is_upper: bool) -> bytes | None:
    """Return a bound in microseconds. Delta cuts off what is below a millisecond, so the upper one is rounded up.

    Source: PROTOCOL.md#per-file-statistics
    """
    moment = parse_timestamp(value) if isinstance(value, str) else None
    return None if moment is None else struct.pack("<q", to_micros(moment) + (999 if is_upper else 0))


def _encode_text(value: Any, is_upper: bool) -> bytes | None:
    return value.encode() if isinstance(value, str) else None


def _decimal_encoder(data_type: DecimalType) -> Callable[[Any, bool], bytes | None]:
    def encode(value: Any, is_upper: bool) -> bytes | None:
        if not isinstance(value, (int, Decimal)):
            return None
        rounding = ROUND_CEILING if is_upper else ROUND_FLOOR
        unscaled = Decimal(value).scaleb(data_type.scale).to_integral_value(rounding)
        return encode_value(DECIMAL, int(unscaled))

    return encode


_ENCODERS: Mapping[str, Callable[[Any, bool], bytes | None]] = {
    **dict.fromkeys(("byte", "short", "integer"), _number_encoder("<i")),
    "long": _number_encoder("<q"),
    "float": _encode_float,
    "double": _encode_double,
    "string": _encode_text,
    "date": _encode_date,
    "timestamp": _encode_time,
    "timestamp_ntz": _encode_time,
}
"""For each type, how a bound in the log becomes Iceberg's; None if it is not a bound."""

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def to_micros(moment: datetime) -> int:
    """Return a time in microseconds since 1970; UTC is the default zone."""
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - EPOCH) // timedelta(microseconds=1)


# Predicates as PyIceberg's row filters, which skip manifests and data files; a filter never skips a matching row.
#
# Iceberg's bounds leave NaN out, PyIceberg rounds a double to the type of a float column, and its names are paths
# with dots. Where its answer could differ from Spark's, the filter lets everything through.
#
# Source: Iceberg's table specification, "Scan Planning"; Spark's NaN semantics


def to_row_filter(predicate: Predicate, schema: Schema) -> BooleanExpression:
    """Return a filter that keeps every row that matches a predicate."""
    return _weaken(predicate, schema, truth=True) or ice.AlwaysTrue()


def _weaken(predicate: Predicate, schema: Schema, *, truth: bool) -> BooleanExpression | None:
    """Return a filter for all rows that make a predicate ``truth``; None if every row could."""
    match predicate:
        case Not(inner):
            return _weaken(inner, schema, truth=not truth)
        case And(left, right) | Or(left, right):
            parts = [_weaken(part, schema, truth=truth) for part in (left, right)]
            filters = [part for part in parts if part is not None]
            if isinstance(predicate, And) == truth:
                return ice.And(*filters) if len(filters) == len(parts) else next(iter(filters), None)
            return ice.Or(*filters) if len(filters) == len(parts) else None
        case IsNull(path, _):
            name = _name(path, schema)
            # A required field of a null struct is null, but PyIceberg takes every required field for not null.
            is_unsure = name is not None and truth and len(path) > 1 and schema.find_field(name).required
            return None if name is None or is_unsure else ice.IsNull(name) if truth else ice.NotNull(name)
        case ConstantPredicate(result):
            return None if result is truth else ice.AlwaysFalse()
        case ConstantUnlessNull(path, data_type, result):
            return _weaken(IsNull(path, data_type), schema, truth=False) if result is truth else ice.AlwaysFalse()
        case Compare(path, data_type, operator, value):
            name, literal = _name(path, schema), _to_literal(value, data_type)
            return None if name is None or literal is None else _compare(name, data_type, operator, literal, truth)
    return None


def _compare(name: str, data_type: DataType, operator: str, literal: Any, truth: bool) -> Any:
    operator = operator if truth else NEGATED[operator]
    if str(data_type) == "boolean" and operator != "=":
        return None
    compared = getattr(ice, _OPERATORS[operator])(name, literal)
    if str(data_type) in ("float", "double") and operator in (">", ">="):  # Spark: NaN is greater than every number
        return ice.Or(compared, ice.IsNaN(name))
    return compared


def _name(path: Path, schema: Schema) -> str | None:
    """Return the name of a leaf for PyIceberg; None if a dot in a name makes it ambiguous."""
    name = ".".join(path)
    return name if not any("." in part for part in path) and name in schema.column_names else None


def _to_literal(value: Scalar, data_type: DataType) -> Any:
    make = _LITERALS.get(plain_name(data_type))
    return make(value, data_type) if make is not None else None


def _double(value: Scalar, data_type: DataType) -> Any:
    if not isinstance(value, float) or value != value:
        return None
    if str(data_type) == "double":
        return literals.DoubleLiteral(value)
    # PyIceberg takes a double that is infinite for one beyond the infinity of floats.
    return literals.FloatLiteral(value) if is_float32(value) else None


def _date(value: Scalar, _: DataType) -> Any:
    # PyIceberg looks for the partition of the day before or after, and Python has no date for it here.
    if type(value) is not date or value in (date.min, date.max):
        return None
    return literals.DateLiteral((value - EPOCH.date()).days)


def _timestamp(value: Scalar, _: DataType) -> Any:
    micros = to_micros(value) if isinstance(value, datetime) else None
    return literals.TimestampLiteral(micros) if micros is not None and _FIRST < micros < _LAST else None


_FIRST, _LAST = to_micros(datetime.min), to_micros(datetime.max)

_LITERALS: Mapping[str, Callable[[Scalar, DataType], Any]] = {
    "boolean": lambda value, _: literals.BooleanLiteral(value),
    "integer": lambda value, _: literals.LongLiteral(value),
    "long": lambda value, _: literals.LongLiteral(value),
    "float": _double,
    "double": _double,
    "decimal": lambda value, _: literals.DecimalLiteral(value),
    "string": lambda value, _: literals.StringLiteral(value),
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
}
"""For each type, how a constant becomes a literal; None if PyIceberg could compare it in another way than Spark."""

_OPERATORS: Mapping[str, str] = {
    "=": "EqualTo",
    "<>": "NotEqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}
"""The class of PyIceberg for each operator."""
