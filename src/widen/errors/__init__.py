"""Every error that Widen raises, in one tree.

WidenError
├── RequestError            the caller asked for what the protocol or the policy forbids
│   ├── InvalidOption
│   ├── InvalidType
│   ├── InvalidPath
│   ├── InvalidStatement    a text of SQL is none that we understand
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
│   │   ├── ItemCommentRefused
│   │   ├── ItemRenameRefused
│   │   ├── RenameRefused
│   │   ├── DropRefused
│   │   ├── PartitionColumnDropRefused
│   │   ├── ClusteringColumnDropRefused
│   │   ├── LastColumnDropRefused
│   │   ├── NewColumnNotNull
│   │   ├── NestedNotNull
│   │   ├── NullsInColumn
│   │   ├── DefaultsNotEnabled
│   │   ├── NewColumnDefaultRefused
│   │   ├── ReplaceColumnsRefused
│   │   └── AmbiguousReplacement
│   ├── ConstraintRefused
│   │   ├── InvalidConstraint
│   │   │   └── ConstraintNotBoolean
│   │   ├── InvalidConstraintName
│   │   ├── ConstraintAlreadyExists
│   │   ├── ConstraintNotFound
│   │   └── ConstraintViolated
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

from widen.errors.column import (
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
from widen.errors.constraint import (
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
    CommitUnknown,
    ConcurrentAppend,
    ConcurrentDelete,
    ConcurrentTransaction,
    MetadataChanged,
    ProtocolChanged,
)
from widen.errors.family import ContentionError, InternalError, RequestError, TableError, WidenError
from widen.errors.request import (
    AppendOnlyTable,
    EngineMissing,
    EvolutionRefused,
    FeatureRequired,
    InvalidOption,
    InvalidPath,
    InvalidStatement,
    InvalidType,
    SchemaMismatch,
    SourceError,
)
from widen.errors.table import (
    CorruptFile,
    CorruptLog,
    EnabledWithoutFeature,
    FileMissing,
    JobFailed,
    StorageError,
    TableAlreadyExists,
    TableNotFound,
    UnsupportedFeature,
    UnsupportedFeatureForRead,
    UnsupportedFeatureForWrite,
    UnsupportedTypeChange,
    VersionNotFound,
)

__all__ = [
    "AmbiguousReplacement",
    "AppendOnlyTable",
    "ArrayStepNotFound",
    "AttemptsExhausted",
    "ClusteringColumnDropRefused",
    "ColumnAlreadyExists",
    "ColumnNotFound",
    "ColumnRefused",
    "CommitUnknown",
    "ConcurrentAppend",
    "ConcurrentDelete",
    "ConcurrentTransaction",
    "ConstraintAlreadyExists",
    "ConstraintDependsOnColumn",
    "ConstraintNotBoolean",
    "ConstraintNotFound",
    "ConstraintRefused",
    "ConstraintViolated",
    "ContentionError",
    "CorruptFile",
    "CorruptLog",
    "DefaultsNotEnabled",
    "DropRefused",
    "EnabledWithoutFeature",
    "EngineMissing",
    "EvolutionRefused",
    "FeatureRequired",
    "FileMissing",
    "GeneratedColumnDependsOnColumn",
    "GeneratedColumnTypeFixed",
    "IdentityColumnFixed",
    "IdentityReplaceRefused",
    "InternalError",
    "InvalidColumnName",
    "InvalidConstraint",
    "InvalidConstraintName",
    "InvalidOption",
    "InvalidPath",
    "InvalidStatement",
    "InvalidType",
    "ItemCommentRefused",
    "ItemRenameRefused",
    "JobFailed",
    "LastColumnDropRefused",
    "MapStepNotFound",
    "MetadataChanged",
    "NestedNotNull",
    "NestedTypeChangeRefused",
    "NewColumnDefaultRefused",
    "NewColumnNotNull",
    "NoIdentityColumn",
    "NullsInColumn",
    "PartitionColumnDropRefused",
    "PathNotNested",
    "ProtocolChanged",
    "RenameRefused",
    "ReplaceColumnsRefused",
    "RequestError",
    "SchemaMismatch",
    "SourceError",
    "StorageError",
    "TableAlreadyExists",
    "TableError",
    "TableNotFound",
    "TypeChangeRefused",
    "UnsupportedFeature",
    "UnsupportedFeatureForRead",
    "UnsupportedFeatureForWrite",
    "UnsupportedTypeChange",
    "VersionNotFound",
    "WidenError",
]
