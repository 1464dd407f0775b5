"""Every error that Widen raises, in one tree.

WidenError
├── RequestError            the call asks for something that is not allowed: change the call
│   ├── InvalidOption
│   ├── InvalidConfig       a configuration file cannot be read, or has an invalid setting
│   ├── FieldsUnmatched     options name fields that do not exist
│   ├── InvalidType
│   ├── InvalidPath
│   ├── InvalidStatement    a SQL statement cannot be parsed, or is not supported
│   ├── NameNotFound        the catalog does not have the table
│   ├── ColumnRefused       a change of columns that is not allowed
│   │   ├── ColumnNotFound
│   │   │   ├── ArrayStepNotFound     the path needs the step element
│   │   │   ├── MapStepNotFound       the path needs the step key or value
│   │   │   └── PathNotNested
│   │   ├── ColumnAlreadyExists
│   │   ├── InvalidColumnName
│   │   ├── TypeChangeRefused
│   │   │   ├── NestedTypeChangeRefused   a struct, an array or a map as a whole
│   │   │   └── GeneratedColumnTypeFixed
│   │   ├── ConstraintDependsOnColumn
│   │   ├── GeneratedColumnDependsOnColumn
│   │   ├── IdentityColumnFixed
│   │   ├── NoIdentityColumn
│   │   ├── IdentityReplaceRefused
│   │   ├── ItemCommentRefused · ItemRenameRefused · RenameRefused
│   │   ├── DropRefused · PartitionColumnDropRefused · ClusteringColumnDropRefused · LastColumnDropRefused
│   │   ├── NewColumnNotNull · NestedNotNull · NullsInColumn
│   │   ├── DefaultsNotEnabled · InvalidDefault · InvalidGeneration · NewColumnDefaultRefused
│   │   ├── ReplaceColumnsRefused
│   │   └── AmbiguousReplacement
│   ├── ConstraintRefused
│   │   ├── InvalidConstraint
│   │   │   └── ConstraintNotBoolean
│   │   └── InvalidConstraintName · ConstraintAlreadyExists · ConstraintNotFound · ConstraintViolated
│   ├── SchemaMismatch      the data do not fit the table
│   │   ├── IncompatibleTypes     the data cannot be cast either
│   │   ├── ConstraintTypeMismatch
│   │   ├── GeneratedColumnTypeMismatch
│   │   └── ColumnMissingInSource
│   ├── RowRefused          a row violates a rule of the table
│   │   ├── NotNullViolated
│   │   ├── CheckViolated
│   │   ├── TextTooLong
│   │   ├── CastOverflow
│   │   │   └── AssignedOverflow
│   │   └── OutsideReplaceWhere
│   ├── ChangeRefused       a change of rows is ambiguous or not supported
│   │   ├── AssignmentConflict
│   │   ├── ItemAssignmentRefused
│   │   ├── OverwriteRefused
│   │   │   ├── ReplaceWhereInPartitions
│   │   │   └── NewSchemaInPartitions
│   │   ├── NotDeterministic
│   │   ├── ConditionRefused
│   │   ├── MergeWithoutClause
│   │   ├── UnreachableClause
│   │   ├── AmbiguousMerge
│   │   ├── FoldRefused         a sibling column cannot be folded into the given column
│   │   └── FoldLoses           folding would lose values
│   ├── IdentityColumnGiven
│   ├── IdentityExhausted
│   ├── IcebergIncompatible
│   ├── ChangesRefused      the changes between two versions cannot be read
│   │   ├── ChangesNotRecorded
│   │   ├── ChangesInOtherTypes
│   │   └── ColumnsChangedBetween
│   ├── FeatureDropRefused
│   │   ├── FeatureIsProperty · FeatureNotPresent · FeatureNotRemovable · FeatureNotKnown · TruncationNotAllowed
│   │   └── TruncationRequired · FeatureStillNeeded · ConstraintsLeft
│   ├── FeatureRequired     a change needs a table feature that must be enabled explicitly
│   ├── AppendOnlyTable     the change would remove rows from an append-only table
│   ├── EngineMissing       the call needs Spark, and Spark cannot be started
│   ├── UnsupportedSpark    the installed Spark, or the server of a session, is too old
│   ├── SourceError         the source of an ingestion cannot be used
│   ├── EvolutionRefused    the policy does not allow the schema changes that a batch needs
│   └── PlanChanged         the plan of a batch is not the plan that was approved
├── TableError              the table or its storage is at fault: repair it, or use another client
│   ├── TableNotFound
│   ├── TableAlreadyExists
│   ├── VersionNotFound
│   ├── CorruptLog
│   ├── CorruptFile
│   ├── UnsupportedFeature
│   │   ├── UnsupportedFeatureForRead
│   │   └── UnsupportedFeatureForWrite
│   ├── UnsupportedTypeChange
│   ├── NothingToStore      the table has no column that is stored in files
│   ├── VoidInItems         a void column inside an array or a map
│   ├── EnabledWithoutFeature   a property enables a feature that the protocol does not list
│   ├── HistoryMustAge      a feature must stay in the protocol while older versions use it
│   │   ├── DropWaits
│   │   └── HistoryUsesFeature
│   ├── ProtectionWaits
│   ├── BarrierFailed       a checkpoint that a downgrade needs could not be written
│   ├── JobFailed           a Spark job failed
│   ├── AfterCommitFailed   the change is committed, but a step after the commit failed
│   └── StorageError        the store reported an error: permission, space, network
│       ├── StorageRefused  the store rejected the write: nothing was written
│       │   └── UnsafeStore   the store overwrites existing files although asked not to
│       └── FileMissing     a file does not exist
├── ContentionError         another writer committed first: try again
│   ├── MetadataChanged · ProtocolChanged · ConcurrentAppend · ConcurrentTransaction
│   ├── ConcurrentDelete
│   │   └── ConcurrentDeleteDelete
│   ├── DropConflict        another writer uses the feature again that is being dropped
│   ├── AttemptsExhausted   another writer won the version in every attempt
│   ├── BaseExpired         the version that the change is based on was cleaned up
│   └── CommitUnknown       the store did not report whether the commit was written
└── InternalError           a defect of Widen: report it

The family says who must act. Every class has a stable ``code`` (Delta's error class where Delta has one),
typed fields, a message built from them (what is wrong, where) and a hint (what to do).
"""

from __future__ import annotations

from widen.errors.change_data_feeds import (
    ChangesInOtherTypes,
    ChangesNotRecorded,
    ChangesRefused,
    ColumnsChangedBetween,
)
from widen.errors.columns import (
    AmbiguousReplacement,
    ArrayStepNotFound,
    ClusteringColumnDropRefused,
    ColumnAlreadyExists,
    ColumnNotFound,
    ColumnRefused,
    ConstraintDependsOnColumn,
    DefaultsNotEnabled,
    DropRefused,
    GeneratedColumnDependsOnColumn,
    GeneratedColumnTypeFixed,
    IdentityColumnFixed,
    IdentityReplaceRefused,
    InvalidColumnName,
    InvalidDefault,
    InvalidGeneration,
    ItemCommentRefused,
    ItemRenameRefused,
    LastColumnDropRefused,
    MapStepNotFound,
    NestedNotNull,
    NestedTypeChangeRefused,
    NewColumnDefaultRefused,
    NewColumnNotNull,
    NoIdentityColumn,
    NullsInColumn,
    PartitionColumnDropRefused,
    PathNotNested,
    RenameRefused,
    ReplaceColumnsRefused,
    TypeChangeRefused,
)
from widen.errors.constraints import (
    ConstraintAlreadyExists,
    ConstraintNotBoolean,
    ConstraintNotFound,
    ConstraintRefused,
    ConstraintViolated,
    InvalidConstraint,
    InvalidConstraintName,
)
from widen.errors.contention import (
    AttemptsExhausted,
    BaseExpired,
    CommitUnknown,
    ConcurrentAppend,
    ConcurrentDelete,
    ConcurrentDeleteDelete,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
)
from widen.errors.family import ContentionError, InternalError, RequestError, TableError, WidenError
from widen.errors.feature_drops import (
    BarrierFailed,
    ConstraintsLeft,
    DropConflict,
    DropWaits,
    FeatureDropRefused,
    FeatureIsProperty,
    FeatureNotKnown,
    FeatureNotPresent,
    FeatureNotRemovable,
    FeatureStillNeeded,
    HistoryMustAge,
    HistoryUsesFeature,
    ProtectionWaits,
    TruncationNotAllowed,
    TruncationRequired,
)
from widen.errors.requests import (
    AppendOnlyTable,
    EngineMissing,
    EvolutionRefused,
    FeatureRequired,
    FieldsUnmatched,
    InvalidConfig,
    InvalidOption,
    InvalidPath,
    InvalidStatement,
    InvalidType,
    NameNotFound,
    PlanChanged,
    SourceError,
    UnsupportedSpark,
)
from widen.errors.row_changes import (
    AmbiguousMerge,
    AssignedOverflow,
    AssignmentConflict,
    ChangeRefused,
    ColumnMissingInSource,
    ConditionRefused,
    FoldLoses,
    FoldRefused,
    ItemAssignmentRefused,
    MergeWithoutClause,
    NewSchemaInPartitions,
    NotDeterministic,
    OutsideReplaceWhere,
    OverwriteRefused,
    ReplaceWhereInPartitions,
    UnreachableClause,
)
from widen.errors.rows import (
    CastOverflow,
    CheckViolated,
    ConstraintTypeMismatch,
    GeneratedColumnTypeMismatch,
    IcebergIncompatible,
    IdentityColumnGiven,
    IdentityExhausted,
    IncompatibleTypes,
    NotNullViolated,
    RowRefused,
    SchemaMismatch,
    TextTooLong,
)
from widen.errors.tables import (
    AfterCommitFailed,
    CorruptFile,
    CorruptLog,
    EnabledWithoutFeature,
    FileMissing,
    JobFailed,
    NothingToStore,
    StorageError,
    StorageRefused,
    TableAlreadyExists,
    TableNotFound,
    UnsafeStore,
    UnsupportedFeature,
    UnsupportedFeatureForRead,
    UnsupportedFeatureForWrite,
    UnsupportedTypeChange,
    VersionNotFound,
    VoidInItems,
)

__all__ = [
    "AfterCommitFailed",
    "AmbiguousMerge",
    "AmbiguousReplacement",
    "AppendOnlyTable",
    "ArrayStepNotFound",
    "AssignedOverflow",
    "AssignmentConflict",
    "AttemptsExhausted",
    "BarrierFailed",
    "BaseExpired",
    "CastOverflow",
    "ChangeRefused",
    "ChangesInOtherTypes",
    "ChangesNotRecorded",
    "ChangesRefused",
    "CheckViolated",
    "ClusteringColumnDropRefused",
    "ColumnAlreadyExists",
    "ColumnMissingInSource",
    "ColumnNotFound",
    "ColumnRefused",
    "ColumnsChangedBetween",
    "CommitUnknown",
    "ConcurrentAppend",
    "ConcurrentDelete",
    "ConcurrentDeleteDelete",
    "ConcurrentTransaction",
    "ConditionRefused",
    "ConstraintAlreadyExists",
    "ConstraintDependsOnColumn",
    "ConstraintNotBoolean",
    "ConstraintNotFound",
    "ConstraintRefused",
    "ConstraintTypeMismatch",
    "ConstraintViolated",
    "ConstraintsLeft",
    "ContentionError",
    "CorruptFile",
    "CorruptLog",
    "DefaultsNotEnabled",
    "DropConflict",
    "DropRefused",
    "DropWaits",
    "EnabledWithoutFeature",
    "EngineMissing",
    "EvolutionRefused",
    "FeatureDropRefused",
    "FeatureIsProperty",
    "FeatureNotKnown",
    "FeatureNotPresent",
    "FeatureNotRemovable",
    "FeatureRequired",
    "FeatureStillNeeded",
    "FieldsUnmatched",
    "FileMissing",
    "FoldLoses",
    "FoldRefused",
    "GeneratedColumnDependsOnColumn",
    "GeneratedColumnTypeFixed",
    "GeneratedColumnTypeMismatch",
    "HistoryMustAge",
    "HistoryUsesFeature",
    "IcebergIncompatible",
    "IdentityColumnFixed",
    "IdentityColumnGiven",
    "IdentityExhausted",
    "IdentityReplaceRefused",
    "IncompatibleTypes",
    "InternalError",
    "InvalidColumnName",
    "InvalidConfig",
    "InvalidConstraint",
    "InvalidConstraintName",
    "InvalidDefault",
    "InvalidGeneration",
    "InvalidOption",
    "InvalidPath",
    "InvalidStatement",
    "InvalidType",
    "ItemAssignmentRefused",
    "ItemCommentRefused",
    "ItemRenameRefused",
    "JobFailed",
    "LastColumnDropRefused",
    "MapStepNotFound",
    "MergeWithoutClause",
    "MetadataChanged",
    "NameNotFound",
    "NestedNotNull",
    "NestedTypeChangeRefused",
    "NewColumnDefaultRefused",
    "NewColumnNotNull",
    "NewSchemaInPartitions",
    "NoIdentityColumn",
    "NotDeterministic",
    "NotNullViolated",
    "NothingToStore",
    "NullsInColumn",
    "OutsideReplaceWhere",
    "OverwriteRefused",
    "PartitionColumnDropRefused",
    "PathNotNested",
    "PlanChanged",
    "ProtectionWaits",
    "ProtocolChanged",
    "RenameRefused",
    "ReplaceColumnsRefused",
    "ReplaceWhereInPartitions",
    "RequestError",
    "RowRefused",
    "SchemaMismatch",
    "SourceError",
    "StorageError",
    "StorageRefused",
    "TableAlreadyExists",
    "TableError",
    "TableNotFound",
    "TextTooLong",
    "TruncationNotAllowed",
    "TruncationRequired",
    "TypeChangeRefused",
    "UnreachableClause",
    "UnsafeStore",
    "UnsupportedFeature",
    "UnsupportedFeatureForRead",
    "UnsupportedFeatureForWrite",
    "UnsupportedSpark",
    "UnsupportedTypeChange",
    "VersionNotFound",
    "VoidInItems",
    "WidenError",
]
