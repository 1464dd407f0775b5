"""Nobody is wrong: somebody else committed first.

Source: house rule: the error type says who must act, the message shows how.
"""

from __future__ import annotations

from widen.errors.family import ContentionError


class MetadataChanged(ContentionError):
    """Somebody changed the schema or the properties meanwhile."""

    code = "DELTA_METADATA_CHANGED"


class ProtocolChanged(ContentionError):
    """Somebody changed the protocol meanwhile."""

    code = "DELTA_PROTOCOL_CHANGED"


class ConcurrentAppend(ContentionError):
    """Somebody added files that this change would have had to read."""

    code = "DELTA_CONCURRENT_APPEND"


class ConcurrentDelete(ContentionError):
    """Somebody removed a file that this change reads."""

    code = "DELTA_CONCURRENT_DELETE_READ"


class ConcurrentDeleteDelete(ConcurrentDelete):
    """Somebody removed a file that this change removes too."""

    code = "DELTA_CONCURRENT_DELETE_DELETE"


class ConcurrentTransaction(ContentionError):
    """Somebody committed the same application transaction meanwhile."""

    code = "DELTA_CONCURRENT_TRANSACTION"


class AttemptsExhausted(ContentionError):
    """Every attempt lost the race for its version."""

    code = "WIDEN_ATTEMPTS_EXHAUSTED"


class BaseExpired(ContentionError):
    """The version that a change was made for was cleaned up meanwhile."""

    code = "WIDEN_BASE_EXPIRED"
    template = "The newest version of {location} is {version}: {reason}."


class CommitUnknown(ContentionError):
    """The store did not say whether the commit was written, or it may still be written."""

    code = "WIDEN_COMMIT_UNKNOWN"
    template = "Whether version {version} of {location} was written is not known: {reason}. Its files are kept."
    hint = (
        "It may still appear. Before you repeat the call, wait some minutes and look whether the log of the table has "
        "that version with the txnId {txn_id}."
    )
