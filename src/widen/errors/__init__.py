"""Every error that Widen raises, in one tree.

WidenError
├── RequestError            the call asks for something that is not allowed: change the call
│   ├── InvalidOption
│   │   └── OptionMissing · OptionConflict
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
│   │   ├── IcebergDefaultRefused · IcebergDefaultsNotSupported
│   │   └── AmbiguousReplacement · NestedNotNull · NullsInColumn · ColumnInUse
│   ├── ConstraintRefused
│   │   ├── InvalidConstraint
│   │   │   └── ConstraintNotBoolean
│   │   └── InvalidConstraintName · ConstraintAlreadyExists · ConstraintNotFound · ConstraintViolated
│   ├── SchemaMismatch      the data do not fit the table
│   │   ├── IncompatibleTypes     the data cannot be cast either
│   │   └── ConstraintTypeMismatch · GeneratedColumnTypeMismatch · ColumnMissingInSource
│   ├── RowRefused          a row violates a rule of the table
│   │   ├── NotNullViolated · CheckViolated · StringTooLong · WrongLength
│   │   ├── CastOverflow
│   │   │   └── AssignedOverflow
│   │   └── ReplaceWhereMismatch
│   ├── ChangeRefused       a change of rows is ambiguous or not supported
│   │   ├── AssignmentConflict · ItemAssignmentRefused
│   │   ├── OverwriteRefused
│   │   │   └── ReplaceWhereInPartitions · NewSchemaInPartitions
│   │   ├── NotDeterministic · InvalidCondition · MergeWithoutClause · UnreachableClause · AmbiguousMerge
│   │   └── FoldRefused · FoldLosesValues     a sibling column cannot be folded, or not without losing values
│   ├── IdentityColumnGiven · IdentityColumnUpdate · IdentityExhausted · IcebergIncompatible
│   ├── ChangeFeedRefused   the changes between two versions cannot be read
│   │   └── ChangeFeedNotRecorded · ChangeFeedSchemaMismatch · ChangeFeedSchemaChanged
│   ├── DataSourceRefused · MicroBatchTooLarge · StreamRowsChanged · StreamColumnsChanged   Spark's data source of Widen
│   ├── FeatureDropRefused
│   │   ├── FeatureIsProperty · FeatureNotPresent · FeatureNotRemovable · UnknownFeature · TruncationNotAllowed
│   │   └── TruncationRequired · FeatureStillNeeded · ConstraintsRemain
│   ├── FeatureRequired     a change needs a table feature that must be enabled explicitly
│   ├── AppendOnlyTable · RetentionTooShort   rows or files would be lost that the table protects
│   ├── IcebergUnavailable · CatalogNotFound · MirrorRefused · NotForIceberg
│   ├── SparkUnavailable · UnsupportedSpark · PackageMissing   Spark or a package is missing or too old
│   ├── EngineUnsuitable    the call needs Spark, and the caller does not want it
│   ├── SourceError         the source of an ingestion cannot be used
│   │   ├── SourceContentError   what a file holds cannot be loaded
│   │   └── SourceChanged   a file changed while it was read
│   ├── FilesChanged        files have changed since they were loaded
│   ├── EvolutionRefused · LimitExceeded · TooManyKeys   the policy or a limit does not allow what a batch needs
│   ├── PlanChanged         the plan of a batch is not the plan that was approved
│   ├── KeyRepeated         a batch has different records of one key, and nothing says which is the newest
│   │   └── SequenceRepeated    in a strict ingestion, their sequences are equal
│   └── FlowChanged · FlowKeyRefused · SourceRowsRemoved   a flow cannot start or go on
├── TableError              the table or its storage is at fault: repair it, or use another client
│   ├── TableNotFound
│   │   └── IcebergTableNotFound · QuarantineNotFound
│   ├── TableAlreadyExists · VersionNotFound · CorruptLog · CorruptFile
│   ├── UnsupportedFeature
│   │   └── UnsupportedFeatureForRead · UnsupportedFeatureForWrite
│   ├── UnsupportedTypeChange · AmbiguousColumns · CorruptMetadata · NoStoredColumns
│   ├── UnsupportedColumnType
│   │   └── ColumnLeftOut   a call needs the values of a column that Spark has no type for
│   ├── DroppedColumnType · NestedVoidColumn · SimilarStoredNames
│   ├── EnabledWithoutFeature   a property enables a feature that the protocol does not list
│   ├── RetentionNotExpired   a feature must stay in the protocol while older versions use it
│   │   └── DropPendingRetention · HistoryUsesFeature
│   ├── ProtectedVersionsRemain
│   ├── CheckpointBarrierFailed   a checkpoint that a downgrade needs could not be written
│   ├── JobFailed           a Spark job failed
│   ├── HandoverUnproven    another client does not return the values of the table
│   ├── SourceHistoryLost   the source of a flow has lost changes that the flow has not read
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
│   ├── FlowTaken · StreamTaken   another process runs the same flow, or the same stream
│   └── CommitUnknown       the store did not report whether the commit was written
│       ├── SnapshotUnknown       the catalog did not report whether it has the snapshot
│       └── ColumnChangeUnknown   the catalog did not report whether it has changed the columns
└── InternalError           a defect of Widen: report it

The family says who must act. Every class has a stable ``code`` (Delta's error class where Delta has one),
typed fields, a message built from them (what is wrong, where) and a hint (what to do).
"""

from __future__ import annotations

from widen.errors.columns import *
from widen.errors.family import *
from widen.errors.requests import *
from widen.errors.rows import *
from widen.errors.tables import *

__all__ = sorted(name for name, value in vars().items() if isinstance(value, type) and issubclass(value, Exception))
