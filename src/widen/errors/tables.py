"""The table or its storage is at fault, or the table needs a feature that this version does not support."""

from __future__ import annotations

from widen.errors.columns import ColumnRefused
from widen.errors.family import ContentionError, RequestError, TableError


class TableNotFound(TableError):
    """There is no Delta table at the location."""

    code = "DELTA_TABLE_NOT_FOUND"
    template = "There is no Delta table at {location}: {reason}."
    hint = "Check the path, or create a table with widen.create_table or `widen ingest ... --into {location}`."


class QuarantineNotFound(TableNotFound):
    """There is no quarantine at the location."""

    code = "WIDEN_QUARANTINE_NOT_FOUND"
    template = "There is no quarantine at {location}."
    hint = (
        "If no load has quarantined a record, there is nothing to replay. Otherwise name the quarantine, not its "
        "table: by default it is next to the table, with the suffix _quarantine."
    )


class TableAlreadyExists(TableError):
    """There is already a table at the location."""

    code = "DELTA_TABLE_ALREADY_EXISTS"
    template = "There is already a table at {location}."
    hint = "Open it with widen.Table({location!r}), or choose another location."


class VersionNotFound(TableError):
    """The requested version or timestamp cannot be reconstructed."""

    code = "DELTA_VERSION_NOT_FOUND"
    template = "{location} does not have {wanted}: {reason}."
    hint = "{fix}"


class CorruptLog(TableError):
    """A file of the transaction log is missing, incomplete or invalid."""

    code = "DELTA_LOG_CORRUPT"
    template = "The log file {path} cannot be used: {reason}."
    hint = "{fix}"


class CorruptFile(TableError):
    """A data file, a deletion vector or a file of a checkpoint cannot be read."""

    code = "WIDEN_FILE_UNREADABLE"
    template = "The file {path} cannot be read: {reason}."
    hint = "{fix}"


class UnsupportedFeature(TableError):
    """The table uses a table feature that this version does not support."""

    template = "This version of Widen cannot {verb} the table at {location}: it does not support {features}."
    hint = "Use a newer version of Widen, or a client that supports them."


class UnsupportedFeatureForRead(UnsupportedFeature):
    """The table requires readers to support a table feature that this version does not support."""

    code = "DELTA_UNSUPPORTED_FEATURES_FOR_READ"


class UnsupportedFeatureForWrite(UnsupportedFeature):
    """The table requires writers to support a table feature that this version does not support."""

    code = "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"


class UnsupportedTypeChange(TableError):
    """The schema records a type change that is not a type widening of the protocol."""

    code = "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"
    template = "The schema records that {column} changed from {old} to {new}, which is not a supported type widening."
    hint = "Repair the table with the client that made this change; its values cannot be read reliably."


class NoStoredColumns(TableError):
    """No rows can be written, because the table or one of its structs has no column that is stored in files."""

    code = "DELTA_CANNOT_WRITE_EMPTY_SCHEMA"
    template = "Cannot write rows: {place} has no column that is stored in files."
    hint = "Add a column, e.g. {fix}, or give a void column a type."


class NestedVoidColumn(TableError):
    """No rows can be written, because a void column is inside an array or a map."""

    code = "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE"
    template = "Cannot write rows: {column} is void and is inside an array or a map."
    hint = "Give it a type: alter_column({column!r}, type=...)."


class SimilarStoredNames(TableError):
    """Two columns have names in the data files that differ only in case."""

    code = "WIDEN_SIMILAR_STORED_NAMES"
    template = (
        "The names of the columns {column} and {other} in the files of {location} differ only in case, so Spark cannot "
        "tell them apart."
    )
    hint = "Set spark.sql.caseSensitive to true."


class EnabledWithoutFeature(TableError):
    """A property enables a table feature that the protocol of the table does not list."""

    code = "DELTA_FEATURE_ENABLED_WITHOUT_SUPPORT"
    template = "The table sets {property} to true, but its protocol does not list the feature {feature}."
    hint = "Repair it with add_feature({feature!r}) or unset_properties([{property!r}])."


class JobFailed(TableError):
    """A Spark job failed."""

    code = "WIDEN_JOB_FAILED"
    template = "A Spark job failed: {reason}."
    hint = "Changes that were not committed are not visible. The Spark log has more details."


class HandoverUnproven(TableError):
    """Another client does not return the values of the table, so it must not be used to read it."""

    code = "WIDEN_HANDOVER_UNPROVEN"
    template = "{client} misreads version {version} of {location}: {reader} {difference}."
    hint = "Do not read the table with {client}. Write its rows to a new table for that, and report this."


class StorageError(TableError):
    """The store reported an error, e.g. missing permission, no space left or no connection."""

    code = "WIDEN_STORAGE"
    template = "{location}: {reason}."
    hint = "{fix}"


class StorageRefused(StorageError):
    """The store rejected the write: nothing was written, and nothing can be written later."""

    code = "WIDEN_STORAGE_REFUSED"


class UnsafeStore(StorageRefused):
    """The store overwrites existing files although asked not to, so two writers could both commit one version."""

    code = "WIDEN_STORE_UNSAFE"
    template = "{location}: the store ignores conditional writes (If-None-Match), so commits could be lost."
    hint = "Use a store that supports them, e.g. Amazon S3, Azure, Google Cloud, or a newer version of MinIO or Ceph."


class FileMissing(StorageError):
    """A file does not exist."""

    code = "WIDEN_FILE_MISSING"


class PostCommitFailed(TableError):
    """The change is committed, but a step after the commit failed."""

    code = "WIDEN_AFTER_COMMIT_FAILED"
    template = "Version {version} of {location} is committed, but a step after the commit failed: {reason}."
    hint = (
        "Do not write the same rows again: they are in the table. Open the table again. An ingestion with new (--new), "
        "txn or a checkpoint can be repeated: it leaves out what the table already has."
    )


# Another writer committed first.


class MetadataChanged(ContentionError):
    """Another writer changed the schema or the properties."""

    code = "DELTA_METADATA_CHANGED"


class ProtocolChanged(ContentionError):
    """Another writer changed the protocol."""

    code = "DELTA_PROTOCOL_CHANGED"


class ConcurrentAppend(ContentionError):
    """Another writer added files that this change would have had to read."""

    code = "DELTA_CONCURRENT_APPEND"


class ConcurrentDelete(ContentionError):
    """Another writer removed a file that this change reads, or a vacuum without retention one that it wrote."""

    code = "DELTA_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDelete(ConcurrentDelete):
    """Another writer removed a file that this change also removes."""

    code = "DELTA_CONCURRENT_DELETE_DELETE"


class ConcurrentTransaction(ContentionError):
    """Another writer committed a transaction of the same application."""

    code = "DELTA_CONCURRENT_TRANSACTION"


class AttemptsExhausted(ContentionError):
    """Another writer won the version in every attempt."""

    code = "WIDEN_ATTEMPTS_EXHAUSTED"


class BaseExpired(ContentionError):
    """The version that the change is based on was cleaned up."""

    code = "WIDEN_BASE_EXPIRED"
    template = "The newest version of {location} is {version}: {reason}."


class CommitUnknown(ContentionError):
    """The store did not report whether the commit was written, or may still write it."""

    code = "WIDEN_COMMIT_UNKNOWN"
    template = "It is not known whether version {version} of {location} was written: {reason}. Its files are kept."
    hint = (
        "The commit may still appear. Before you repeat the call, wait a few minutes and check whether the log of the "
        "table has that version with the txnId {txn_id}."
    )


# Texts of errors of other libraries, as our messages quote them.


_NOTES = "__notes__"


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, without the full stop that our messages add.

    Args:
        error: An error of another library; the rest of its text stays readable on ``__cause__``.
    """
    return str(error).strip().partition("\n")[0].rstrip(".")


def open_failure(error: OSError | ValueError) -> str:
    """Return why a file cannot be opened; Python raises `ValueError` for a path that no file can have."""
    return getattr(error, "strerror", None) or str(error)


def missing_data_file(path: str) -> CorruptFile:
    """Return the error for a data file of a table that does not exist."""
    return CorruptFile(path=path, reason="it does not exist (vacuumed or deleted?)", fix=_RESTORE_OR_READ_LATER)


_RESTORE_OR_READ_LATER = (
    "If a vacuum deleted it, read a later version. Otherwise restore the file from a backup, or restore the table to a "
    "version that does not need it."
)


# Widen supports Python 3.10, where BaseException.add_note does not exist.
def add_note(error: BaseException, text: str) -> None:
    """Add a note to an error or an interrupt, as Python 3.11 does; newer Pythons show it in tracebacks.

    Source: PEP 678
    """
    vars(error).setdefault(_NOTES, []).append(text)


def notes_of(error: BaseException | None) -> list[str]:
    """Return the notes of an error and of the errors that caused it.

    Source: PEP 678
    """
    if error is None:
        return []
    return [*vars(error).get(_NOTES, ()), *notes_of(error.__cause__ or error.__context__)]


# Iceberg tables and their catalogs.


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


class UnsupportedColumnType(TableError):
    """A column has a type that the other side cannot represent."""

    code = "WIDEN_COLUMN_TYPE"
    template = "The column {column} cannot have the type {type}: {reason}."
    hint = "Drop the column or give it a different type, with the client that created it."


class ColumnLeftOut(UnsupportedColumnType):
    """A call needs the values of an Iceberg column of a type that Spark does not have, e.g. a time."""

    code = "WIDEN_COLUMN_LEFT_OUT"
    template = "Column {column} has the type {type}, which Spark does not have: {reason}."
    hint = "{fix}"


class DroppedColumnType(TableError):
    """An Iceberg table has dropped a column of a type that PyIceberg does not know, and its metadata still have it."""

    code = "WIDEN_DROPPED_COLUMN_TYPE"
    template = (
        "{location} has dropped its column {column}, but the metadata still have a schema with it, and PyIceberg, "
        "which reads them, does not know the type {type}."
    )
    hint = (
        "Remove old schemas with Iceberg for Spark: CALL system.expire_snapshots(table => '{location}', "
        "clean_expired_metadata => true)."
    )


class AmbiguousColumns(TableError):
    """Two columns of an Iceberg table have names that differ at most in case."""

    code = "WIDEN_AMBIGUOUS_COLUMNS"
    template = "The columns {column} and {other} of {location} differ at most in case, so they cannot be told apart."
    hint = "Rename one of them with rename_column, or set spark.sql.caseSensitive to true."


class ColumnInUse(ColumnRefused):
    """Something in an Iceberg table needs the column as it is."""

    code = "WIDEN_COLUMN_IN_USE"
    template = "Column {column} cannot be {verb}: {reason}."
    hint = "Add another column instead, or change what needs it with an Iceberg client first."


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
