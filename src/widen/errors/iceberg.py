"""Iceberg tables and their catalogs."""

from __future__ import annotations

from widen.errors.columns import ColumnRefused
from widen.errors.contention import CommitUnknown
from widen.errors.family import ContentionError, RequestError, TableError
from widen.errors.tables import StorageError, StorageRefused, TableNotFound


class IcebergUnavailable(RequestError):
    """The call needs PyIceberg, or a part of it that is not installed."""

    code = "WIDEN_ICEBERG_MISSING"
    template = "This call needs PyIceberg: {reason}."
    hint = "Install it with: pip install 'widen[iceberg]'"


class CatalogNotFound(RequestError):
    """PyIceberg's configuration does not have the catalog, or its settings are incomplete."""

    code = "WIDEN_CATALOG_NOT_FOUND"
    template = "The catalog {catalog} cannot be opened: {reason}."
    hint = (
        "Name a catalog of .pyiceberg.yaml or of the variables PYICEBERG_CATALOG__NAME__URI and so on, or a file "
        "NAME.db for an embedded catalog."
    )


class MirrorRefused(RequestError):
    """The Delta table has something that an Iceberg table cannot show."""

    code = "WIDEN_MIRROR_REFUSED"
    template = "The table {location} cannot be mirrored as Iceberg: {reason}."
    hint = "{fix}"


class IcebergTableNotFound(TableNotFound):
    """The catalog does not have the Iceberg table."""

    code = "WIDEN_ICEBERG_TABLE_NOT_FOUND"
    template = "There is no Iceberg table {location}: {reason}."
    hint = "Check the name and the catalog, or create the table with `widen ingest ... --into {location} --to iceberg`."


class UnsupportedIcebergVersion(TableError):
    """The table has a format version that cannot be written."""

    code = "WIDEN_ICEBERG_VERSION"
    template = "The Iceberg table {location} has format version {version}, which cannot be written: {reason}."
    hint = "Use a table of format version 1 or 2. The format version of a table cannot be lowered."


class UnsupportedColumnType(TableError):
    """A column has a type that the other side cannot represent."""

    code = "WIDEN_COLUMN_TYPE"
    template = "The column {column} cannot have the type {type}: {reason}."
    hint = "Drop the column or give it another type, with the client that made it."


class AmbiguousColumns(TableError):
    """Two columns of an Iceberg table have names that differ only in case."""

    code = "WIDEN_AMBIGUOUS_COLUMNS"
    template = "The columns {column} and {other} of {location} differ only in case, so Spark cannot tell them apart."
    hint = "Rename one of them with rename_column, or set spark.sql.caseSensitive to true."


class ColumnInUse(ColumnRefused):
    """Something in an Iceberg table needs the column as it is."""

    code = "WIDEN_COLUMN_IN_USE"
    template = "Column {column} cannot be {verb}: {reason}."
    hint = "Add another column instead, or change what needs it with a client of Iceberg first."


class CorruptMetadata(TableError):
    """A property of Widen in the metadata of an Iceberg table cannot be read."""

    code = "WIDEN_METADATA_CORRUPT"
    template = "The property {name} of {location} cannot be read: {reason}."
    hint = "{fix}"


class CatalogError(StorageError):
    """The catalog reported an error."""

    code = "WIDEN_CATALOG"


class CatalogRefused(StorageRefused):
    """The catalog refused the request: missing permission, or a request that it does not accept."""

    code = "WIDEN_CATALOG_REFUSED"


class TableChanged(ContentionError):
    """Another writer committed to the Iceberg table first."""

    code = "WIDEN_TABLE_CHANGED"
    template = "Another writer committed to {location} in the meantime: {reason}."


class ColumnChangeUnknown(CommitUnknown):
    """The catalog did not report whether it has changed the columns, or may still change them."""

    code = "WIDEN_COLUMN_CHANGE_UNKNOWN"
    template = "It is not known whether the columns of {location} were changed: {reason}."
    hint = "The change may still appear. Before you repeat the call, wait a few minutes and look at the columns."


class SnapshotUnknown(CommitUnknown):
    """The catalog did not report whether it has the snapshot, or may still add it."""

    code = "WIDEN_SNAPSHOT_UNKNOWN"
    template = "It is not known whether snapshot {version} of {location} was committed: {reason}. Its files are kept."
    hint = (
        "The snapshot may still appear. Before you repeat the call, wait a few minutes and check whether the history "
        "of the table has it."
    )
