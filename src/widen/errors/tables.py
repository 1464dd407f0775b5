"""What is on disk breaks the protocol, or needs a feature that we lack.

Source: house rule: the error type says who must act, the message shows how.
"""

from __future__ import annotations

from widen.errors.family import TableError


class TableNotFound(TableError):
    """There is no Delta table at that location."""

    code = "DELTA_TABLE_NOT_FOUND"
    template = "There is no Delta table at {location}: {reason}."
    hint = "Check the path, or make a table there with widen.create_table or `widen ingest ... --into {location}`."


class TableAlreadyExists(TableError):
    """A table is there already."""

    code = "DELTA_TABLE_ALREADY_EXISTS"
    template = "There is a table at {location} already."
    hint = "Open it with widen.Table({location!r}), or choose another location."


class VersionNotFound(TableError):
    """The version or time asked for cannot be reconstructed."""

    code = "DELTA_VERSION_NOT_FOUND"
    template = "{location} has no {wanted}: {reason}."
    hint = "{fix}"


class CorruptLog(TableError):
    """A file of the transaction log is missing, half written or breaks the protocol."""

    code = "DELTA_LOG_CORRUPT"
    template = "The log file {path} cannot be used: {reason}."
    hint = "{fix}"


class CorruptFile(TableError):
    """A data file or a deletion vector cannot be read."""

    code = "WIDEN_FILE_UNREADABLE"
    template = "The file {path} cannot be read: {reason}."
    hint = "{fix}"


class UnsupportedFeature(TableError):
    """The table needs a table feature that this version does not know."""

    template = "The table at {location} needs the table features {features}, which this version cannot {verb}."
    hint = "Use a newer version of Widen, or a client that knows them."


class UnsupportedFeatureForRead(UnsupportedFeature):
    """The table may not be read without a feature that this version does not know."""

    code = "DELTA_UNSUPPORTED_FEATURES_FOR_READ"


class UnsupportedFeatureForWrite(UnsupportedFeature):
    """The table may not be written without a feature that this version does not know."""

    code = "DELTA_UNSUPPORTED_FEATURES_FOR_WRITE"


class UnsupportedTypeChange(TableError):
    """The schema records a type change that is not in the matrix."""

    code = "DELTA_UNSUPPORTED_TYPE_CHANGE_IN_SCHEMA"
    template = "The schema records that {column} changed from {old} to {new}, which type widening does not know."
    hint = "The table was altered by a client that breaks the protocol; repair it there, for no reader may trust it."


class NothingToStore(TableError):
    """A table, or a struct in it, has nothing but voids, which are in no file; so no row can be written."""

    code = "DELTA_CANNOT_WRITE_EMPTY_SCHEMA"
    template = "No row can be written, for {place} has no column that would be in a file."
    hint = "Give it one, e.g. {fix}, or a type to one that is void."


class VoidInItems(TableError):
    """There is a void inside an array or a map, which no file can hold."""

    code = "DELTA_COMPLEX_TYPE_COLUMN_CONTAINS_NULL_TYPE"
    template = "No row can be written, for {column} is void, and it is inside an array or a map."
    hint = "Give it a type: alter_column({column!r}, type=...)."


class EnabledWithoutFeature(TableError):
    """A property switches on a feature that the protocol of the table does not list."""

    code = "DELTA_FEATURE_ENABLED_WITHOUT_SUPPORT"
    template = "The table sets {property} to true, but its protocol does not list the feature {feature}."
    hint = "Repair it with add_feature({feature!r}) or unset_properties([{property!r}])."


class JobFailed(TableError):
    """Spark could not finish a job."""

    code = "WIDEN_JOB_FAILED"
    template = "Spark could not finish a job: {reason}."
    hint = "What was not committed is not visible. The log of Spark tells more."


class StorageError(TableError):
    """The store refused: permission, space, network."""

    code = "WIDEN_STORAGE"
    template = "{location}: {reason}."
    hint = "{fix}"


class StorageRefused(StorageError):
    """The store refused for certain: nothing was written, and nothing can be written late."""

    code = "WIDEN_STORAGE_REFUSED"


class UnsafeStore(StorageRefused):
    """The store overwrites files that are only to be created, so two writers would both win a version."""

    code = "WIDEN_STORE_UNSAFE"
    template = "{location}: the store ignores the condition of a write (If-None-Match), so commits could be lost."
    hint = "Use a store that obeys it, as Amazon S3, Azure, Google Cloud and newer versions of MinIO and Ceph do."


class FileMissing(StorageError):
    """A file that should be there is not."""

    code = "WIDEN_FILE_MISSING"


class AfterCommitFailed(TableError):
    """The change is committed, and what follows the commit failed."""

    code = "WIDEN_AFTER_COMMIT_FAILED"
    template = "Version {version} of {location} is committed, but what follows the commit failed: {reason}."
    hint = "Do not repeat the call: the change is in the table. Open the table again."
