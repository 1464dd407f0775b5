"""Every error that Widen raises, in one tree.

WidenError
├── RequestError            the caller asked for what the protocol or the policy forbids
│   ├── InvalidOption
│   ├── InvalidConfig       a file of settings cannot be read, or says what nobody asks for
│   ├── FieldsUnmatched     options name fields that are not there
│   ├── InvalidType
│   ├── InvalidPath
│   ├── InvalidStatement    a text of SQL is none that we understand
│   ├── NameNotFound        the catalog knows no such table
│   ├── ColumnRefused       a change of columns that cannot be
│   │   ├── ColumnNotFound
│   │   │   ├── ArrayStepNotFound     the path lacks the step element
│   │   │   ├── MapStepNotFound       the path lacks the step key or value
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
│   ├── SchemaMismatch      the data do not fit the table, and the call allows no change that would help
│   │   ├── IncompatibleTypes     not even a cast would help
│   │   ├── ConstraintTypeMismatch
│   │   ├── GeneratedColumnTypeMismatch
│   │   └── ColumnMissingInSource
│   ├── RowRefused          a row that the table may not hold
│   │   ├── NotNullViolated
│   │   ├── CheckViolated
│   │   ├── TextTooLong
│   │   ├── CastOverflow
│   │   │   └── AssignedOverflow
│   │   └── OutsideReplaceWhere
│   ├── ChangeRefused       what is asked of the rows is not clear, or cannot be done
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
│   │   ├── FoldRefused         a column that evolved cannot go back into another one
│   │   └── FoldLoses           likewise not without loss
│   ├── IdentityColumnGiven
│   ├── IdentityExhausted
│   ├── IcebergIncompatible
│   ├── ChangesRefused      changes between versions that cannot be told
│   │   ├── ChangesNotRecorded
│   │   ├── ChangesInOtherTypes
│   │   └── ColumnsChangedBetween
│   ├── FeatureDropRefused
│   │   ├── FeatureIsProperty · FeatureNotPresent · FeatureNotRemovable · FeatureNotKnown · TruncationNotAllowed
│   │   └── TruncationRequired · FeatureStillNeeded · ConstraintsLeft
│   ├── FeatureRequired     a change needs a table feature that must be enabled by hand
│   ├── AppendOnlyTable     the table promises never to lose a row
│   ├── EngineMissing       what was asked for runs on Spark, and Spark cannot be started
│   ├── UnsupportedSpark    the installed Spark, or the server of a session, is too old
│   ├── SourceError         the input of an ingestion cannot be used
│   ├── EvolutionRefused    the policy forbids the changes that a batch needs
│   └── PlanChanged         a batch leads to another plan than the one that was agreed to
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
│   ├── NothingToStore      no row can be written, for nothing of it would be in a file
│   ├── VoidInItems         likewise, inside arrays and maps
│   ├── EnabledWithoutFeature   a property without the feature that it switches on
│   ├── HistoryMustAge      a feature stays in the protocol while older versions use it
│   │   ├── DropWaits
│   │   └── HistoryUsesFeature
│   ├── ProtectionWaits
│   ├── BarrierFailed       a checkpoint that must be there could not be written
│   ├── JobFailed           Spark could not finish a job
│   ├── AfterCommitFailed   the change is committed, and what follows the commit failed
│   └── StorageError        the store refused: permission, space, network
│       ├── StorageRefused  the store refused for certain: nothing was written
│       │   └── UnsafeStore   the store overwrites what is only to be created
│       └── FileMissing     a file that should be there is not
├── ContentionError         nobody is wrong: somebody else committed first
│   ├── MetadataChanged · ProtocolChanged · ConcurrentAppend · ConcurrentTransaction
│   ├── ConcurrentDelete
│   │   └── ConcurrentDeleteDelete
│   ├── DropConflict        somebody uses a feature again that is being dropped
│   ├── AttemptsExhausted   every attempt lost the race
│   ├── BaseExpired         the version that a change was made for was cleaned up
│   └── CommitUnknown       the store did not say whether the commit was written
└── InternalError           Widen is wrong

The family says who must act. Every class has a stable ``code`` (Delta's error class where Delta has one),
typed fields that name what was wrong, one message built from them, and a hint that shows the way out.
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
