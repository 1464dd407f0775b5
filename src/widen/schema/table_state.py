"""The state of a table that a command is planned against, and the metadata-only commit that it becomes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from widen.errors import ConstraintDependsOnColumn, GeneratedColumnDependsOnColumn
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, fields, format_path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import ArrayType, DataType, MapType, StructType, name_key
from widen.model.value_classes import dataclass
from widen.protocol.actions import DomainMetadata, Metadata, Protocol, clustering_columns
from widen.protocol.column_metadata import find_generation, find_invariant
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import is_supported
from widen.protocol.table_properties import CONSTRAINT_PREFIX
from widen.schema.operations import Operation

if TYPE_CHECKING:
    from sqlglot import errors
    from sqlglot import expressions as sql

    from widen.log.snapshot import Snapshot
else:
    # Most tables have no expressions, and the parser takes longer to import than a small ingestion.
    errors, sql = map(import_lazily, ("sqlglot.errors", "sqlglot.expressions"))


@dataclass(frozen=True)
class TableState(TableConfiguration):
    """The version of a table that a command is planned against."""

    version: int
    clustered_by: tuple[Path, ...] = ()

    def with_schema(self, schema: StructType) -> TableState:
        """Return the same state with another schema."""
        return replace(self, metadata=self.metadata.with_schema(schema))


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """A commit that changes no data.

    Args:
        operations: What it does to the columns, in order; empty for other changes.
    """

    actions: tuple[Metadata | Protocol | DomainMetadata, ...]
    operation: str
    parameters: Mapping[str, object]
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class TableCreation(MetadataChange):
    """The first commit of a table."""

    @property
    def table(self) -> TableConfiguration:
        """The configuration of the new table."""
        metadata, protocol, *_ = self.actions
        assert isinstance(metadata, Metadata)
        assert isinstance(protocol, Protocol)
        return TableConfiguration(protocol, metadata)


def to_table_state(snapshot: Snapshot) -> TableState:
    """Return the state of a version that table changes are planned with."""
    clustered_by = clustering_columns(snapshot.domains) if snapshot.configuration.supports("clustering") else ()
    return TableState(snapshot.protocol, snapshot.metadata, snapshot.version, clustered_by)


# The expressions of a table that reference its columns: CHECK constraints, invariants and generated columns.
#
# Source: Delta Lake's check of dependent expressions, which runs before a column is renamed, dropped or retyped.


def ensure_independent(state: TableState, path: Path) -> None:
    """Check that no expression of the table references a column, a field inside it, or a struct around it.

    Raises:
        ConstraintDependsOnColumn: a CHECK constraint references it.
        GeneratedColumnDependsOnColumn: a generated column references it.

    Source: Delta Lake's check of dependent expressions: constraints first; the error lists names and expressions.
    """
    dependents = dependent_expressions(path, state.schema, check_constraints(state.properties))
    if dependents:
        raise ConstraintDependsOnColumn(column=format_path(path), constraints=format_expressions(dependents))
    dependents = dependent_expressions(path, state.schema, generated_columns(state))
    if dependents:
        raise GeneratedColumnDependsOnColumn(column=format_path(path), columns=format_expressions(dependents))


def dependent_expressions(path: Path, schema: StructType, expressions: Mapping[str, str]) -> Mapping[str, str]:
    """Return the expressions that reference a column, a field inside it, or a struct around it."""
    return {name: text for name, text in expressions.items() if is_referenced(path, referenced_columns(text, schema))}


def check_constraints(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the CHECK constraints of a table, by property key."""
    return {key: text for key, text in properties.items() if key.lower().startswith(CONSTRAINT_PREFIX)}


def constraint_key(name: str) -> str:
    """Return the property key of a constraint. Names of constraints are case-insensitive."""
    return CONSTRAINT_PREFIX + name.lower()


def find_constraint(state: TableState, name: str) -> str | None:
    """Return the property key of a constraint as the table spells it; None if it does not exist."""
    lower_key = constraint_key(name)
    return next((key for key in state.properties if key.lower() == lower_key), None)


def generated_columns(state: TableState) -> Mapping[str, str]:
    """Return the expressions of the generated columns, by column name; empty if the protocol does not support them.

    Source: PROTOCOL.md#generated-columns
    """
    if not state.supports("generatedColumns"):
        return {}
    generations = {format_path(path): find_generation(field) for path, field in fields(state.schema)}
    return {name: text for name, text in generations.items() if text is not None}


def row_conditions(schema: StructType, protocol: Protocol, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the conditions that every row must satisfy: a label, e.g. ``constraint positive``, and the expression.

    A condition applies only if the protocol supports its feature.

    Source: PROTOCOL.md#column-invariants, #check-constraints
    """
    for path, field in fields(schema) if is_supported(protocol, "invariants") else ():
        text = find_invariant(field)
        if text is not None:
            yield f"invariant of column {format_path(path)}", text
    for key, text in check_constraints(properties).items() if is_supported(protocol, "checkConstraints") else ():
        yield f"constraint {key[len(CONSTRAINT_PREFIX) :]}", text


def format_expressions(expressions: Mapping[str, str]) -> str:
    """Format expressions for an error message, one ``name -> expression`` per line."""
    return "\n".join(f"{name} -> {text}" for name, text in expressions.items())


# Which columns an SQL expression references.
#
# If sqlglot cannot parse an expression, every column whose name occurs in it counts as referenced: a change is then
# refused rather than made behind a constraint.
#
# Source: Delta Lake's check of dependent expressions; sqlglot's Spark dialect.


_WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")


def referenced_columns(text: str, schema: StructType) -> frozenset[Path]:
    """Return the paths that an expression references, as deep as it goes, spelled as in the schema.

    An array item adds the step ``element``. A map lookup adds ``value``, and references ``key`` as well.

    Example:
        >>> from widen.model.schema_json import parse_type
        >>> sorted(referenced_columns("a > 0 AND m[7] = 1", parse_type("struct<a: int, m: map<int,int>>")))
        [('a',), ('m', 'key'), ('m', 'value')]
    """
    try:
        parsed = parse_expression(text)
        return frozenset(_ReferenceResolver(schema).resolve(parsed))
    except (errors.SqlglotError, RecursionError, _UnresolvedName):
        words = {name_key(quoted.replace("``", "`") or plain) for quoted, plain in _WORD.findall(text)}
        return frozenset((field.name,) for field in schema if name_key(field.name) in words)


def find_missing_names(text: str, schema: StructType) -> list[tuple[int, int, Path]]:
    """Return where an expression names columns or fields of structs that a schema lacks: start, end and the path.

    An expression that sqlglot cannot parse has no columns.

    Example:
        >>> from widen.model.schema_json import parse_type
        >>> find_missing_names("a > 0 OR r.b = op", parse_type("struct<a: int, r: struct<c: int>>"))
        [(9, 12, ('r', 'b')), (15, 17, ('op',))]
    """
    try:
        columns = parse_expression(text).find_all(sql.Column)
        # What follows IS is a word of the language, or an error.
        names = [_name_parts(each) for each in columns if each.arg_key == "this" or not isinstance(each.parent, sql.Is)]
    except (errors.SqlglotError, RecursionError):
        return []
    found = []
    for parts in names:
        path = tuple(part.name for part in parts)
        start, end = parts[0].meta.get("start"), parts[-1].meta.get("end")
        if start is not None and end is not None and not _is_known(path, schema):
            found.append((start, end + 1, path))
    return sorted(found)


def _name_parts(column: Any) -> list[Any]:
    """Return the names of a column, and the names of the fields that follow."""
    parts, node = [*column.parts], column
    while isinstance(node.parent, sql.Dot) and node is node.parent.this:
        node = node.parent
        if not isinstance(node.expression, sql.Identifier):
            break
        parts.append(node.expression)
    return parts


def _is_known(path: Path, schema: StructType) -> bool:
    """Return whether a schema has a path. Every key of a map counts, and so does a part of a text."""
    found: DataType = schema
    for name in path:
        while isinstance(found, ArrayType):
            found = found.element
        if not isinstance(found, StructType):
            return True
        field = found.find(name)
        if field is None:
            return False
        found = field.type
    return True


def is_referenced(changed: Path, references: Iterable[Path]) -> bool:
    """Return whether one of the paths is the changed one, a parent of it or below it. Names are case-insensitive.

    Example:
        >>> is_referenced(("a", "y"), [("a", "x")]), is_referenced(("a",), [("a", "x")])
        (False, True)
    """
    return any(
        all(name_key(old) == name_key(new) for old, new in zip(changed, path, strict=False)) for path in references
    )


def is_constant(text: str) -> bool:
    """Return whether an expression can be parsed and references neither columns nor tables."""
    try:
        parsed = parse_expression(text)
    except (errors.SqlglotError, RecursionError):
        return False
    return parsed.find(sql.Column, sql.Star, sql.Query, sql.Subquery) is None


@lru_cache(maxsize=256)
def parse_expression(text: str) -> Any:
    """Return the tree of one SQL expression, which is not a statement even if it begins with the word of one.

    Raises:
        ParseError: sqlglot cannot parse it. Its tokenizer raises another `SqlglotError`.
    """
    from sqlglot import Dialect

    try:
        parsed = Dialect.get_or_raise("spark").parse_into(sql.Condition, text)
    except ValueError as error:
        # sqlglot raises it for a type whose argument is an empty name.
        raise errors.ParseError(str(error)) from error
    if len(parsed) != 1 or parsed[0] is None:
        raise errors.ParseError("Must be exactly one expression.")
    return parsed[0]


class _UnresolvedName(Exception):
    """A name in the expression is not a column, or not a field of the type before it."""


class _ReferenceResolver:
    """Resolves the column references of one expression against a schema, as Spark does."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def resolve(self, node: Any) -> Iterator[Path]:
        path, others = self._value(node)
        yield from others
        if path is not None:
            yield path

    def _value(self, node: Any) -> tuple[Path | None, list[Path]]:
        """Return the path that a node evaluates to, if it is a plain reference, and what else it references."""
        match node:
            case sql.Paren():
                return self._value(node.this)
            case sql.Column():
                first, *steps = (part.name for part in node.parts)
                return self._follow_names(self._column(first), [], steps)
            case sql.Dot():
                start, others = self._value(node.this)
                name = node.expression.name
                return (None, others) if start is None else self._follow_names(start, others, [name])
            case sql.Bracket():
                start, others = self._value(node.this)
                others += [path for key in node.expressions for path in self.resolve(key)]
                return (None, others) if start is None else self._follow_brackets(start, others)
        return None, [path for child in node.iter_expressions() for path in self.resolve(child)]

    def _column(self, name: str) -> Path:
        field = self._schema.find(name)
        if field is None:
            raise _UnresolvedName(name)
        return (field.name,)

    def _type(self, path: Path) -> DataType:
        return resolve(self._schema, path)[1]

    def _follow_names(self, path: Path, others: list[Path], names: Iterable[str]) -> tuple[Path, list[Path]]:
        """Follow names from a path: to a field of a struct, a field of every element, or a value of a map."""
        for name in names:
            data_type = self._type(path)
            if isinstance(data_type, MapType):
                path, others = self._follow_brackets(path, others)
                continue
            if isinstance(data_type, ArrayType):
                path, data_type = (*path, ELEMENT), data_type.element
            field = data_type.find(name) if isinstance(data_type, StructType) else None
            if field is None:
                raise _UnresolvedName(name)
            path = (*path, field.name)
        return path, others

    def _follow_brackets(self, path: Path, others: list[Path]) -> tuple[Path, list[Path]]:
        """Follow brackets from a path. On a struct, brackets name a field; the path then stays the whole struct."""
        match self._type(path):
            case ArrayType():
                return (*path, ELEMENT), others
            case MapType():
                return (*path, VALUE), [*others, (*path, KEY)]
        return path, others
