"""The traits of an Iceberg table that matter to other readers, from its metadata and manifests.

Source: docs/guide/readers.md
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from widen.evolution.plan import PlannedReader
from widen.iceberg.file_metrics import column_ids
from widen.iceberg.metadata_files import read_manifests
from widen.iceberg.scan_plan import DeleteKind, delete_kind
from widen.iceberg.schema_conversion import to_readable
from widen.model.column_path import Path, leaves
from widen.model.types import DOUBLE, FLOAT, DataType, StructType
from widen.protocol.type_widening import TypeChange
from widen.report.delta_traits import FEW_FILES, type_change_trait
from widen.report.reader_predictions import Trait, TraitChange, made_wrong, new_column_traits

if TYPE_CHECKING:
    from widen.iceberg.catalog import FileIO, Table
    from widen.iceberg.snapshots import DataFile, Schema, Snapshot, TableMetadata

_FORMAT_2 = 2
_DELETES = {
    DeleteKind.POSITIONS: "position-deletes",
    DeleteKind.VECTORS: "deletion-vectors",
    DeleteKind.EQUALITY: "equality-deletes",
}


def iceberg_traits(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> list[Trait]:
    """Return the traits of a snapshot of an Iceberg table."""
    schema = metadata.schema()
    found = [Trait("format-version-3")] if metadata.format_version > _FORMAT_2 else []
    found += [Trait("default-value", (field.name,)) for field in schema.fields if field.initial_default is not None]
    found += [*_promotions(metadata), *_reused_names(metadata)]
    return found if snapshot is None else [*found, *_manifest_traits(metadata, io, snapshot)]


def planned_iceberg_traits(
    table: Table | None, snapshot: Snapshot | None, schema: StructType | None, format_version: int
) -> TraitChange:
    """Return the traits of an Iceberg table before and after a plan.

    Args:
        table: The table; None for a new one.
        snapshot: The newest snapshot of the branch; None without snapshots.
        schema: The schema after the plan; None if it changes nothing.
        format_version: The format version of a new table; 0 for the default.
    """
    if table is None:
        new = [Trait("format-version-3")] if format_version > _FORMAT_2 else []
        return TraitChange("iceberg", None, [*new, *(new_column_traits(schema, None) if schema else ())])
    before = iceberg_traits(table.metadata, table.io, snapshot)
    if schema is None:
        return TraitChange("iceberg", before, before)
    old = to_readable(table.schema())
    after = dict.fromkeys([*before, *_promoted(old, schema), *new_column_traits(schema, old)])
    return TraitChange("iceberg", before, list(after))


def iceberg_readers_made_wrong(table: Table, schema: StructType) -> tuple[PlannedReader, ...]:
    """Return the readers that return something wrong once a table has other columns, by the columns alone."""
    promoted = [] if table.metadata.current_snapshot() is None else list(_promoted(to_readable(table.schema()), schema))
    before = list(_promotions(table.metadata)) if promoted else []
    return made_wrong(TraitChange("iceberg", before, [*before, *promoted]))


def _promoted(old: StructType, schema: StructType) -> Iterator[Trait]:
    """Yield the columns that get another type."""
    types = dict(leaves(old))
    for path, leaf in leaves(schema):
        if types.get(path, leaf) != leaf:
            yield Trait(type_change_trait(TypeChange((), types[path], leaf)), path)


def _promotions(metadata: TableMetadata) -> Iterator[Trait]:
    """Yield the columns that had another type in an older schema."""
    current = metadata.schema()
    now = {number: (path, leaf) for path, number, leaf in _typed_ids(current)}
    seen = set()
    for schema in metadata.schemas:
        for _, number, old in _typed_ids(schema):
            path, new = now.get(number, ((), old))  # dropped meanwhile
            if old != new and (number, old) not in seen:
                seen.add((number, old))
                yield Trait(type_change_trait(TypeChange((), old, new)), path)


def _reused_names(metadata: TableMetadata) -> Iterator[Trait]:
    """Yield the columns whose names other columns had."""
    current = metadata.schema()
    ids = {field.field_id for field in current.fields}
    for field in current.fields:
        before = {old.field_id for schema in metadata.schemas for old in schema.fields if old.name == field.name}
        if others := before - {field.field_id}:
            yield Trait("name-swapped" if others & ids else "name-readded", (field.name,))


def _typed_ids(schema: Schema) -> Iterator[tuple[Path, int, DataType]]:
    types = dict(leaves(to_readable(schema)))
    for path, column in column_ids(schema).items():
        if path in types:
            yield path, column.number, types[path]


def _manifest_traits(metadata: TableMetadata, io: FileIO, snapshot: Snapshot) -> Iterator[Trait]:
    manifests = read_manifests(metadata, io, snapshot)
    if len({manifest.partition_spec_id for manifest in manifests}) > 1:
        yield Trait("partitioning-changed")
    deletes = [entry for each in manifests if not each.is_data for entry in each.fetch_manifest_entry()]
    yield from map(Trait, sorted({_DELETES[delete_kind(entry.data_file)] for entry in deletes}))
    data = [manifest for manifest in manifests if manifest.is_data]
    floats = {number: path for path, number, leaf in _typed_ids(metadata.schema()) if leaf in (FLOAT, DOUBLE)}
    nested = {number: path for path, number, _ in _typed_ids(metadata.schema()) if len(path) > 1}
    is_timed = any(str(field.transform) in _TIMES for spec in metadata.partition_specs for field in spec.fields)
    if len(data) > FEW_FILES:
        yield from (Trait("nan-beside", path, is_certain=False) for path in floats.values())
        return
    if not floats and not nested and not is_timed:
        return
    files = [entry.data_file for each in data for entry in each.fetch_manifest_entry()]
    yield from _value_traits(files, floats, nested)
    if any(_is_before_1970(metadata, file) for file in files):
        yield Trait("partition-before-1970")


_TIMES = ("year", "month", "day", "hour")


def _is_before_1970(metadata: TableMetadata, file: DataFile) -> bool:
    fields = metadata.specs()[file.spec_id].fields
    return any(
        str(field.transform) in _TIMES and file.partition[at] is not None and file.partition[at] < 0
        for at, field in enumerate(fields)
    )


def _value_traits(files: list[DataFile], floats: Mapping[int, Path], nested: Mapping[int, Path]) -> Iterator[Trait]:
    for number, path in floats.items():
        mine = [file for file in files if (file.nan_value_counts or {}).get(number)]
        if mine:
            has_numbers = any(number in (file.lower_bounds or {}) or _has_more(file, number) for file in mine)
            yield Trait("nan-beside" if has_numbers else "nan", path)
    tops = {path[:1] for number, path in nested.items() if any(_may_be_null(file, number) for file in files)}
    yield from (Trait("nested-null", top) for top in sorted(tops))


def _has_more(file: DataFile, number: int) -> bool:
    """Return whether a column has other values than null and NaN in a file."""
    values, nulls, nan = (
        (counts or {}).get(number, 0) for counts in (file.value_counts, file.null_value_counts, file.nan_value_counts)
    )
    return bool(values > nulls + nan)


def _may_be_null(file: DataFile, number: int) -> bool:
    return (file.null_value_counts or {}).get(number, 1) > 0
