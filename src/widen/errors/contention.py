"""Another writer committed first."""

from __future__ import annotations

from widen.errors.family import ContentionError


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
    """Another writer removed a file that this change removes too."""

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
