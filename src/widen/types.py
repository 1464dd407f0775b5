"""The types, operations and events that plans and tables are made of. They need no Spark."""

from __future__ import annotations

from widen.evolution.plan import Grade, PendingField, Plan, PlanEvent, QuarantinedField, RescuedField
from widen.model.types import ArrayType, AtomicType, DataType, DecimalType, Field, MapType, OpaqueType, StructType
from widen.protocol.type_widening import TypeChange
from widen.schema.operations import (
    AddColumn,
    AddConstraint,
    CreateTable,
    DropColumn,
    DropConstraint,
    DropDefault,
    DropNotNull,
    MoveColumn,
    Operation,
    RelaxLength,
    RenameColumn,
    ReplaceColumns,
    SetComment,
    SetDefault,
    SetNotNull,
    SyncIdentity,
    WidenType,
)

__all__ = [
    "AddColumn",
    "AddConstraint",
    "ArrayType",
    "AtomicType",
    "CreateTable",
    "DataType",
    "DecimalType",
    "DropColumn",
    "DropConstraint",
    "DropDefault",
    "DropNotNull",
    "Field",
    "Grade",
    "MapType",
    "MoveColumn",
    "OpaqueType",
    "Operation",
    "PendingField",
    "Plan",
    "PlanEvent",
    "QuarantinedField",
    "RelaxLength",
    "RenameColumn",
    "ReplaceColumns",
    "RescuedField",
    "SetComment",
    "SetDefault",
    "SetNotNull",
    "StructType",
    "SyncIdentity",
    "TypeChange",
    "WidenType",
]
