"""The table or its storage is at fault, or the table needs a feature that this version does not support."""

from __future__ import annotations

from widen.errors.family import TableError


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
        "If no load has quarantined a record, there is nothing to replay. Else name the quarantine and not its table: "
        "by default it is beside the table, with the suffix _quarantine."
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
    """A data file or a deletion vector cannot be read."""

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
    """Another client does not return the values of the table, so that it must not read it."""

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
        "txn or a checkpoint can be repeated: it leaves out what the table has."
    )
