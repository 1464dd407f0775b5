"""The caller asked for what the protocol or the policy forbids.

Source: house rule: the error type says who must act, the message shows how.
"""

from __future__ import annotations

from widen.errors.family import RequestError


class InvalidOption(RequestError):
    """An argument, an option or a property has a value that cannot be used."""

    code = "WIDEN_INVALID_OPTION"
    template = "{option} cannot be {value!r}."
    hint = "{expected}"


class InvalidConfig(RequestError):
    """A file of settings cannot be used."""

    code = "WIDEN_INVALID_CONFIG"
    template = "{place}: {reason}."
    hint = "{expected}"


class InvalidType(RequestError):
    """A type text cannot be read."""

    code = "WIDEN_INVALID_TYPE"
    template = "{text!r} is no type: {reason}."
    hint = "Write it as in Spark SQL, e.g. bigint, decimal(12,2), array<int>, struct<a: int, b: string>."


class InvalidPath(RequestError):
    """A column path cannot be read."""

    code = "WIDEN_INVALID_PATH"
    template = "{text!r} is no column path: {reason}."
    hint = "Separate parts with dots, quote odd names with back-ticks; say element, key, value inside arrays and maps."


class InvalidStatement(RequestError):
    """A text of SQL is no statement, or none that this version understands."""

    code = "WIDEN_INVALID_STATEMENT"
    template = "The statement cannot be understood in line {line}, column {column}:\n{excerpt}\n{reason}."
    hint = "{nearest}"


class NameNotFound(RequestError):
    """The catalog of the session has no Delta table of that name."""

    code = "TABLE_OR_VIEW_NOT_FOUND"
    template = "The catalog has no Delta table {name}: {reason}."
    hint = "Name it by its path, delta.`/path`, or use the session whose catalog knows it."


class FeatureRequired(RequestError):
    """The change needs a table feature that must be enabled by hand first."""

    code = "DELTA_FEATURES_REQUIRE_MANUAL_ENABLEMENT"
    template = "The change needs the table feature {feature}, which the table does not have (it has: {supported})."
    hint = "Enable it with add_feature({feature!r}) first; older clients may then no longer open the table."


class AppendOnlyTable(RequestError):
    """The change would remove rows from a table that only takes new ones."""

    code = "DELTA_CANNOT_MODIFY_APPEND_ONLY"
    template = "The table at {location} is append-only, and {operation} would remove rows."
    hint = "Unset the property delta.appendOnly first, if that is really meant."


class EngineMissing(RequestError):
    """What was asked for runs on Spark, and Spark cannot be started."""

    code = "WIDEN_SPARK_MISSING"
    template = "This runs on Spark, which cannot be started: {reason}."
    hint = "{fix}"


class UnsupportedSpark(RequestError):
    """The installed Spark, or the server that a session is connected to, is too old."""

    code = "WIDEN_SPARK_TOO_OLD"
    template = "Widen needs Spark {needed} or later; this is {found}."
    hint = "Install a newer one with: pip install --upgrade 'widen[spark]'"


class SourceError(RequestError):
    """The input of an ingestion cannot be used."""

    code = "WIDEN_SOURCE_UNUSABLE"
    template = "{source}: {reason}."
    hint = "{fix}"


class EvolutionRefused(RequestError):
    """The policy forbids the changes that this batch needs."""

    code = "WIDEN_EVOLUTION_REFUSED"
    template = "The batch needs changes that the policy {policy} does not allow:\n{plan}"
    hint = "Nothing was written. Ingest with evolve='widen' or 'split', or repair the source."


class FieldsUnmatched(RequestError):
    """Options name fields that are not there, or pin one to another type than its column has; nothing was written."""

    code = "WIDEN_FIELDS_UNMATCHED"
    template = "Options have no effect: {fields}."
    hint = "Correct the names, or leave strict out to go on with a warning."


class PlanChanged(RequestError):
    """The batch leads to another plan than the one that was agreed to."""

    code = "WIDEN_PLAN_CHANGED"
    template = "The batch leads to the plan {found}, not to {wanted}:\n{plan}"
    hint = "Nothing was written. Look at the plan of this batch, and ingest with its hash."
