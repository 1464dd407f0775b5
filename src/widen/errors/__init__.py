"""Every error that Widen raises, in one tree.

WidenError
├── RequestError            the call asks for something that is not allowed: change the call
│   ├── InvalidOption
│   ├── InvalidConfig       a configuration file cannot be read, or has an invalid setting
│   ├── UnmatchedFields     options name fields that do not exist
│   ├── InvalidType · InvalidPath
│   ├── InvalidStatement    a SQL statement cannot be parsed, or is not supported
│   ├── NameNotFound        the catalog does not have the table
│   ├── ColumnRefused       a change of columns that is not allowed
│   │   ├── ColumnNotFound
│   │   │   └── ArrayStepNotFound · MapStepNotFound · PathNotNested   what is wrong with a step of the path
│   │   ├── ColumnAlreadyExists · InvalidColumnName
│   │   ├── TypeChangeRefused
│   │   │   └── NestedTypeChangeRefused · GeneratedColumnTypeFixed
│   │   ├── ConstraintDependsOnColumn · GeneratedColumnDependsOnColumn · IdentityColumnFixed · NotAnIdentityColumn
│   │   ├── IdentityReplaceRefused · ItemCommentRefused · ItemRenameRefused · RenameRefused · NewColumnNotNull
│   │   ├── DropRefused · PartitionColumnDropRefused · ClusteringColumnDropRefused · LastColumnDropRefused
│   │   ├── DefaultsNotEnabled · InvalidDefault · InvalidGeneration · NewColumnDefaultRefused · ReplaceColumnsRefused
│   │   └── AmbiguousReplacement · NestedNotNull · NullsInColumn · ColumnInUse
│   ├── ConstraintRefused
│   │   ├── InvalidConstraint
│   │   │   └── ConstraintNotBoolean
│   │   └── InvalidConstraintName · ConstraintAlreadyExists · ConstraintNotFound · ConstraintViolated
│   ├── SchemaMismatch      the data do not fit the table
│   │   ├── IncompatibleTypes     the data cannot be cast either
│   │   └── ConstraintTypeMismatch · GeneratedColumnTypeMismatch · ColumnMissingInSource
│   ├── RowRefused          a row violates a rule of the table
│   │   ├── NotNullViolated · CheckViolated · StringTooLong
│   │   ├── CastOverflow
│   │   │   └── AssignedOverflow
│   │   └── ReplaceWhereMismatch
│   ├── ChangeRefused       a change of rows is ambiguous or not supported
│   │   ├── AssignmentConflict · ItemAssignmentRefused
│   │   ├── OverwriteRefused
│   │   │   └── ReplaceWhereInPartitions · NewSchemaInPartitions
│   │   ├── NotDeterministic · InvalidCondition · MergeWithoutClause · UnreachableClause · AmbiguousMerge
│   │   └── FoldRefused · FoldLosesValues     a sibling column cannot be folded, or not without losing values
│   ├── IdentityColumnGiven · IdentityExhausted · IcebergIncompatible
│   ├── ChangeFeedRefused   the changes between two versions cannot be read
│   │   └── ChangeFeedNotRecorded · ChangeFeedSchemaMismatch · ChangeFeedSchemaChanged
│   ├── FeatureDropRefused
│   │   ├── FeatureIsProperty · FeatureNotPresent · FeatureNotRemovable · UnknownFeature · TruncationNotAllowed
│   │   └── TruncationRequired · FeatureStillNeeded · ConstraintsRemain
│   ├── FeatureRequired     a change needs a table feature that must be enabled explicitly
│   ├── AppendOnlyTable · RetentionTooShort   rows or files would be lost that the table protects
│   ├── IcebergUnavailable · CatalogNotFound
│   ├── SparkUnavailable · UnsupportedSpark · PackageMissing   Spark or a package is missing or too old
│   ├── SourceError · FilesChanged   the source of an ingestion cannot be used, or has changed since it was loaded
│   ├── EvolutionRefused · LimitExceeded   the policy or a limit does not allow what a batch needs
│   └── PlanChanged         the plan of a batch is not the plan that was approved
├── TableError              the table or its storage is at fault: repair it, or use another client
│   ├── TableNotFound
│   │   └── IcebergTableNotFound
│   ├── UnsupportedIcebergVersion
│   ├── TableAlreadyExists · VersionNotFound · CorruptLog · CorruptFile
│   ├── UnsupportedFeature
│   │   └── UnsupportedFeatureForRead · UnsupportedFeatureForWrite
│   ├── UnsupportedTypeChange · UnsupportedColumnType · CorruptMetadata · NoStoredColumns · NestedVoidColumn
│   ├── EnabledWithoutFeature   a property enables a feature that the protocol does not list
│   ├── RetentionNotExpired   a feature must stay in the protocol while older versions use it
│   │   └── DropPendingRetention · HistoryUsesFeature
│   ├── ProtectedVersionsRemain
│   ├── CheckpointBarrierFailed   a checkpoint that a downgrade needs could not be written
│   ├── JobFailed           a Spark job failed
│   ├── PostCommitFailed    the change is committed, but a step after the commit failed
│   └── StorageError        the store reported an error: permission, space, network
│       ├── StorageRefused  the store rejected the write: nothing was written
│       │   └── UnsafeStore · CatalogRefused
│       └── FileMissing · CatalogError
├── ContentionError         another writer committed first: try again
│   ├── MetadataChanged · ProtocolChanged · ConcurrentAppend · ConcurrentTransaction
│   ├── ConcurrentDelete
│   │   └── ConcurrentDeleteDelete
│   ├── DropConflict        another writer uses the feature again that is being dropped
│   ├── AttemptsExhausted   another writer won the version in every attempt
│   ├── BaseExpired         the version that the change is based on was cleaned up
│   ├── TableChanged        another writer committed to the Iceberg table
│   └── CommitUnknown       the store did not report whether the commit was written
│       └── SnapshotUnknown   the catalog did not report whether it has the snapshot
└── InternalError           a defect of Widen: report it

The family says who must act. Every class has a stable ``code`` (Delta's error class where Delta has one),
typed fields, a message built from them (what is wrong, where) and a hint (what to do).
"""

from __future__ import annotations

from widen.errors.change_data_feeds import (
    ChangeFeedNotRecorded,
    ChangeFeedRefused,
    ChangeFeedSchemaChanged,
    ChangeFeedSchemaMismatch,
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
    NotAnIdentityColumn,
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
    CheckpointBarrierFailed,
    ConstraintsRemain,
    DropConflict,
    DropPendingRetention,
    FeatureDropRefused,
    FeatureIsProperty,
    FeatureNotPresent,
    FeatureNotRemovable,
    FeatureStillNeeded,
    HistoryUsesFeature,
    ProtectedVersionsRemain,
    RetentionNotExpired,
    TruncationNotAllowed,
    TruncationRequired,
    UnknownFeature,
)
from widen.errors.iceberg import (
    CatalogError,
    CatalogNotFound,
    CatalogRefused,
    ColumnInUse,
    CorruptMetadata,
    IcebergTableNotFound,
    IcebergUnavailable,
    SnapshotUnknown,
    TableChanged,
    UnsupportedColumnType,
    UnsupportedIcebergVersion,
)
from widen.errors.requests import (
    AppendOnlyTable,
    EvolutionRefused,
    FeatureRequired,
    FilesChanged,
    InvalidConfig,
    InvalidOption,
    InvalidPath,
    InvalidStatement,
    InvalidType,
    LimitExceeded,
    NameNotFound,
    PackageMissing,
    PlanChanged,
    RetentionTooShort,
    SourceError,
    SparkUnavailable,
    UnmatchedFields,
    UnsupportedSpark,
)
from widen.errors.row_changes import (
    AmbiguousMerge,
    AssignedOverflow,
    AssignmentConflict,
    ChangeRefused,
    ColumnMissingInSource,
    FoldLosesValues,
    FoldRefused,
    InvalidCondition,
    ItemAssignmentRefused,
    MergeWithoutClause,
    NewSchemaInPartitions,
    NotDeterministic,
    OverwriteRefused,
    ReplaceWhereInPartitions,
    ReplaceWhereMismatch,
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
    StringTooLong,
)
from widen.errors.tables import (
    CorruptFile,
    CorruptLog,
    EnabledWithoutFeature,
    FileMissing,
    JobFailed,
    NestedVoidColumn,
    NoStoredColumns,
    PostCommitFailed,
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
)

__all__ = [
    "AmbiguousMerge",
    "AmbiguousReplacement",
    "AppendOnlyTable",
    "ArrayStepNotFound",
    "AssignedOverflow",
    "AssignmentConflict",
    "AttemptsExhausted",
    "BaseExpired",
    "CastOverflow",
    "CatalogError",
    "CatalogNotFound",
    "CatalogRefused",
    "ChangeFeedNotRecorded",
    "ChangeFeedRefused",
    "ChangeFeedSchemaChanged",
    "ChangeFeedSchemaMismatch",
    "ChangeRefused",
    "CheckViolated",
    "CheckpointBarrierFailed",
    "ClusteringColumnDropRefused",
    "ColumnAlreadyExists",
    "ColumnInUse",
    "ColumnMissingInSource",
    "ColumnNotFound",
    "ColumnRefused",
    "CommitUnknown",
    "ConcurrentAppend",
    "ConcurrentDelete",
    "ConcurrentDeleteDelete",
    "ConcurrentTransaction",
    "ConstraintAlreadyExists",
    "ConstraintDependsOnColumn",
    "ConstraintNotBoolean",
    "ConstraintNotFound",
    "ConstraintRefused",
    "ConstraintTypeMismatch",
    "ConstraintViolated",
    "ConstraintsRemain",
    "ContentionError",
    "CorruptFile",
    "CorruptLog",
    "CorruptMetadata",
    "DefaultsNotEnabled",
    "DropConflict",
    "DropPendingRetention",
    "DropRefused",
    "EnabledWithoutFeature",
    "EvolutionRefused",
    "FeatureDropRefused",
    "FeatureIsProperty",
    "FeatureNotPresent",
    "FeatureNotRemovable",
    "FeatureRequired",
    "FeatureStillNeeded",
    "FileMissing",
    "FilesChanged",
    "FoldLosesValues",
    "FoldRefused",
    "GeneratedColumnDependsOnColumn",
    "GeneratedColumnTypeFixed",
    "GeneratedColumnTypeMismatch",
    "HistoryUsesFeature",
    "IcebergIncompatible",
    "IcebergTableNotFound",
    "IcebergUnavailable",
    "IdentityColumnFixed",
    "IdentityColumnGiven",
    "IdentityExhausted",
    "IdentityReplaceRefused",
    "IncompatibleTypes",
    "InternalError",
    "InvalidColumnName",
    "InvalidCondition",
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
    "LimitExceeded",
    "MapStepNotFound",
    "MergeWithoutClause",
    "MetadataChanged",
    "NameNotFound",
    "NestedNotNull",
    "NestedTypeChangeRefused",
    "NestedVoidColumn",
    "NewColumnDefaultRefused",
    "NewColumnNotNull",
    "NewSchemaInPartitions",
    "NoStoredColumns",
    "NotAnIdentityColumn",
    "NotDeterministic",
    "NotNullViolated",
    "NullsInColumn",
    "OverwriteRefused",
    "PackageMissing",
    "PartitionColumnDropRefused",
    "PathNotNested",
    "PlanChanged",
    "PostCommitFailed",
    "ProtectedVersionsRemain",
    "ProtocolChanged",
    "RenameRefused",
    "ReplaceColumnsRefused",
    "ReplaceWhereInPartitions",
    "ReplaceWhereMismatch",
    "RequestError",
    "RetentionNotExpired",
    "RetentionTooShort",
    "RowRefused",
    "SchemaMismatch",
    "SnapshotUnknown",
    "SourceError",
    "SparkUnavailable",
    "StorageError",
    "StorageRefused",
    "StringTooLong",
    "TableAlreadyExists",
    "TableChanged",
    "TableError",
    "TableNotFound",
    "TruncationNotAllowed",
    "TruncationRequired",
    "TypeChangeRefused",
    "UnknownFeature",
    "UnmatchedFields",
    "UnreachableClause",
    "UnsafeStore",
    "UnsupportedColumnType",
    "UnsupportedFeature",
    "UnsupportedFeatureForRead",
    "UnsupportedFeatureForWrite",
    "UnsupportedIcebergVersion",
    "UnsupportedSpark",
    "UnsupportedTypeChange",
    "VersionNotFound",
    "WidenError",
]
