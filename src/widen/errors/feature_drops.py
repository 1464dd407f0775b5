"""Why a table feature is not dropped: the request cannot be, its history must age first, or somebody interfered.

Source: Delta Spark's DROP FEATURE, whose classes of errors these are.
"""

from __future__ import annotations

from widen.errors.family import ContentionError, RequestError, TableError


class FeatureDropRefused(RequestError):
    """The table feature cannot be dropped, or not so."""

    template = "The table feature {feature} cannot be dropped: {reason}."
    hint = "{fix}"


class FeatureIsProperty(FeatureDropRefused):
    """The name is one of a table property."""

    code = "DELTA_FEATURE_DROP_FEATURE_IS_DELTA_PROPERTY"
    template = "{property} cannot be dropped: it is a table property and no table feature."
    hint = "Remove it with unset_properties([{property!r}])."


class FeatureNotPresent(FeatureDropRefused):
    """The protocol of the table does not list the feature."""

    code = "DELTA_FEATURE_DROP_FEATURE_NOT_PRESENT"
    template = "The table feature {feature} cannot be dropped: the table does not have it."
    hint = "It has: {supported}."


class FeatureNotRemovable(FeatureDropRefused):
    """The feature is one that stays for ever, or that this version cannot take away."""

    code = "DELTA_FEATURE_DROP_NONREMOVABLE_FEATURE"
    template = "The table feature {feature} cannot be dropped: this version cannot remove its traces."
    hint = "It can drop: {removable}."


class FeatureNotKnown(FeatureDropRefused):
    """No feature of that name is known."""

    code = "DELTA_FEATURE_DROP_UNSUPPORTED_CLIENT_FEATURE"
    template = "The table feature {feature} cannot be dropped: this version does not know it."
    hint = "It can drop: {removable}."


class TruncationNotAllowed(FeatureDropRefused):
    """The feature leaves nothing in the history that would have to go."""

    code = "DELTA_FEATURE_DROP_HISTORY_TRUNCATION_NOT_ALLOWED"
    template = "The history cannot be truncated for {feature}, which leaves nothing in it."
    hint = "Call drop_feature({feature!r}) without truncate_history."


class TruncationRequired(FeatureDropRefused):
    """The protection of checkpoints goes only together with the history that it protects."""

    code = "DELTA_FEATURE_CAN_ONLY_DROP_CHECKPOINT_PROTECTION_WITH_HISTORY_TRUNCATION"
    template = "The table feature {feature} can be dropped only together with the history that it protects."
    hint = "Call drop_feature({feature!r}, truncate_history=True)."


class FeatureStillNeeded(FeatureDropRefused):
    """Other features of the table build on it."""

    code = "DELTA_FEATURE_DROP_DEPENDENT_FEATURE"
    template = "The table feature {feature} cannot be dropped: {dependents} of the table need it."
    hint = "Drop those first."


class ConstraintsLeft(FeatureDropRefused):
    """The table has constraints, and dropping a feature must not change what the table means."""

    code = "DELTA_CANNOT_DROP_CHECK_CONSTRAINT_FEATURE"
    template = "The table feature {feature} cannot be dropped: the table has the constraints {constraints}."
    hint = "Drop them first with drop_constraint(...)."


class HistoryMustAge(TableError):
    """The newest version no longer uses the feature, but versions that can still be read do."""

    template = (
        "The table feature {feature} is no longer used, but stays in the protocol while older versions use it: "
        "they are kept for {retention} ({retention_key}), or for {truncate_retention} if the history is truncated."
    )
    hint = "Wait until they have expired, then call drop_feature({feature!r}, truncate_history=True) again."


class DropWaits(HistoryMustAge):
    """The traces of the feature have just been removed from the newest version: that much is done."""

    code = "DELTA_FEATURE_DROP_WAIT_FOR_RETENTION_PERIOD"


class HistoryUsesFeature(HistoryMustAge):
    """Older versions that can still be read use the feature."""

    code = "DELTA_FEATURE_DROP_HISTORICAL_VERSIONS_EXIST"


class ProtectionWaits(TableError):
    """Versions whose checkpoints are protected can still be read."""

    code = "DELTA_FEATURE_DROP_CHECKPOINT_PROTECTION_WAIT_FOR_RETENTION_PERIOD"
    template = (
        "The table feature {feature} cannot be dropped yet: versions before {version}, which it protects, are left; "
        "they are kept for {retention}."
    )
    hint = "Wait until they have expired, then call drop_feature({feature!r}, truncate_history=True) again."


class BarrierFailed(TableError):
    """A checkpoint that is to stand before the downgrade could not be written."""

    code = "DELTA_FEATURE_DROP_CHECKPOINT_FAILED"
    template = "The table feature {feature} is not dropped: a checkpoint of version {version} could not be written."
    hint = "Repeat the call; the log of Python tells what went wrong."


class DropConflict(ContentionError):
    """Somebody began to use the feature again while it was being dropped."""

    code = "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"
    template = "Version {version} of {location} uses the table feature {feature} again: somebody enabled it meanwhile."
    hint = "The feature is not dropped. Repeat the call when nobody else changes the table."
