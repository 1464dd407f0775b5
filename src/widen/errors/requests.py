"""An argument, a statement, a source or the environment of a call cannot be used."""

from __future__ import annotations

from widen.errors.family import RequestError


class InvalidOption(RequestError):
    """An argument, an option or a property has an invalid value."""

    code = "WIDEN_INVALID_OPTION"
    template = "{option} cannot be {value!r}."
    hint = "{expected}"


class OptionMissing(InvalidOption):
    """An argument or an option that the call needs is not given."""

    code = "WIDEN_OPTION_MISSING"
    template = "{option} is missing."
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
    hint = "Call add_feature({feature!r}) first; older clients may then no longer be able to open the table."


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
        "A shorter time can delete files of running writes and readers. If there are none, say so: force=True in "
        "Python, --force on the command line."
    )


class SparkUnavailable(RequestError):
    """The call needs Spark, and Spark cannot be started."""

    code = "WIDEN_SPARK_MISSING"
    template = "This call needs Spark, which cannot be started: {reason}."
    hint = "{fix}"


class PackageMissing(RequestError):
    """The call needs an optional package that is not installed."""

    code = "WIDEN_PACKAGE_MISSING"
    template = "This call needs the package {package}, which is not installed."
    hint = "Install it with: pip install {package}"


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
    template = "{place} more than {limit} keys in this batch ({keys} so far): they are probably data and not names."
    hint = "Nothing was written. {fix}"


def too_many_keys(field: str, keys: int, limit: int) -> TooManyKeys:
    """Return the error for a field, or for the records themselves if the name is empty."""
    place = f"The objects of field {field} have" if field else "The records have"
    ways = f"--detect-maps or --pin '{field}=map' reads them as a map, or --exclude leaves it out" if field else ""
    fix = f"{ways}; or raise max_keys (--max-keys)." if ways else "Raise max_keys (--max-keys), or correct the source."
    return TooManyKeys(place=place, keys=f"{keys:,}", limit=f"{limit:,}", fix=fix)


class EvolutionRefused(RequestError):
    """The policy does not allow the schema changes that the batch needs."""

    code = "WIDEN_EVOLUTION_REFUSED"
    template = "The batch needs schema changes that the policy {policy} does not allow:\n{plan}"
    hint = "Nothing was written. Ingest with evolve='widen' or 'split' (--evolve), or correct the source."


class UnmatchedFields(RequestError):
    """Options name fields that do not exist, or pin a field to a type that its column does not have."""

    code = "WIDEN_FIELDS_UNMATCHED"
    template = "Options have no effect: {fields}."
    hint = (
        "Nothing was written. Correct the names. If a field comes and goes, allow_unmatched (--allow-unmatched) lets "
        "masks and exclusions name it; for other options, omit strict to get a warning instead."
    )


class PlanChanged(RequestError):
    """The plan of the batch is not the plan that was approved."""

    code = "WIDEN_PLAN_CHANGED"
    template = "The plan of the batch is {found}, not {wanted}:\n{plan}"
    hint = "Nothing was written. Review the plan of this batch, and ingest with its hash."
