"""Iceberg compatibility: the rules of a table whose files Iceberg can read.

Where a compatibility is *enabled*, the table must satisfy every rule. Type changes that Iceberg does not support are
also refused where the compatibility is only *supported*, or where UniForm is on.

Source: PROTOCOL.md#iceberg-compatibility-v1, #iceberg-compatibility-v2; Delta Spark for V3 and the errors
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from widen.errors import IcebergIncompatible
from widen.model.column_path import fields, format_path, leaves
from widen.model.types import VOID, ArrayType, DataType, DecimalType, MapType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Metadata
from widen.protocol.column_mapping import ID, MODE, NAME, NONE, nested_ids, nested_steps
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import MATERIALIZED_PARTITIONS
from widen.protocol.table_properties import UNIFORM_FORMATS, WRITE_PARTITIONS, is_on
from widen.protocol.type_widening import all_type_changes, is_iceberg_compatible, is_widening


@dataclass(frozen=True, slots=True)
class IcebergCompat:
    """One version of Iceberg compatibility.

    Args:
        switch: The property that enables it.
        has_nested_ids: Whether elements, keys and values have their own ids.
    """

    version: int
    feature: str
    switch: str
    has_nested_ids: bool


COMPATS = (
    IcebergCompat(1, "icebergCompatV1", "delta.enableIcebergCompatV1", has_nested_ids=False),
    IcebergCompat(2, "icebergCompatV2", "delta.enableIcebergCompatV2", has_nested_ids=True),
    IcebergCompat(3, "icebergCompatV3", "delta.enableIcebergCompatV3", has_nested_ids=True),
)

V2_TYPES = frozenset(
    ["byte", "short", "integer", "long", "float", "double", "decimal", "string", "binary", "boolean"]
    + ["timestamp", "timestamp_ntz", "date"]
)
"""The leaf types that V2 allows, also inside arrays, maps and structs."""


def enabled_compat(properties: Mapping[str, str]) -> IcebergCompat | None:
    """Return the compatibility that the properties enable, or None; the lowest one if there are several."""
    return next((compat for compat in COMPATS if is_on(properties, compat.switch)), None)


def stores_partition_columns(table: TableConfiguration) -> bool:
    """Return whether new files of a table also contain its partition columns, after the others.

    Readers take the values of the log, regardless of the files. Without the property there is no requirement: Delta
    Spark stores them then, we do not.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1;
        protocol_rfcs/materialize-partition-columns.md#materialize-partition-columns
    """
    is_required = enabled_compat(table.properties) is not None or table.supports(MATERIALIZED_PARTITIONS)
    return bool(table.partition_columns) and (is_required or is_on(table.properties, WRITE_PARTITIONS))


def type_change_compat(table: TableConfiguration) -> IcebergCompat | None:
    """Return the compatibility that limits type changes to Iceberg's, or None.

    The strictest of three conditions applies: the protocol checks whether the feature is supported, Delta Spark whether
    it is enabled and, for automatic changes, whether UniForm is on.

    Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Spark
    """
    for compat in COMPATS:
        if table.supports(compat.feature) or is_on(table.properties, compat.switch):
            return compat
    formats = [name.strip().lower() for name in table.properties.get(UNIFORM_FORMATS, "").split(",")]
    return COMPATS[1] if "iceberg" in formats else None


def has_nested_ids(properties: Mapping[str, str]) -> bool:
    """Return whether the elements, keys and values of a table must have ids."""
    compat = enabled_compat(properties)
    return compat is not None and compat.has_nested_ids


def ensure_compatible(table: TableConfiguration) -> None:
    """Check that a table satisfies the rules of the compatibility that it enables.

    Raises:
        IcebergIncompatible: the table violates a rule; the error names the rule and the column.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1, #writer-requirements-for-icebergcompatv2
    """
    compat = enabled_compat(table.properties)
    if compat is None:
        return
    for kind, find_violation, fix in RULES:
        violation = find_violation(compat, table)
        if violation is not None:
            raise IcebergIncompatible(version=compat.version, kind=kind, reason=violation, fix=fix)


def ensure_type_history_compatible(compat: IcebergCompat, schema: StructType) -> None:
    """Check that Iceberg supports all recorded type changes of a table.

    Raises:
        IcebergIncompatible: Iceberg does not support one; the error names the column.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    violation = _find_unsupported_change(schema)
    if violation is not None:
        raise IcebergIncompatible(version=compat.version, kind=_WIDENED, reason=violation, fix=_REWRITE)


def ensure_same_partitions(old: Metadata, new: Metadata) -> None:
    """Check that a partitioned table keeps its partition columns.

    Raises:
        IcebergIncompatible: the partition columns would change.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1
    """
    compat = enabled_compat(new.configuration)
    if compat is None or not old.partition_columns or old.partition_columns == new.partition_columns:
        return
    before, after = ", ".join(old.partition_columns), ", ".join(new.partition_columns) or "no columns"
    raise IcebergIncompatible(
        version=compat.version,
        kind="REPLACE_TABLE_CHANGE_PARTITION_NAMES",
        reason=f"the table is partitioned by {before} and would be partitioned by {after}",
        fix="Write the rows to a new table.",
    )


def _find_second_version(_: IcebergCompat, table: TableConfiguration) -> str | None:
    names = [each.switch for each in COMPATS if is_on(table.properties, each.switch)]
    return f"{' and '.join(names)} are both true" if len(names) > 1 else None


def _find_missing_mapping(_: IcebergCompat, table: TableConfiguration) -> str | None:
    mode = table.properties.get(MODE, NONE)
    return None if mode in (NAME, ID) else f"{MODE} is {mode}"


def _find_deletion_vectors(compat: IcebergCompat, table: TableConfiguration) -> str | None:
    if not table.supports("deletionVectors"):
        return None
    if compat.version == 1:
        return "the table supports deletion vectors"
    is_active = compat.version == 2 and is_on(table.properties, "delta.enableDeletionVectors")
    return "delta.enableDeletionVectors is true" if is_active else None


def _find_unsupported_type(compat: IcebergCompat, table: TableConfiguration) -> str | None:
    if compat.version == 1:
        types = ((path, field.type) for path, field in fields(table.schema))
        column = next((each for each in types if isinstance(each[1], (ArrayType, MapType)) or each[1] == VOID), None)
    else:
        column = next(((path, leaf) for path, leaf in leaves(table.schema) if not _is_allowed(leaf)), None)
    return None if column is None else f"column {format_path(column[0])} is {column[1].sql}"


def _is_allowed(leaf: DataType) -> bool:
    return isinstance(leaf, DecimalType) or str(leaf) in V2_TYPES


def _find_unsupported_widening(_: IcebergCompat, table: TableConfiguration) -> str | None:
    return _find_unsupported_change(table.schema)


def _find_unsupported_change(schema: StructType) -> str | None:
    for path, change in all_type_changes(schema):
        if is_widening(change.old, change.new) and not is_iceberg_compatible(change.old, change.new):
            return f"column {format_path(path)} was changed from {change.old.sql} to {change.new.sql}"
    return None


def _find_missing_nested_id(compat: IcebergCompat, table: TableConfiguration) -> str | None:
    if not compat.has_nested_ids:
        return None
    for path, field in fields(table.schema):
        ids = nested_ids(field)
        for steps in nested_steps(field.type):
            if steps not in ids:
                return f"{format_path((*path, *steps))} does not have an id"
    return None


_WIDENED = "UNSUPPORTED_TYPE_WIDENING"
_REWRITE = "Iceberg cannot read the old files; drop the feature typeWidening first, which rewrites them."

CompatRule: TypeAlias = tuple[str, Callable[[IcebergCompat, TableConfiguration], "str | None"], str]

RULES: Sequence[CompatRule] = (
    ("VERSION_MUTUAL_EXCLUSIVE", _find_second_version, "Disable one of them."),
    (
        "WRONG_REQUIRED_TABLE_PROPERTY",
        _find_missing_mapping,
        f"Enable column mapping in the same call: set_properties({{{MODE!r}: 'name', …}}).",
    ),
    (
        "DELETION_VECTORS_SHOULD_BE_DISABLED",
        _find_deletion_vectors,
        "Set delta.enableDeletionVectors to false; for V1, drop the feature deletionVectors.",
    ),
    ("UNSUPPORTED_DATA_TYPE", _find_unsupported_type, "Remove such columns; V2 allows arrays and maps, V1 does not."),
    (_WIDENED, _find_unsupported_widening, _REWRITE),
    (
        "MISSING_NESTED_IDS",
        _find_missing_nested_id,
        "Disable and enable the compatibility again, which assigns the ids.",
    ),
)
"""The rules in the order of the checks: Delta's name of the rule, a function that finds a violation, and the fix."""
