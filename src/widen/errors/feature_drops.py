"""A table feature cannot be dropped, or not yet.

Source: the error classes of Delta Spark's DROP FEATURE.
"""

from __future__ import annotations

from widen.errors.family import ContentionError, RequestError, TableError

_WAIT = "Wait until these versions have expired, then call drop_feature({feature!r}, truncate_history=True) again."


class FeatureDropRefused(RequestError):
    """The table feature cannot be dropped as requested."""

    template = "The table feature {feature} cannot be dropped: {reason}."
    hint = "{fix}"


class FeatureIsProperty(FeatureDropRefused):
    """The name belongs to a table property."""

    code = "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY"
    template = "{property} cannot be dropped, because it is a table property, not a table feature."
    hint = "Remove it with unset_properties([{property!r}])."


class FeatureNotPresent(FeatureDropRefused):
    """The table does not have the feature."""

    code = "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"
    template = "The table feature {feature} cannot be dropped: the table does not have it."
    hint = "Features of the table: {supported}."


class FeatureNotRemovable(FeatureDropRefused):
    """This version cannot remove the feature from a table."""

    code = "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"
    template = "The table feature {feature} cannot be dropped: this version of Widen does not support removing it."
    hint = "Features that can be dropped: {removable}."


class UnknownFeature(FeatureDropRefused):
    """This version does not know a feature of that name."""

    code = "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"
    template = "The table feature {feature} cannot be dropped: this version of Widen does not know it."
    hint = "Features that can be dropped: {removable}."


class TruncationNotAllowed(FeatureDropRefused):
    """The feature leaves no traces in the history, so there is nothing to truncate."""

    code = "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED"
    template = "The history cannot be truncated for {feature}, because the feature leaves no traces in it."
    hint = "Call drop_feature({feature!r}) without truncate_history."


class TruncationRequired(FeatureDropRefused):
    """Checkpoint protection can be dropped only together with the history that it protects."""

    code = "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION"
    template = "The table feature {feature} can be dropped only together with the history that it protects."
    hint = "Call drop_feature({feature!r}, truncate_history=True)."


class FeatureStillNeeded(FeatureDropRefused):
    """Other features of the table depend on it."""

    code = "DELTA_FEATURE_DROP_DEPENDENT_FEATURE"
    template = (
        "The table feature {feature} cannot be dropped, because other features of the table need it: {dependents}."
    )
    hint = "Drop those features first."


class ConstraintsRemain(FeatureDropRefused):
    """The table still has CHECK constraints."""

    code = "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE"
    template = "The table feature {feature} cannot be dropped, because the table has the constraints {constraints}."
    hint = "Drop them first with drop_constraint(...)."


class RetentionNotExpired(TableError):
    """The newest version no longer uses the feature, but older versions that can still be read do."""

    template = (
        "The newest version no longer uses the table feature {feature}, but older versions do, so the protocol must "
        "keep it. Versions are kept for {retention} ({retention_key}), or for {truncate_retention} if the history is "
        "truncated."
    )
    hint = _WAIT


class DropPendingRetention(RetentionNotExpired):
    """The feature was removed from the newest version; its drop is complete once older versions have expired."""

    code = "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"


class HistoryUsesFeature(RetentionNotExpired):
    """Older versions that can still be read use the feature."""

    code = "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"


class ProtectedVersionsRemain(TableError):
    """Versions whose checkpoints are protected can still be read."""

    code = "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD"
    template = (
        "The table feature {feature} cannot be dropped yet, because it protects versions before {version} that still "
        "exist. Versions are kept for {retention}."
    )
    hint = _WAIT


class CheckpointBarrierFailed(TableError):
    """A checkpoint that must exist before the protocol is downgraded could not be written."""

    code = "DELTA_FEATURE_DROP_CHECKPOINT_FAILED"
    template = "The table feature {feature} was not dropped: the checkpoint of version {version} could not be written."
    hint = "Repeat the call. The Python log has the cause."


class DropConflict(ContentionError):
    """Another writer began to use the feature again while it was being dropped."""

    code = "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"
    template = (
        "Version {version} of {location} uses the table feature {feature} again: another writer enabled it in the "
        "meantime."
    )
    hint = "The feature was not dropped. Repeat the call when no other writer uses the feature."
