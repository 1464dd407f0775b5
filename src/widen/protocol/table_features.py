"""Table features as data: who must support them, what enables them, and which of them this version supports.

A table *supports* a feature if its protocol lists it (or an old version number implies it). A feature is *enabled* if a
property or the schema also uses it.

Source: PROTOCOL.md#table-features
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from widen.errors import CorruptLog, FeatureRequired, UnsupportedFeatureForRead, UnsupportedFeatureForWrite
from widen.model.column_path import fields, leaves
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Protocol
from widen.protocol.column_metadata import DEFAULT, GENERATION, INVARIANT, START, find_default
from widen.protocol.table_properties import (
    CHECKPOINT_POLICY,
    CONSTRAINT_PREFIX,
    ENABLE_CHANGE_DATA_FEED,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_TYPE_WIDENING,
    FEATURE_PREFIX,
    MATERIALIZE_PARTITIONS,
    V2,
)

MIN_READER_VERSION, MIN_WRITER_VERSION = "delta.minReaderVersion", "delta.minWriterVersion"
IGNORE_DEFAULTS = "delta.ignoreProtocolDefaults"
PROTECTION = "checkpointProtection"
COLUMN_MAPPING = "columnMapping"
DELETION_VECTORS, V2_CHECKPOINT = "deletionVectors", "v2Checkpoint"
MATERIALIZED_PARTITIONS = "materializePartitionColumns"
PROTECTED_BEFORE = "delta.requireCheckpointProtectionBeforeVersion"
TABLE_FEATURES_READER, TABLE_FEATURES_WRITER = 3, 7
TYPE_WIDENING, TYPE_WIDENING_PREVIEW = "typeWidening", "typeWidening-preview"
_CONSUMED = frozenset(key.lower() for key in (MIN_READER_VERSION, MIN_WRITER_VERSION, IGNORE_DEFAULTS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One table feature.

    Args:
        is_reader: Whether readers must also support it.
        reader_version: The old reader version that implies it; 0 without one.
        writer_version: The old writer version that implies it; 0 without one.
        switch: The property that enables it, and the values that do. A key that ends in a dot is a prefix: every
            property with that prefix enables the feature.
        column_key: The metadata key of columns that use it.
        data_type: The type of columns that use it.
        requires: The features that must be supported with it.
        joins_tables: Whether a new column of the type adds it to an existing table, as Delta Spark does.
        stops_writers: Whether a concurrent write, made without knowing the feature, may violate its rules.
    """

    name: str
    is_reader: bool = False
    reader_version: int = 0
    writer_version: int = 0
    switch: tuple[str, tuple[str, ...]] | None = None
    column_key: str | None = None
    data_type: str | None = None
    requires: tuple[str, ...] = ()
    joins_tables: bool = False
    stops_writers: bool = False
    reads: bool = True
    writes: bool = True


def _on(key: str) -> tuple[str, tuple[str, ...]]:
    return key, ("true",)


FEATURES: tuple[Feature, ...] = (
    Feature(name="appendOnly", writer_version=2, switch=_on("delta.appendOnly")),
    Feature(name="invariants", writer_version=2, column_key=INVARIANT, stops_writers=True),
    Feature(name="checkConstraints", writer_version=3, switch=(CONSTRAINT_PREFIX, ()), stops_writers=True),
    Feature(name="changeDataFeed", writer_version=4, switch=_on(ENABLE_CHANGE_DATA_FEED)),
    Feature(name="generatedColumns", writer_version=4, column_key=GENERATION, stops_writers=True),
    Feature(
        name=COLUMN_MAPPING,
        is_reader=True,
        reader_version=2,
        writer_version=5,
        switch=("delta.columnMapping.mode", ("name", "id")),
    ),
    Feature(name="identityColumns", writer_version=6, column_key=START, stops_writers=True),
    Feature(name="allowColumnDefaults", column_key=DEFAULT, stops_writers=True),
    Feature(name=PROTECTION, stops_writers=True),
    Feature(name="clustering", requires=("domainMetadata",), stops_writers=True),
    Feature(name=DELETION_VECTORS, is_reader=True, switch=_on(ENABLE_DELETION_VECTORS)),
    Feature(name="domainMetadata"),
    Feature(name="icebergCompatV1", switch=_on("delta.enableIcebergCompatV1"), requires=("columnMapping",)),
    Feature(name="icebergCompatV2", switch=_on("delta.enableIcebergCompatV2"), requires=("columnMapping",)),
    Feature(
        name="icebergCompatV3",
        switch=_on("delta.enableIcebergCompatV3"),
        requires=("columnMapping", "rowTracking"),
        writes=False,
    ),
    Feature(name="inCommitTimestamp", switch=_on(ENABLE_IN_COMMIT_TIMESTAMPS)),
    Feature(name=MATERIALIZED_PARTITIONS, switch=_on(MATERIALIZE_PARTITIONS), stops_writers=True),
    Feature(name="rowTracking", switch=_on("delta.enableRowTracking"), requires=("domainMetadata",)),
    Feature(name="timestampNtz", is_reader=True, data_type="timestamp_ntz"),
    Feature(name=TYPE_WIDENING, is_reader=True, switch=_on(ENABLE_TYPE_WIDENING)),
    Feature(name=TYPE_WIDENING_PREVIEW, is_reader=True),
    Feature(name=V2_CHECKPOINT, is_reader=True, switch=(CHECKPOINT_POLICY, (V2,))),
    Feature(name="vacuumProtocolCheck", is_reader=True),
    Feature(name="variantType", is_reader=True, data_type="variant", joins_tables=True, stops_writers=True),
    Feature(name="variantType-preview", is_reader=True, stops_writers=True),
    Feature(
        name="variantShredding",
        is_reader=True,
        switch=_on("delta.enableVariantShredding"),
        requires=("variantType",),
        stops_writers=True,
    ),
    Feature(name="variantShredding-preview", is_reader=True, stops_writers=True),
)
"""Every feature that this version knows. Tables with other features are neither read nor written."""

_BY_NAME: Mapping[str, Feature] = {feature.name: feature for feature in FEATURES}
_BY_FOLDED_NAME: Mapping[str, Feature] = {feature.name.lower(): feature for feature in FEATURES}
_PREVIEWS: Mapping[str, str] = {
    TYPE_WIDENING: TYPE_WIDENING_PREVIEW,
    "variantType": "variantType-preview",
    "variantShredding": "variantShredding-preview",
}
"""Features whose property does not add them to a table that supports their preview."""


def find_feature(name: str) -> Feature | None:
    """Return the feature of that name, compared without case, or None."""
    return _BY_FOLDED_NAME.get(name.lower())


def supported_features(protocol: Protocol) -> frozenset[str]:
    """Return every feature that a protocol supports, listed or implied by an old version number.

    Source: PROTOCOL.md#supported-features
    """
    listed = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    return frozenset(listed | _implied_features(protocol.min_reader_version, protocol.min_writer_version))


def added_reader_features(before: Protocol, after: Protocol) -> tuple[str, ...]:
    """Return the features that readers need for a table only with its later protocol, in alphabetical order."""
    added = supported_features(after) - supported_features(before)
    return tuple(sorted(name for name in added if (feature := find_feature(name)) is None or feature.is_reader))


def _implied_features(reader: int, writer: int) -> set[str]:
    by_writer = {f.name for f in FEATURES if 0 < f.writer_version <= writer < TABLE_FEATURES_WRITER}
    return by_writer | {f.name for f in FEATURES if 0 < f.reader_version <= reader < TABLE_FEATURES_READER}


def is_supported(protocol: Protocol, name: str) -> bool:
    """Return whether the protocol supports a feature, listed or implied by an old version number."""
    return name in supported_features(protocol)


def blocking_features(old: Protocol, new: Protocol) -> list[str]:
    """Return the features that a protocol has gained and that a concurrent write may violate.

    Source: Delta Spark, where adding these features fails concurrent transactions.
    """
    gained = supported_features(new) - supported_features(old)
    return sorted(name for name in gained if name not in _BY_NAME or _BY_NAME[name].stops_writers)


def is_enabled(protocol: Protocol, properties: Mapping[str, str], name: str) -> bool:
    """Return whether a feature is supported and enabled by its property.

    Source: PROTOCOL.md#active-features
    """
    row = _BY_NAME.get(name)
    return row is not None and is_supported(protocol, name) and _is_switched_on(row, properties)


def _is_switched_on(row: Feature, properties: Mapping[str, str]) -> bool:
    if row.switch is None:
        return False
    key, values = row.switch
    if key.endswith("."):
        return any(name.lower().startswith(key) for name in properties)
    return properties.get(key, "").lower() in values


def required_features(
    properties: Mapping[str, str], schema: StructType | None = None, supported: Collection[str] = ()
) -> frozenset[str]:
    """Return the features that properties require, by switch or by name, and those that a schema uses.

    The features that these require in turn are not included; `with_features` adds them.

    Args:
        properties: The properties with the ``delta.feature.…`` entries, keys as stored.
        schema: The schema of a new table. The columns of an existing table do not add features.
        supported: The features that the table already supports. If it supports the preview of a feature, the final
            one is only added by name.

    Source: PROTOCOL.md#active-features; Delta Spark for ``delta.feature.<name>=supported``.
    """
    named = set(_features_by_name(properties)) | _features_by_version(properties)
    present = named.union(supported)
    used = {f.name for f in FEATURES if _is_switched_on(f, properties) or (schema is not None and _is_used(f, schema))}
    return frozenset(named | {name for name in used if _PREVIEWS.get(name) not in present})


def _features_by_version(properties: Mapping[str, str]) -> set[str]:
    reader, writer = (properties.get(key, "0") for key in (MIN_READER_VERSION, MIN_WRITER_VERSION))
    return _implied_features(int(reader), int(writer)) if reader.isdecimal() and writer.isdecimal() else set()


def _features_by_name(properties: Mapping[str, str]) -> Iterable[str]:
    for key, value in properties.items():
        if key.lower().startswith(FEATURE_PREFIX) and value.lower() in ("supported", "enabled"):
            name = key[len(FEATURE_PREFIX) :]
            feature = find_feature(name)
            yield feature.name if feature else name


def _is_used(row: Feature, schema: StructType) -> bool:
    by_key = row.column_key is not None and any(row.column_key in field.metadata for _, field in fields(schema))
    return by_key or (row.data_type is not None and any(str(t) == row.data_type for _, t in leaves(schema)))


def require_feature(protocol: Protocol, name: str) -> FeatureRequired:
    """Return the error for a change that needs a feature which a protocol does not support."""
    fix = f"Call add_feature({name!r}) first; older clients may then no longer be able to open the table."
    supported = ", ".join(sorted(supported_features(protocol))) or "none"
    return FeatureRequired(feature=name, supported=supported, fix=fix)


def missing_type_features(protocol: Protocol, schema: StructType, *, joining: bool | None = None) -> list[str]:
    """Return the features of the types in a schema that a protocol does not support, sorted.

    Args:
        joining: Only those that a new column adds to a table, or only the others; by default both.
    """
    present = supported_features(protocol)
    used = [f for f in FEATURES if f.data_type is not None and _is_used(f, schema)]
    asked = [f.name for f in used if joining in (None, f.joins_tables)]
    return sorted(name for name in asked if not present & {name, _PREVIEWS.get(name)})


def stored_properties(properties: Mapping[str, str]) -> dict[str, str]:
    """Return the properties without those that only change the protocol, which tables do not store.

    Source: Delta Spark, which also does not store them.
    """
    return {
        key: value
        for key, value in properties.items()
        if not key.lower().startswith(FEATURE_PREFIX) and key.lower() not in _CONSUMED
    }


def with_features(protocol: Protocol, names: Iterable[str]) -> Protocol:
    """Return the protocol with these features added, and the features that they require.

    A protocol that already supports them all is returned unchanged.

    Source: PROTOCOL.md#table-features-for-new-and-existing-tables
    """
    before = supported_features(protocol)
    after = before | _with_required(set(names))
    return protocol if after == before else normalize_protocol(_list_features(after))


def without_feature(protocol: Protocol, removed: str, added: Iterable[str] = ()) -> Protocol:
    """Return the protocol without a feature, with the lowest version numbers that its other features allow.

    Args:
        added: Features to add at the same time.

    Source: Delta Spark's DROP FEATURE
    """
    return normalize_protocol(_list_features((supported_features(protocol) - {removed}) | set(added)))


def merge_protocols(left: Protocol, right: Protocol) -> Protocol:
    """Return a protocol that supports the features of both.

    Source: Delta Spark's RESTORE, which never removes a feature
    """
    both = supported_features(left) | supported_features(right)
    return left if both == supported_features(left) else normalize_protocol(_list_features(both))


def dependent_features(protocol: Protocol, name: str) -> list[str]:
    """Return the supported features that require the named feature, sorted."""
    return sorted(f.name for f in FEATURES if name in f.requires and is_supported(protocol, f.name))


def _with_required(names: set[str]) -> set[str]:
    required = set(names)
    for name in names:
        row = _BY_NAME.get(name)
        required |= _with_required(set(row.requires)) if row else set()
    return required


def _list_features(names: Iterable[str]) -> Protocol:
    writer = tuple(sorted(names))
    reader = tuple(name for name in writer if name in _BY_NAME and _BY_NAME[name].is_reader)
    return Protocol(
        min_reader_version=TABLE_FEATURES_READER,
        min_writer_version=TABLE_FEATURES_WRITER,
        reader_features=reader,
        writer_features=writer,
    )


def normalize_protocol(protocol: Protocol) -> Protocol:
    """Return the protocol with the lowest version numbers that support the same features.

    Old version numbers are used if they imply exactly these features. Otherwise there is a list for writers, and one
    for readers only if a feature needs it.

    Source: Delta Spark; PROTOCOL.md#supported-features (readers below version 3 have no list)
    """
    names = supported_features(protocol)
    for writer in range(1, TABLE_FEATURES_WRITER):
        reader = 2 if writer >= _BY_NAME["columnMapping"].writer_version else 1
        if names == _implied_features(reader, writer):
            return Protocol(min_reader_version=reader, min_writer_version=writer)
    listed = set(protocol.reader_features or ())
    if any(name not in _BY_NAME or not _BY_NAME[name].reader_version for name in listed):
        return protocol
    reader = 2 if "columnMapping" in names else 1
    return Protocol(
        min_reader_version=reader, min_writer_version=TABLE_FEATURES_WRITER, writer_features=tuple(sorted(names))
    )


def ensure_readable(protocol: Protocol, location: str) -> None:
    """Check that this version can read a table with this protocol.

    Raises:
        UnsupportedFeatureForRead: the protocol requires a feature that this version cannot read; the error names it.

    Source: PROTOCOL.md#supported-features
    """
    ensure_valid_protocol(protocol, location)
    needed = _needed_features(protocol.min_reader_version, TABLE_FEATURES_READER, protocol.reader_features, "reader")
    missing = [name for name in needed if name not in _BY_NAME or not _BY_NAME[name].reads]
    if missing:
        raise UnsupportedFeatureForRead(location=location, features=", ".join(missing), verb="read")


def ensure_valid_protocol(protocol: Protocol, location: str) -> None:
    """Check that the versions of a protocol fit each other and its lists.

    Lists that a version does not need are ignored: other clients have written them.

    Source: PROTOCOL.md#table-features; Delta Spark, which cannot read such a protocol either
    """
    reader, writer = protocol.min_reader_version, protocol.min_writer_version
    problem = None
    if min(reader, writer) < 0:
        problem = "a version is negative"
    elif reader == TABLE_FEATURES_READER and writer < TABLE_FEATURES_WRITER:
        problem = f"reader version {reader} needs writer version {TABLE_FEATURES_WRITER}"
    elif reader <= TABLE_FEATURES_READER and writer == TABLE_FEATURES_WRITER and protocol.writer_features is None:
        problem = f"writer version {writer} needs writerFeatures"
    elif reader == TABLE_FEATURES_READER and protocol.reader_features is None:
        problem = f"reader version {reader} needs readerFeatures"
    if problem is not None:
        raise CorruptLog(
            path=f"{location}/_delta_log",
            reason=f"its protocol ({reader}, {writer}) is not valid: {problem}",
            fix="Repair the protocol with the client that wrote it, or read an older version.",
        )


def ensure_writable(protocol: Protocol, location: str) -> None:
    """Check that this version can commit to a table with this protocol.

    Raises:
        UnsupportedFeatureForWrite: the protocol requires a feature that this version cannot write; the error names it.

    Source: PROTOCOL.md#supported-features
    """
    ensure_readable(protocol, location)
    needed = _needed_features(protocol.min_writer_version, TABLE_FEATURES_WRITER, protocol.writer_features, "writer")
    missing = [name for name in needed if name not in _BY_NAME or not _BY_NAME[name].writes]
    if missing:
        raise UnsupportedFeatureForWrite(location=location, features=", ".join(missing), verb="write")


def _needed_features(version: int, newest: int, listed: tuple[str, ...] | None, role: str) -> list[str]:
    unknown = [f"{role} version {version}"] if version > newest else []
    return unknown + sorted(listed or ())


def default_columns(schema: StructType, protocol: Protocol) -> frozenset[str]:
    """Return the columns with a default; none if the table does not support defaults."""
    if "allowColumnDefaults" not in supported_features(protocol):
        return frozenset()
    return frozenset(field.name for field in schema if find_default(field) is not None)
