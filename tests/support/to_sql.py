"""Convert statements to SQL.

Names are always in backticks and strings always in quotes, which prevents SQL injection.

Source: Spark's ALTER TABLE, CREATE TABLE and DESCRIBE; Delta Lake's constraints, features, DETAIL, HISTORY and RESTORE.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from widen.model.column_path import Path
from widen.model.schema_json import to_identifier, to_literal
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.protocol.column_metadata import DEFAULT, GENERATION, find_identity, to_declared
from widen.schema.source_metadata import COMMENT
from widen.sql_commands.statements import (
    AddColumns,
    AddConstraintStatement,
    Alteration,
    AlterColumns,
    ClusterBy,
    CreateTableStatement,
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    DropColumns,
    DropConstraintStatement,
    DropFeature,
    Optimize,
    RenameColumnStatement,
    ReplaceColumnsStatement,
    Restore,
    SetProperties,
    ShowProperties,
    Statement,
    SyncIdentityStatement,
    UnsetProperties,
    Vacuum,
)

if TYPE_CHECKING:
    from widen.schema.alter import ColumnChanges, NewColumn


def to_sql(statement: Statement) -> str:
    """Return SQL that `parse_statement` parses to the same statement.

    Raises:
        CorruptLog: the metadata of an identity column are incomplete.
    """
    name = _path(statement.table.parts)
    match statement:
        case DescribeDetail():
            return f"DESCRIBE DETAIL {name}"
        case DescribeHistory(_, limit):
            return f"DESCRIBE HISTORY {name}" + ("" if limit is None else f" LIMIT {limit}")
        case DescribeTable(_, extended):
            return f"DESCRIBE TABLE {_keyword('EXTENDED ', extended)}{name}"
        case ShowProperties(_, key):
            return f"SHOW TBLPROPERTIES {name}" + ("" if key is None else f" ({to_literal(key)})")
        case Restore(_, moment):
            by_version = isinstance(moment, int)
            then = f"VERSION AS OF {moment}" if by_version else f"TIMESTAMP AS OF {to_literal(str(moment))}"
            return f"RESTORE TABLE {name} TO {then}"
        case Vacuum(_, hours, dry_run):
            return f"VACUUM {name}{'' if hours is None else f' RETAIN {hours:f} HOURS'}{_keyword(' DRY RUN', dry_run)}"
        case Optimize(_, where, columns):
            order = f" ZORDER BY {_listed(map(_path, columns))}" if columns else ""
            return f"OPTIMIZE {name}{'' if where is None else f' WHERE {where}'}{order}"
        case CreateTableStatement():
            return f"CREATE TABLE {_keyword('IF NOT EXISTS ', statement.if_not_exists)}{name} {_created(statement)}"
    return f"ALTER TABLE {name} {_clause(statement)}"


def _clause(statement: Alteration) -> str:
    """Return the part of ALTER TABLE after the name of the table."""
    match statement:
        case AlterColumns(_, changes):
            return _alteration(changes)
        case RenameColumnStatement(_, column, name):
            return f"RENAME COLUMN {_path(column)} TO {to_identifier(name)}"
        case AddColumns(_, columns):
            return f"ADD COLUMNS {_listed(f'{_path(path)} {_new_column(new)}' for path, new in columns.items())}"
        case DropColumns(_, columns, if_exists):
            return f"DROP COLUMNS {_keyword('IF EXISTS ', if_exists)}{_listed(map(_path, columns))}"
        case ReplaceColumnsStatement(_, schema):
            return f"REPLACE COLUMNS {_definitions(schema)}"
        case SyncIdentityStatement(_, column):
            return f"ALTER COLUMN {_path(column)} SYNC IDENTITY"
        case SetProperties(_, properties):
            return f"SET TBLPROPERTIES {_properties(properties)}"
        case UnsetProperties(_, keys, if_exists):
            return f"UNSET TBLPROPERTIES {_keyword('IF EXISTS ', if_exists)}{_listed(map(to_literal, keys))}"
        case AddConstraintStatement(_, name, condition):
            return f"ADD CONSTRAINT {to_identifier(name)} CHECK ({condition})"
        case DropConstraintStatement(_, name, if_exists):
            return f"DROP CONSTRAINT {_keyword('IF EXISTS ', if_exists)}{to_identifier(name)}"
        case ClusterBy(_, columns):
            return f"CLUSTER BY {_listed(map(_path, columns)) if columns else 'NONE'}"
        case DropFeature(_, name, truncate_history):
            return f"DROP FEATURE {to_literal(name)}{_keyword(' TRUNCATE HISTORY', truncate_history)}"


def _created(statement: CreateTableStatement) -> str:
    """Return the part of CREATE TABLE after the name of the table."""
    clauses = [_definitions(statement.schema), *([f"USING {statement.using}"] if statement.using else [])]
    if statement.partition_by:
        clauses.append(f"PARTITIONED BY {_listed(statement.partition_by)}")
    if statement.location is not None:
        clauses.append(f"LOCATION {to_literal(statement.location)}")
    if statement.comment is not None:
        clauses.append(f"COMMENT {to_literal(statement.comment)}")
    if statement.properties:
        clauses.append(f"TBLPROPERTIES {_properties(statement.properties)}")
    return " ".join(clauses)


# ---- columns ---------------------------------------------------------------------------------------


def _alteration(changes: Mapping[Path, ColumnChanges]) -> str:
    """Return the clause that changes columns; uses the Hive form where Spark supports only that one."""
    if len(changes) == 1:
        (path, change), *_ = changes.items()
        if "type" in change and len(change) > 1 and change.keys() <= _OF_HIVE:
            parts = [_path(path), to_identifier(path[-1]), _type(change["type"]), *_details(change)]
            return f"CHANGE COLUMN {' '.join(parts)}"
    return f"ALTER COLUMN {', '.join(f'{_path(path)} {_changes(change)}' for path, change in changes.items())}"


_OF_HIVE = frozenset({"type", "comment", "first", "after"})


def _changes(change: ColumnChanges) -> str:
    parts = [f"TYPE {_type(change['type'])}"] if "type" in change else []
    if "nullable" in change:
        parts.append("DROP NOT NULL" if change["nullable"] else "SET NOT NULL")
    if "default" in change:
        parts.append(f"SET DEFAULT {change['default']}")
    if change.get("drop_default"):
        parts.append("DROP DEFAULT")
    return " ".join([*parts, *_details(change)])


def _new_column(new: NewColumn) -> str:
    parts = [_type(new["type"])] + ([] if new.get("nullable", True) else ["NOT NULL"])
    if "default" in new:
        parts.append(f"DEFAULT {new['default']}")
    return " ".join([*parts, *_details(new)])


def _details(change: ColumnChanges | NewColumn) -> list[str]:
    parts = [f"COMMENT {to_literal(change['comment'])}"] if "comment" in change else []
    if change.get("first"):
        parts.append("FIRST")
    if "after" in change:
        parts.append(f"AFTER {to_identifier(change['after'])}")
    return parts


def _definitions(schema: StructType) -> str:
    return _listed(f"{to_identifier(field.name)} {_definition(field)}" for field in schema)


def _definition(field: Field) -> str:
    metadata, identity = field.metadata, find_identity(field)
    parts = [_type(to_declared(field).type)]
    if not field.nullable:
        parts.append("NOT NULL")
    if GENERATION in metadata:
        parts.append(f"GENERATED ALWAYS AS ({metadata[GENERATION]})")
    if identity is not None:
        kind = "BY DEFAULT" if identity.allows_explicit else "ALWAYS"
        parts.append(f"GENERATED {kind} AS IDENTITY (START WITH {identity.start} INCREMENT BY {identity.step})")
    if DEFAULT in metadata:
        parts.append(f"DEFAULT {metadata[DEFAULT]}")
    if COMMENT in metadata:
        parts.append(f"COMMENT {to_literal(metadata[COMMENT])}")
    return " ".join(parts)


def _type(data_type: DataType | str) -> str:
    """Return a type with the comments of its nested fields, which ``DataType.sql`` omits."""
    match data_type:
        case str():
            return data_type
        case StructType(fields):
            return f"struct<{', '.join(f'{to_identifier(field.name)}: {_definition(field)}' for field in fields)}>"
        case ArrayType(element):
            return f"array<{_type(element)}>"
        case MapType(key, value):
            return f"map<{_type(key)}, {_type(value)}>"
    return data_type.sql


# ---- words -----------------------------------------------------------------------------------------


def _path(path: Path) -> str:
    return ".".join(map(to_identifier, path))


def _properties(properties: Mapping[str, str]) -> str:
    return _listed(f"{to_literal(key)} = {to_literal(value)}" for key, value in properties.items())


def _listed(items: Iterable[str]) -> str:
    return f"({', '.join(items)})"


def _keyword(words: str, is_given: bool) -> str:
    return words if is_given else ""
