"""Iceberg metadata for a Delta table, made from its log: no data file is opened, written or moved.

The Delta table must have IcebergCompatV1 or V2: its files then have field ids, and its types are Iceberg's. The mirror
has the same ids. One snapshot of it holds one version of the Delta table, whose number is in the snapshot summary.

Source: PROTOCOL.md#iceberg-compatibility-v1, #iceberg-compatibility-v2; Iceberg's table specification, "Manifests"
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import msgspec

from widen.errors import CorruptLog, InvalidOption, MirrorRefused, VersionNotFound
from widen.iceberg.catalog import TableName, translate_catalog_errors
from widen.iceberg.scan_plan import EPOCH, StatisticsColumn, bounds, null_counts, statistics_columns, to_micros
from widen.iceberg.schema_conversion import from_model_type
from widen.iceberg.snapshots import list_snapshot_files
from widen.iceberg.table_commit import NEW_PROPERTIES, IcebergTransaction, ensure_table_writable
from widen.log.commit_outcome import Conflicted, StagedFiles
from widen.log.file_list import to_adds
from widen.log.snapshot import Snapshot, open_snapshot
from widen.log.version_changes import files_only_in
from widen.model.column_path import ELEMENT, KEY, VALUE, Path
from widen.model.lazy_module import import_lazily
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_mapping import COLUMN_ID, nested_ids, physical_name
from widen.protocol.iceberg_compat import COMPATS, enabled_compat
from widen.protocol.partition_values import UnknownValue, parse_partition_value
from widen.schema.source_metadata import COMMENT

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

ice_table = import_lazily("pyiceberg.table")
ice_types = import_lazily("pyiceberg.types")
ice_schema = import_lazily("pyiceberg.schema")
ice_update = import_lazily("pyiceberg.table.update")
ice_manifest = import_lazily("pyiceberg.manifest")
ice_typedef = import_lazily("pyiceberg.typedef")
ice_partitioning = import_lazily("pyiceberg.partitioning")
ice_transforms = import_lazily("pyiceberg.transforms")

MIRROR_OF = "widen.mirror-of"
"""Table property: the id of the Delta table that the table mirrors."""

DELTA_VERSION = "widen.delta-version"
"""Snapshot summary and table property: the version of the Delta table that the mirror shows."""

# Iceberg's reference implementation numbers partition fields from 1000 on.
_FIRST_PARTITION_ID = 1000


@dataclass(frozen=True, slots=True)
class Mirrored:
    """The outcome of mirroring a version.

    Args:
        snapshot_id: The snapshot that shows it; None if the mirror showed it already.
    """

    name: str
    version: int
    snapshot_id: int | None
    added: int
    removed: int


def mirror_version(snapshot: Snapshot, name: TableName) -> Mirrored:
    """Make an Iceberg table show a version of a Delta table, in one commit; the table is created if it is missing."""
    table = name.find()
    if table is not None:
        ensure_table_writable(name, table)
        if _mirrored_version(snapshot, name, table) == snapshot.version:
            return Mirrored(str(name), snapshot.version, None, 0, 0)
    plan = _plan(snapshot)
    if table is None:
        transaction = IcebergTransaction(name, _create(snapshot, name, plan), is_new=True)
        added = [plan.to_data_file(add) for add in to_adds(snapshot.files())]
        removed: list[DataFile] = []
    else:
        added, removed = _difference(snapshot, table, plan)
        transaction = IcebergTransaction(name, _with_schema(name, table, plan.schema))
    shown = {DELTA_VERSION: str(snapshot.version)}
    transaction.set_properties(shown)
    transaction.add_snapshot(added, shown, removed)
    # The data files belong to the Delta table, so a failed commit must not delete any.
    outcome = transaction.commit(StagedFiles())
    if isinstance(outcome, Conflicted):
        outcome.or_raise()
    return Mirrored(str(name), snapshot.version, transaction.snapshot_id, len(added), len(removed))


def ensure_mirrorable(snapshot: Snapshot) -> None:
    """Check that a version of a Delta table can be mirrored."""
    _plan(snapshot)


def _mirrored_version(snapshot: Snapshot, name: TableName, table: Table) -> int:
    properties = table.metadata.properties
    if properties.get(MIRROR_OF) != snapshot.metadata.id:
        expected = "The table exists and is not a mirror of this Delta table. Choose another name."
        raise InvalidOption(option="identifier", value=str(name), expected=expected)
    version = int(properties[DELTA_VERSION])
    if version > snapshot.version:
        expected = f"The mirror shows version {version} already; mirror this version or a newer one."
        raise InvalidOption(option="the version to mirror", value=snapshot.version, expected=expected)
    return version


# ---- what the mirror is like -----------------------------------------------------------------------


@dataclass(frozen=True)
class _MirrorPlan:
    location: str
    schema: Schema
    partition_spec: Any
    partitions: tuple[tuple[str, DataType], ...]
    leaves: tuple[StatisticsColumn, ...]

    def to_data_file(self, add: Add) -> DataFile:
        """Return a file of the log as Iceberg's, with the counts and bounds of its statistics."""
        if add.deletion_vector is not None:
            reason = f"{add.path} has a deletion vector"
            raise MirrorRefused(location=self.location, reason=reason, fix="Purge it with `widen rewrite`.")
        stats: Mapping[str, Any] = _decode(add.stats) if add.stats else {}
        rows = stats.get("numRecords")
        if rows is None:
            reason = f"the log does not say how many rows {add.path} has"
            raise MirrorRefused(location=self.location, reason=reason, fix="Write the file again.")
        nulls, low, high = (stats.get(key) or {} for key in ("nullCount", "minValues", "maxValues"))
        data_file = ice_manifest.DataFile.from_args(
            content=ice_manifest.DataFileContent.DATA,
            file_path=self.path_of(add.path),
            file_format=ice_manifest.FileFormat.PARQUET,
            partition=ice_typedef.Record(*(self._value(add, *each) for each in self.partitions)),
            record_count=rows,
            file_size_in_bytes=add.size,
            value_counts={leaf.number: rows for leaf in self.leaves},
            null_value_counts=dict(null_counts(self.leaves, nulls)),
            lower_bounds=dict(bounds(self.leaves, low, is_upper=False)),
            upper_bounds=dict(bounds(self.leaves, high, is_upper=True)),
        )
        data_file.spec_id = 0
        return data_file  # type: ignore[no-any-return]

    def path_of(self, path: str) -> str:
        """Return the location of a file of the log, as Iceberg spells it."""
        plain = unquote(path)
        return plain if ":/" in path else f"file://{plain}" if plain.startswith("/") else f"{self.location}/{plain}"

    def _value(self, add: Add, name: str, data_type: DataType) -> Any:
        # In the log an empty string stands for null (PROTOCOL.md#partition-value-serialization).
        text = add.partition_values.get(name) or None
        value = text.encode() if text and str(data_type) == "binary" else parse_partition_value(text, data_type)
        if isinstance(value, UnknownValue):
            reason = f"{text!r} is not a value of the partition column {name}"
            raise MirrorRefused(location=self.location, reason=reason, fix="Write the file again.")
        return _to_internal(value)


_decode = msgspec.json.Decoder(float_hook=Decimal).decode


def _plan(snapshot: Snapshot) -> _MirrorPlan:
    """Return the plan of the mirror of a version."""
    compat, location = enabled_compat(snapshot.properties), snapshot.location
    if compat not in COMPATS[:2]:
        fix = "Enable it: set_properties({'delta.enableIcebergCompatV2': 'true'}), and see the documentation."
        reason = "it does not have IcebergCompatV1 or IcebergCompatV2"
        raise MirrorRefused(location=location, reason=reason, fix=fix)
    if any(vector is not None for vector in snapshot.files()["deletion_vector"].to_pylist()):
        fix = "Purge them with `widen rewrite`."
        raise MirrorRefused(location=location, reason="it has deletion vectors", fix=fix)
    mode = snapshot.configuration.mapping
    by_name = {field.name: field for field in snapshot.schema}
    parts = [by_name[name] for name in snapshot.partition_columns]
    spec = ice_partitioning.PartitionSpec(
        *(
            ice_partitioning.PartitionField(
                field.metadata[COLUMN_ID], _FIRST_PARTITION_ID + at, ice_transforms.IdentityTransform(), field.name
            )
            for at, field in enumerate(parts)
        )
    )
    root = location if "://" in location else f"file://{location}"
    schema = ice_schema.Schema(*(_to_field(field) for field in snapshot.schema))
    partitions = tuple((physical_name(field, mode), field.type) for field in parts)
    return _MirrorPlan(root, schema, spec, partitions, tuple(statistics_columns(snapshot.schema, mode)))


def _to_field(field: Field) -> Any:
    data_type = _to_type(field.type, nested_ids(field), (), (field.name,))
    number, doc = field.metadata[COLUMN_ID], field.metadata.get(COMMENT)
    return ice_types.NestedField(number, field.name, data_type, required=not field.nullable, doc=doc)


def _to_type(data_type: DataType, items: Mapping[Path, int], inner: Path, path: Path) -> Any:
    match data_type:
        case StructType(fields):
            return ice_types.StructType(*map(_to_field, fields))
        case ArrayType(element, contains_null):
            below = (*inner, ELEMENT)
            element_type = _to_type(element, items, below, (*path, ELEMENT))
            return ice_types.ListType(items[below], element_type, element_required=not contains_null)
        case MapType(key, value, contains_null):
            keys, values = (*inner, KEY), (*inner, VALUE)
            key_type = _to_type(key, items, keys, (*path, KEY))
            value_type = _to_type(value, items, values, (*path, VALUE))
            return ice_types.MapType(items[keys], key_type, items[values], value_type, value_required=not contains_null)
    return from_model_type(data_type, path)


# ---- transactions ----------------------------------------------------------------------------------


def _to_internal(value: Any) -> Any:
    """Return a partition value as PyIceberg keeps it: dates as days, timestamps as microseconds since 1970."""
    if isinstance(value, datetime):
        return to_micros(value)
    return (value - EPOCH.date()).days if isinstance(value, date) else value


def _create(snapshot: Snapshot, name: TableName, plan: _MirrorPlan) -> Transaction:
    """Return a transaction that creates the mirror with the ids of the Delta table, which PyIceberg would replace."""
    name.create_namespace()
    with translate_catalog_errors(str(name)):
        properties = {**NEW_PROPERTIES, MIRROR_OF: snapshot.metadata.id, DELTA_VERSION: str(snapshot.version)}
        catalog = name.catalog.open()
        staged = catalog.create_table_transaction(name.identifier, plan.schema, properties=properties)._table
        metadata: TableMetadata = staged.metadata.model_copy(
            update={
                "schemas": [plan.schema],
                "current_schema_id": plan.schema.schema_id,
                "last_column_id": plan.schema.highest_field_id,
                "partition_specs": [plan.partition_spec],
                "default_spec_id": plan.partition_spec.spec_id,
                "last_partition_id": plan.partition_spec.last_assigned_field_id,
            }
        )
        parts = (staged._identifier, metadata, staged.metadata_location, staged.io, staged.catalog)
        return ice_table.CreateTableTransaction(ice_table.StagedTable(*parts))  # type: ignore[no-any-return]


def _with_schema(name: TableName, table: Table, schema: Schema) -> Transaction:
    """Return a transaction that replaces the schema if it has changed."""
    with translate_catalog_errors(str(name)):
        transaction = table.transaction()
        current = table.schema()
        if current.as_struct() != schema.as_struct():
            numbered = schema.model_copy(
                update={"schema_id": max(each.schema_id for each in table.metadata.schemas) + 1}
            )
            # Iceberg's REST specification: -1 is the schema that was added last.
            updates = (ice_update.AddSchemaUpdate(schema=numbered), ice_update.SetCurrentSchemaUpdate(schema_id=-1))
            transaction._apply(updates, (ice_update.AssertCurrentSchemaId(current_schema_id=current.schema_id),))
    return transaction


def _difference(snapshot: Snapshot, table: Table, plan: _MirrorPlan) -> tuple[list[DataFile], list[DataFile]]:
    """Return the files that only the version has, and those that only the mirror has.

    The versions are compared by the log. Where that was cleaned up, the mirror itself says which files it has.
    """
    try:
        before = open_snapshot(snapshot.store, int(table.metadata.properties[DELTA_VERSION]))
        added, removed = files_only_in(snapshot, before), files_only_in(before, snapshot)
    except (VersionNotFound, CorruptLog):
        current = {row[0] for row in list_snapshot_files(table.metadata, table.io, table.current_snapshot())}
        live = {plan.path_of(add.path): add for add in to_adds(snapshot.files())}
        scan = table.scan().plan_files()
        removed_files = [task.file for task in scan if task.file.file_path not in live]
        return [plan.to_data_file(add) for path, add in live.items() if path not in current], removed_files
    return [plan.to_data_file(add) for add in added], [plan.to_data_file(add) for add in removed]
