"""Every error that Widen raises, in one tree.

WidenError
├── RequestError            the caller asked for what the protocol or the policy forbids
│   ├── InvalidOption
│   ├── InvalidType
│   ├── InvalidPath
│   ├── InvalidStatement    a text of SQL is none that we understand
│   ├── ColumnNotFound
│   ├── TypeChangeRefused
│   │   └── NestedTypeChangeRefused   a struct, an array or a map as a whole
│   ├── SchemaMismatch
│   ├── FeatureRequired     a change needs a table feature that must be enabled by hand
│   ├── AppendOnlyTable     the table promises never to lose a row
│   ├── EngineMissing       what was asked for runs on Spark, and Spark cannot be started
│   ├── SourceError         the input of an ingestion cannot be used
│   └── EvolutionRefused    the policy forbids the changes that a batch needs
├── TableError              what is on disk breaks the protocol, or needs a feature we lack
│   ├── TableNotFound
│   ├── TableAlreadyExists
│   ├── VersionNotFound
│   ├── CorruptLog
│   ├── CorruptFile
│   ├── UnsupportedFeature
│   │   ├── UnsupportedFeatureForRead
│   │   └── UnsupportedFeatureForWrite
│   ├── UnsupportedTypeChange
│   ├── EnabledWithoutFeature   a property without the feature that it switches on
│   ├── JobFailed           Spark could not finish a job
│   └── StorageError        the store refused: permission, space, network
│       └── FileMissing     a file that should be there is not
├── ContentionError         nobody is wrong: somebody else committed first
│   ├── MetadataChanged
│   ├── ProtocolChanged
│   ├── ConcurrentAppend
│   ├── ConcurrentDelete
│   ├── ConcurrentTransaction
│   ├── AttemptsExhausted   every attempt lost the race
│   └── CommitUnknown       the store did not say whether the commit was written
└── InternalError           Widen is wrong

The family says who must act. Every class has a stable ``code`` (Delta's error class where Delta has one),
typed fields that name what was wrong, one message built from them, and a hint that shows the way out.
"""

from __future__ import annotations

from typing import ClassVar


class WidenError(Exception):
    """The base of every error of this library.

    A subclass declares its ``code``, a ``template`` for the message and a ``hint``; its fields are given
    as keywords, fill both texts and stay readable on the exception.

    Args:
        fields: The values for the placeholders of ``template`` and ``hint``.

    Source: house rule: the error type says who must act, the message shows how.
    """

    code: ClassVar[str] = "WIDEN_ERROR"
    template: ClassVar[str] = "{reason}"
    hint: ClassVar[str] = ""

    def __init__(self, **fields: object) -> None:
        self.fields = fields
        super().__init__(self.template.format(**fields))

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.fields)

    @property
    def message(self) -> str:
        """What happened, without code and hint."""
        return str(self.args[0])

    @property
    def advice(self) -> str:
        """What to do about it; empty if the message says it all."""
        return self.hint.format(**self.fields)

    def __str__(self) -> str:
        text = f"[{self.code}] {self.message}"
        return f"{text} {self.advice}" if self.hint else text


def _rebuild(kind: type[WidenError], fields: dict[str, object]) -> WidenError:
    return kind(**fields)


# ---- request ---------------------------------------------------------------------------------------


class RequestError(WidenError):
    """The caller asked for what the protocol or the policy forbids."""


class InvalidOption(RequestError):
    """An argument, an option or a property has a value that cannot be used."""

    code = "WIDEN_INVALID_OPTION"
    template = "{option} cannot be {value!r}."
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
    template = "The statement cannot be understood: {reason}."
    hint = "Understood are:\n{understood}"


class ColumnNotFound(RequestError):
    """No column of that name is in the schema."""

    code = "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"
    template = "Column {column} is not in the schema."
    hint = "At that level there are: {available}."


class TypeChangeRefused(RequestError):
    """The protocol knows no such widening, or it is not enabled."""

    code = "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"
    template = "Column {column} cannot be changed from {old} to {new}: {reason}."
    hint = "{fix}"


class NestedTypeChangeRefused(TypeChangeRefused):
    """A struct, an array or a map cannot change its type as a whole."""

    code = "CANNOT_UPDATE_FIELD"
    hint = "Change its leaves: {fix}"


class SchemaMismatch(RequestError):
    """The data do not fit the table and the call does not allow the schema to change."""

    code = "DELTA_METADATA_MISMATCH"
    template = "The data do not fit the table: {reason}."
    hint = "{fix}"


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


# ---- table -----------------------------------------------------------------------------------------


class TableError(WidenError):
    """What is on disk breaks the protocol, or needs a feature that we lack."""


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


class EnabledWithoutFeature(TableError):
    """A property switches on a feature that the protocol of the table does not list."""

    code = "DELTA_FEATURE_ENABLED_WITHOUT_SUPPORT"
    template = "The table sets {property} to true, but its protocol does not list the feature {feature}."
    hint = "Repair it with add_feature({feature!r}) or unset_properties([{property!r}])."


class JobFailed(TableError):
    """Spark could not finish a job."""

    code = "WIDEN_JOB_FAILED"
    template = "Spark could not finish a job: {reason}."
    hint = "Nothing of it is visible. The log of Spark tells more."


class StorageError(TableError):
    """The store refused: permission, space, network."""

    code = "WIDEN_STORAGE"
    template = "{location}: {reason}."
    hint = "{fix}"


class FileMissing(StorageError):
    """A file that should be there is not."""

    code = "WIDEN_FILE_MISSING"


# ---- contention ------------------------------------------------------------------------------------


class ContentionError(WidenError):
    """Nobody is wrong: somebody else committed first."""

    template = "Version {version} of {location} was committed meanwhile: {reason}."
    hint = "Nothing of this attempt is visible. Open the table again and repeat the call."


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
    """Somebody removed a file that this change reads or removes."""

    code = "DELTA_CONCURRENT_DELETE_READ"


class ConcurrentTransaction(ContentionError):
    """Somebody committed the same application transaction meanwhile."""

    code = "DELTA_CONCURRENT_TRANSACTION"


class AttemptsExhausted(ContentionError):
    """Every attempt lost the race for its version."""

    code = "WIDEN_ATTEMPTS_EXHAUSTED"


class CommitUnknown(ContentionError):
    """The store did not say whether the commit was written."""

    code = "WIDEN_COMMIT_UNKNOWN"
    template = "Whether version {version} of {location} was written is not known: {reason}."
    hint = "Look at the newest versions with `widen history {location}` before you repeat the call."


# ---- internal --------------------------------------------------------------------------------------


class InternalError(WidenError):
    """Widen is wrong. Please report it."""

    code = "WIDEN_INTERNAL"
    template = "{reason}"
    hint = "This is a defect of Widen; please report it with the text above."
