"""An argument, a statement, a source or the environment of a call cannot be used."""

from __future__ import annotations

from widen.errors.family import ContentionError, RequestError, TableError, has_credentials


class InvalidOption(RequestError):
    """An argument, an option or a property has an invalid value."""

    code = "WIDEN_INVALID_OPTION"
    template = "{option} cannot be {value!r}."
    hint = "{expected}"


def ensure_without_credentials(option: str, address: str) -> None:
    """Check that an address has no credentials: it is shown, and recorded in tables that many can read.

    Args:
        option: What the caller names the address.

    Raises:
        InvalidOption: the address has credentials.
    """
    if has_credentials(address):
        expected = "Must not contain credentials: pass them as storage options, or set them in the environment."
        raise InvalidOption(option=option, value=address, expected=expected)


class OptionMissing(InvalidOption):
    """An argument or an option that the call needs is not given."""

    code = "WIDEN_OPTION_MISSING"
    template = "{option} is missing."
    hint = "{expected}"


class OptionConflict(InvalidOption):
    """Two arguments or options exclude each other."""

    code = "WIDEN_OPTION_CONFLICT"
    template = "{option} cannot be used together with {other_option}."
    hint = "{expected}"


class InvalidConfig(RequestError):
    """A configuration file cannot be read, or has an unknown setting or an invalid value."""

    code = "WIDEN_INVALID_CONFIG"
    template = "{place}: {reason}."
    hint = "{expected}"


class InvalidType(RequestError):
    """A string is not a valid type."""

    code = "WIDEN_INVALID_TYPE"
    template = "{text!r} is not a valid type: {reason}."
    hint = "Use the syntax of Spark SQL, e.g. bigint, decimal(12,2), array<int>, struct<a: int, b: string>."


class InvalidPath(RequestError):
    """A string is not a valid column path."""

    code = "WIDEN_INVALID_PATH"
    template = "{text!r} is not a valid column path: {reason}."
    hint = (
        "Separate names with dots, quote special characters with backticks, use element, key or value in collections."
    )


class InvalidStatement(RequestError):
    """A SQL statement cannot be parsed, or is not supported."""

    code = "WIDEN_INVALID_STATEMENT"
    template = "The statement cannot be parsed at line {line}, column {column}:\n{excerpt}\n{reason}."
    hint = "{nearest}"


class NameNotFound(RequestError):
    """The catalog of the session does not have a Delta table of that name."""

    code = "TABLE_OR_VIEW_NOT_FOUND"
    template = "The catalog does not have a Delta table {name}: {reason}."
    hint = "Use its path, delta.`/path`, or the session that has the table in its catalog."


class FeatureRequired(RequestError):
    """The change needs a table feature that must be enabled explicitly."""

    code = "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"
    template = (
        "The change needs the table feature {feature}, which the table does not support (it supports: {supported})."
    )
    hint = "{fix}"


class AppendOnlyTable(RequestError):
    """The change would remove rows from an append-only table."""

    code = "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    template = "The table at {location} is append-only, and {operation} would remove rows."
    hint = "To allow this, unset the property delta.appendOnly first."


class RetentionTooShort(RequestError):
    """A vacuum would delete files that the retention of the table protects."""

    code = "DELTA_VACUUM_RETENTION_PERIOD_TOO_SHORT"
    template = "A vacuum of {location} must keep files for {least} hours, the retention of the table, not for {hours}."
    hint = (
        "A shorter time can delete files of running writes and readers. If there are none, pass force=True in "
        "Python or --force on the command line."
    )


class NotForIceberg(RequestError, AttributeError):
    """A method, a command or a statement is for Delta tables only."""

    code = "WIDEN_NOT_FOR_ICEBERG"
    template = "{name} does not apply to Iceberg tables."
    hint = "{reason}."


class SparkUnavailable(RequestError):
    """The call needs Spark, and Spark cannot be started."""

    code = "WIDEN_SPARK_MISSING"
    template = "This call needs Spark, which cannot be started: {reason}."
    hint = "{fix}"


class EngineUnsuitable(RequestError):
    """The call needs Spark, and the caller does not want it."""

    code = "WIDEN_ENGINE_UNSUITABLE"
    template = "This call needs Spark, because {reason}."
    hint = "Set WIDEN_ENGINE=auto, or pass --engine auto (engine='auto')."


class PackageMissing(RequestError):
    """The call needs an optional package that is not installed."""

    code = "WIDEN_PACKAGE_MISSING"
    template = "This call needs the package {package}, which is not installed."
    hint = "Install it with: pip install '{package}'"


class UnsupportedSpark(RequestError):
    """The installed Spark, or the server that the session is connected to, is too old."""

    code = "WIDEN_SPARK_TOO_OLD"
    template = "Widen needs Spark {needed} or later; this is {found}."
    hint = "Install a newer version with: pip install --upgrade 'widen[spark]'"


class SourceError(RequestError):
    """The source of an ingestion cannot be used."""

    code = "WIDEN_SOURCE_UNUSABLE"
    template = "{source}: {reason}."
    hint = "{fix}"


class SourceContentError(SourceError):
    """What a file of the source holds cannot be loaded: another separator, or a type that no column can have."""

    code = "WIDEN_SOURCE_CONTENT"


class SourceChanged(SourceError):
    """A file of the source changed between its listing and the end of the reading."""

    code = "WIDEN_SOURCE_CHANGED"
    template = "The source file {path} changed after it was listed: it {change}."


class FilesChanged(RequestError):
    """Files of the source have changed since the table loaded them."""

    code = "WIDEN_FILES_CHANGED"
    template = "Files have changed since {location} loaded them: {files}."
    hint = (
        "Nothing was written. Use changed='skip' (--changed skip) to leave them out, or changed='load' to load them "
        "again as a whole, which repeats the records that are loaded."
    )


class LimitExceeded(RequestError):
    """A batch is over a limit that the caller has set for it."""

    code = "WIDEN_LIMIT_EXCEEDED"
    template = "The batch is over a limit: {reasons}."
    hint = "Nothing was written. Correct the source, or raise the limit."


class TooManyKeys(RequestError):
    """The objects of a field have so many keys that these are data and not names."""

    code = "WIDEN_TOO_MANY_KEYS"
    template = "{place} more than {limit} keys in this batch ({keys}): they are probably data and not names."
    hint = "Nothing was written. {fix}"


def too_many_keys(field: str, keys: int, limit: int, file: str = "") -> TooManyKeys:
    """Return the error for a field, or for the records themselves if the name is empty.

    Args:
        file: The file that has most of the keys; empty if that is not known.
    """
    place = f"The objects of field {field} have" if field else "The records have"
    ways = f"--detect-maps or --pin '{field}=map' reads them as a map, or --exclude leaves it out" if field else ""
    fix = f"{ways}; or raise max_keys (--max-keys)." if ways else "Raise max_keys (--max-keys), or correct the source."
    found = f"{keys:,} so far" + (f", most of them in {file}" if file else "")
    return TooManyKeys(place=place, keys=found, limit=f"{limit:,}", fix=fix)


class EvolutionRefused(RequestError):
    """The policy does not allow the schema changes that the batch needs."""

    code = "WIDEN_EVOLUTION_REFUSED"
    template = "The batch needs schema changes that the policy {policy} does not allow:\n{plan}"
    hint = "Nothing was written. Ingest with evolve='widen' or 'split' (--evolve), or correct the source."


class UnmatchedFields(RequestError):
    """Options name fields that do not exist, or pin a field to a type that its column does not have."""

    code = "WIDEN_FIELDS_UNMATCHED"
    template = "Options have no effect: {fields}"
    hint = (
        "Nothing was written. Correct the names. If a field comes and goes, allow_unmatched (--allow-unmatched) lets "
        "masks and exclusions name it; for other options, omit strict to get a warning instead."
    )


class PlanChanged(RequestError):
    """The plan of the batch is not the plan that was approved."""

    code = "WIDEN_PLAN_CHANGED"
    template = "The plan of the batch is {found}, not {wanted}:\n{plan}"
    hint = "Nothing was written. Review the plan of this batch, and ingest with its hash."


# Spark's data source of Widen cannot read or write a table, or a stream of it must be started again.


class DataSourceRefused(RequestError):
    """The data source cannot read or write a table; a method of Table can."""

    code = "WIDEN_DATA_SOURCE_REFUSED"
    template = "The data source widen cannot {verb} {location}: {reason}."
    hint = "{fix}"


class MicroBatchTooLarge(RequestError):
    """A batch of rows is too large for the process that Spark gives a sink."""

    code = "WIDEN_MICRO_BATCH_TOO_LARGE"
    template = "The batch for {location} has {size} bytes, more than {limit}: a sink ingests it in one process."
    hint = (
        "Nothing was written. Limit the batches in the source of the stream (maxBytesPerTrigger, maxFilesPerTrigger, "
        "maxOffsetsPerTrigger), raise the option maxBatchBytes, or let Spark's tasks do the work: widen.ingest_stream, "
        "or widen.ingest in foreachBatch."
    )


class StreamRowsChanged(RequestError):
    """A version updated or deleted rows, which a stream of new rows cannot show."""

    code = "DELTA_SOURCE_TABLE_IGNORE_CHANGES"
    template = "Version {version} of {location} updated or deleted rows, which a stream of new rows cannot show."
    hint = (
        "Read the changes with readChangeFeed. Or skip such versions, with all their rows, with skipChangeCommits; "
        "ignoreDeletes skips only versions that deleted rows and wrote none."
    )


class StreamColumnsChanged(RequestError):
    """The columns of the table changed while a stream was reading it."""

    code = "DELTA_SCHEMA_CHANGED_WITH_VERSION"
    template = "Version {version} of {location} changed the columns that the stream reads, {old}, to {new}."
    hint = (
        "Start the stream again with the same checkpoint. It continues at version {version}, in the new columns and "
        "types; all earlier rows were processed."
    )


# A flow cannot start, or cannot go on.


class FlowChanged(RequestError):
    """The checkpoint of a flow belongs to another source, table, query or keys."""

    code = "WIDEN_FLOW_CHANGED"
    template = "The checkpoint {checkpoint} belongs to a different flow: {reason}."
    hint = (
        "To compute the table again, use rebuild=True (--rebuild), which replaces all of its rows in one commit. To "
        "keep both, use a different checkpoint and a different table."
    )


class FlowKeyRefused(RequestError):
    """A key of a flow cannot tell which rows to replace."""

    code = "WIDEN_FLOW_KEY_REFUSED"
    template = "The key {key} of the flow into {into} cannot be used: {reason}."
    hint = "{fix}"


class KeyRepeated(RequestError):
    """A batch without a sequence has different records of one key."""

    code = "WIDEN_KEY_REPEATED"
    template = "{count} keys of the batch have different records, and nothing says which of them is the newest."
    hint = (
        "Name the field that says so: sequence_by='updated_at' (--sequence-by updated_at). Or load the records in "
        "batches with one record for each key; the last batch then wins. Nothing was written."
    )


class SequenceRepeated(KeyRepeated):
    """A strict ingestion has different records of one key with the same sequence."""

    code = "WIDEN_SEQUENCE_REPEATED"
    template = "{count} keys have different records with the same {sequence_by}, so nothing says which is the newest."
    hint = (
        "Name a field that grows with every change of a row, such as the position in the log of the database. Or leave "
        "out strict (--strict): a fixed rule then says which record wins. Nothing was written."
    )


class FlowTaken(ContentionError):
    """Another process runs the same flow."""

    code = "WIDEN_FLOW_TAKEN"
    template = "Another process runs the flow into {location}: it has committed version {version} of the source."
    hint = (
        "Nothing of this batch is visible. Run each flow in one process only; it continues where the other one stopped."
    )


class StreamTaken(ContentionError):
    """Another process runs the same stream."""

    code = "WIDEN_STREAM_TAKEN"
    template = "Another process runs the stream with the checkpoint {checkpoint}: it has written {file}."
    hint = (
        "Run each stream in one process only, with a checkpoint of its own. Started again when the other one has "
        "ended, it continues where that one stopped."
    )


class SourceHistoryLost(TableError):
    """The source of a flow no longer has the changes that the flow has not read."""

    code = "WIDEN_SOURCE_HISTORY_LOST"
    template = "The changes of {location} cannot be read: {reason}."
    hint = (
        "Use rebuild=True (--rebuild) to compute the table again. To prevent this, run the flow more often than the "
        "source is vacuumed, or keep its log and its files longer."
    )


class SourceRowsRemoved(RequestError):
    """A flow without keys reads a source with updated or removed rows."""

    code = "WIDEN_SOURCE_ROWS_REMOVED"
    template = "The flow into {into} only appends rows, but rows of {location} were updated or removed in {versions}."
    hint = (
        "Give keys (--keys), so that rows with the same key are replaced; or use removed='skip' (--removed skip) to "
        "leave out these versions as a whole."
    )


# A table feature cannot be dropped, or not yet.
#
# Source: the error classes of Delta Spark's DROP FEATURE.


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
    hint = "Repeat the call. The cause is in the Python log."


class DropConflict(ContentionError):
    """Another writer began to use the feature again while it was being dropped."""

    code = "DELTA_FEATURE_DROP_CONFLICT_REVALIDATION_FAIL"
    template = (
        "Version {version} of {location} uses the table feature {feature} again: another writer enabled it in the "
        "meantime."
    )
    hint = "The feature was not dropped. Repeat the call when no other writer uses the feature."
