"""Parse a statement.

Source: Spark's ALTER TABLE and CREATE TABLE: which clauses may not be repeated, and what strings, numbers and names
    mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, VisitError
from lark.tree import Meta

from widen.changes.assignment import ChangeKind
from widen.changes.merge import MergeClause, MergeSide
from widen.errors import AssignmentConflict, InvalidStatement, WidenError
from widen.model.column_path import Path, format_path
from widen.model.schema_json import LITERAL, from_literal, parse_type
from widen.model.types import LONG, DataType, Field, StructType, name_key
from widen.model.value_classes import dataclass
from widen.protocol.column_metadata import ALLOWS_EXPLICIT, DEFAULT, GENERATION, START, STEP, to_stored
from widen.schema.source_metadata import COMMENT
from widen.schema.table_definition import DESCRIPTION
from widen.sql_commands import statements
from widen.sql_commands.grammar import (
    QUOTED,
    REMARK,
    TokenReader,
    grammar,
    refused_message,
    replace_qualifiers,
    table_qualifiers,
    to_table_reference,
    unexpected_token_message,
)
from widen.sql_commands.statements import (
    CreateTableAs,
    Delete,
    Insert,
    Merge,
    Query,
    RowStatement,
    Statement,
    TableReference,
    Update,
)

if TYPE_CHECKING:
    from widen.schema.alter import ColumnChanges, NewColumn


def parse_sql(text: str) -> Statement | RowStatement:
    """Parse one statement, also one about rows."""
    rows = parse_row_statement(text)
    if rows is not None:
        return rows
    parts = split_create_as(text)
    statement: object = parse_statement(text if parts is None else f"{parts[0]} AS QUERY")
    if not isinstance(statement, CreateTableAs):
        return cast("Statement", statement)
    if parts is None:
        raise refused_message(text, 0, "the query is missing")
    return replace(statement, query=parts[1])


def parse_statement(text: str) -> Statement:
    """Parse one statement that is not about rows.

    Example:
        >>> parse_statement("ALTER TABLE delta.`/data/orders` RENAME COLUMN total TO amount").name
        'amount'
    """
    try:
        return _StatementBuilder(text).transform(_parser().parse(text))
    except UnexpectedInput as error:
        raise unexpected_token_message(text, error, _parser()) from error
    except RecursionError as error:
        raise refused_message(text, 0, "the statement is nested too deeply") from error
    except VisitError as error:
        if isinstance(error.orig_exc, RecursionError):
            raise refused_message(text, 0, "the statement is nested too deeply") from error
        if isinstance(error.orig_exc, WidenError):
            raise error.orig_exc from None
        raise


@cache
def _parser() -> Lark:
    return Lark(grammar(), parser="lalr", lexer="contextual", propagate_positions=True, maybe_placeholders=True)


@dataclass(frozen=True, slots=True)
class _Option:
    """A clause that may not be repeated, with its position.

    Args:
        at: The position, in characters from the start of the text.
    """

    at: int
    what: str
    meaning: Any


_REMARK = re.compile(rf"({LITERAL}|{QUOTED})|{REMARK}")


@v_args(meta=True, inline=True)
class _StatementBuilder(Transformer[Token, Statement]):
    """Transform a parse tree into a statement; has a method for every rule of the grammar."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def _refusal(self, meta: Meta, reason: str) -> InvalidStatement:
        return refused_message(self._text, meta.start_pos, reason)

    def _once(self, options: Iterable[_Option]) -> list[Any]:
        """Return the values of the clauses in their order; raise if a clause is repeated."""
        values = dict[str, Any]()
        for each in options:
            if each.what in values:
                raise refused_message(self._text, each.at, f"{each.what} occurs twice")
            values[each.what] = each.meaning
        return list(values.values())

    def _merge(self, options: Iterable[_Option]) -> dict[str, Any]:
        return {key: meaning for part in self._once(options) for key, meaning in part.items()}

    # ---- statements: columns -----------------------------------------------------------------------

    def start(self, _: Meta, statement: Statement) -> Statement:
        return statement

    def alter_columns(self, _: Meta, table: TableReference, *changes: _Option) -> Statement:
        return statements.AlterColumns(table, dict(self._once(changes)))

    def change_column(
        self, meta: Meta, table: TableReference, column: Path, name: str, data_type: DataType, *options: _Option
    ) -> Statement:
        if name_key(name) != name_key(column[-1]):
            raise self._refusal(meta, "this form of CHANGE cannot rename a column; use RENAME COLUMN")
        changes = cast("ColumnChanges", {"type": data_type, **self._merge(options)})
        return statements.AlterColumns(table, {column: changes})

    def sync_identity(self, _: Meta, table: TableReference, column: Path) -> Statement:
        return statements.SyncIdentityStatement(table, column)

    def rename_column(self, _: Meta, table: TableReference, column: Path, name: str) -> Statement:
        return statements.RenameColumnStatement(table, column, name)

    def add_columns(self, _: Meta, table: TableReference, columns: dict[Path, NewColumn]) -> Statement:
        return statements.AddColumns(table, columns)

    def drop_columns(
        self, _: Meta, table: TableReference, if_exists: bool | None, columns: tuple[Path, ...]
    ) -> Statement:
        return statements.DropColumns(table, columns, bool(if_exists))

    def replace_columns(self, _: Meta, table: TableReference, *columns: _Option) -> Statement:
        return statements.ReplaceColumnsStatement(table, StructType(tuple(self._once(columns))))

    # ---- statements: the rest ----------------------------------------------------------------------

    def set_properties(self, _: Meta, table: TableReference, properties: dict[str, str]) -> Statement:
        return statements.SetProperties(table, properties)

    def comment_on_table(self, _: Meta, table: TableReference, text: str = "") -> Statement:
        return statements.SetProperties(table, {DESCRIPTION: text})

    def unset_properties(self, _: Meta, table: TableReference, if_exists: bool | None, *keys: str) -> Statement:
        return statements.UnsetProperties(table, keys, bool(if_exists))

    def cluster_by(self, _: Meta, table: TableReference, columns: tuple[Path, ...] = ()) -> Statement:
        return statements.ClusterBy(table, columns)

    cluster_by_none = cluster_by

    def add_constraint(self, _: Meta, table: TableReference, name: str, condition: str) -> Statement:
        return statements.AddConstraintStatement(table, name, condition)

    def drop_constraint(self, _: Meta, table: TableReference, if_exists: bool | None, name: str) -> Statement:
        return statements.DropConstraintStatement(table, name, bool(if_exists))

    def drop_feature(self, _: Meta, table: TableReference, name: str, truncate_history: bool | None) -> Statement:
        return statements.DropFeature(table, name, bool(truncate_history))

    def add_partition_field(self, _: Meta, table: TableReference, transform: str) -> Statement:
        return statements.ChangePartitioning(table, add=(transform,))

    def drop_partition_field(self, _: Meta, table: TableReference, transform: str) -> Statement:
        return statements.ChangePartitioning(table, drop=(transform,))

    def replace_partition_field(self, _: Meta, table: TableReference, old: str, new: str) -> Statement:
        return statements.ChangePartitioning(table, (new,), (old,))

    def write_ordered(self, _: Meta, table: TableReference, *keys: str) -> Statement:
        return statements.WriteOrder(table, keys)

    write_unordered = write_ordered

    def create_branch(
        self, _: Meta, table: TableReference, name: str, version: int | None, days: int | None
    ) -> Statement:
        return statements.CreateReference(table, "branch", name, version, days)

    def create_tag(self, _: Meta, table: TableReference, name: str, version: int | None, days: int | None) -> Statement:
        return statements.CreateReference(table, "tag", name, version, days)

    def drop_branch(self, _: Meta, table: TableReference, name: str) -> Statement:
        return statements.DropReference(table, "branch", name)

    def drop_tag(self, _: Meta, table: TableReference, name: str) -> Statement:
        return statements.DropReference(table, "tag", name)

    def fast_forward(self, _: Meta, table: TableReference, branch: str, source: str) -> Statement:
        return statements.FastForward(table, branch, source)

    def create_table(
        self,
        _: Meta,
        if_not_exists: bool | None,
        table: TableReference,
        schema: StructType,
        using: str | None,
        *clauses: _Option,
    ) -> Statement:
        merged = self._merge(clauses)
        return statements.CreateTableStatement(table, schema, **merged, if_not_exists=bool(if_not_exists), using=using)

    def restore(self, _: Meta, table: TableReference, moment: int | str) -> Statement:
        return statements.Restore(table, moment)

    def create_table_as(
        self, _: Meta, if_not_exists: bool | None, table: TableReference, using: str | None, *clauses: _Option
    ) -> CreateTableAs:
        return CreateTableAs(table, using=using, **self._merge(clauses), if_not_exists=bool(if_not_exists))

    def vacuum(self, _: Meta, table: TableReference, hours: float | None, dry_run: bool | None) -> Statement:
        return statements.Vacuum(table, hours, bool(dry_run))

    def optimize(
        self, _: Meta, table: TableReference, where: str | None, columns: tuple[Path, ...] | None
    ) -> Statement:
        return statements.Optimize(table, where, columns or ())

    def rewrite(self, _: Meta, table: TableReference) -> Statement:
        return statements.Rewrite(table)

    def describe_detail(self, _: Meta, table: TableReference) -> Statement:
        return statements.DescribeDetail(table)

    def describe_history(self, _: Meta, table: TableReference, limit: int | None) -> Statement:
        return statements.DescribeHistory(table, limit)

    def describe_table(self, _: Meta, extended: bool | None, table: TableReference) -> Statement:
        return statements.DescribeTable(table, bool(extended))

    def show_properties(self, _: Meta, table: TableReference, key: str | None) -> Statement:
        return statements.ShowProperties(table, key)

    # ---- clauses of a column ----------------------------------------------------------------------

    def change(self, meta: Meta, column: Path, *actions: _Option) -> _Option:
        return _Option(meta.start_pos, name_key(format_path(column)), (column, self._merge(actions)))

    def addition(self, meta: Meta, column: Path, data_type: DataType, *details: _Option) -> _Option:
        new = {"type": data_type, **self._merge(details)}
        return _Option(meta.start_pos, name_key(format_path(column)), (column, new))

    def additions(self, _: Meta, *columns: _Option) -> dict[Path, NewColumn]:
        return dict(self._once(columns))

    def definition(self, meta: Meta, name: str, data_type: DataType, *details: _Option) -> _Option:
        metadata = self._merge(details)
        if START in metadata and data_type != LONG:
            raise self._refusal(meta, "an identity column must be a bigint")
        comment, nullable = metadata.pop("comment", None), metadata.pop("nullable", True)
        if comment is not None:
            metadata[COMMENT] = comment
        if "default" in metadata:
            metadata[DEFAULT] = metadata.pop("default")
        return _Option(meta.start_pos, name_key(name), to_stored(Field(name, data_type, nullable, metadata)))

    replacement = definition

    def definitions(self, _: Meta, *columns: _Option) -> StructType:
        return StructType(tuple(self._once(columns)))

    def set_type(self, meta: Meta, data_type: DataType) -> _Option:
        return _Option(meta.start_pos, "TYPE", {"type": data_type})

    def comment(self, meta: Meta, text: str) -> _Option:
        return _Option(meta.start_pos, "COMMENT", {"comment": text})

    def set_not_null(self, meta: Meta) -> _Option:
        return _Option(meta.start_pos, "NOT NULL", {"nullable": False})

    not_null = set_not_null

    def drop_not_null(self, meta: Meta) -> _Option:
        return _Option(meta.start_pos, "NOT NULL", {"nullable": True})

    def first(self, meta: Meta) -> _Option:
        return _Option(meta.start_pos, "the place", {"first": True})

    def after(self, meta: Meta, name: str) -> _Option:
        return _Option(meta.start_pos, "the place", {"after": name})

    def default(self, meta: Meta, expression: str) -> _Option:
        return _Option(meta.start_pos, "the default", {"default": expression})

    set_default = default

    def drop_default(self, meta: Meta) -> _Option:
        return _Option(meta.start_pos, "the default", {"drop_default": True})

    def set_source(self, meta: Meta, field: str) -> _Option:
        return _Option(meta.start_pos, "the source", {"source": field})

    def drop_source(self, meta: Meta, field: str) -> _Option:
        return _Option(meta.start_pos, "a dropped source", {"drop_source": field})

    def generated(self, meta: Meta, expression: str) -> _Option:
        return _Option(meta.start_pos, "the default", {GENERATION: expression})

    def identity(self, meta: Meta, sequence: dict[str, int] | None) -> _Option:
        return self._identity(meta, sequence, explicit=False)

    def explicit_identity(self, meta: Meta, sequence: dict[str, int] | None) -> _Option:
        return self._identity(meta, sequence, explicit=True)

    def _identity(self, meta: Meta, sequence: dict[str, int] | None, *, explicit: bool) -> _Option:
        metadata = {START: 1, STEP: 1, **(sequence or {}), ALLOWS_EXPLICIT: explicit}
        if not metadata[STEP]:
            raise self._refusal(meta, "the increment of an identity column must not be 0")
        return _Option(meta.start_pos, "the default", metadata)

    def sequence(self, _: Meta, *steps: _Option) -> dict[str, int]:
        return self._merge(steps)

    def start_with(self, meta: Meta, number: int) -> _Option:
        return _Option(meta.start_pos, "START", {START: number})

    def increment_by(self, meta: Meta, number: int) -> _Option:
        return _Option(meta.start_pos, "INCREMENT", {STEP: number})

    # ---- clauses of a table ------------------------------------------------------------------------

    def properties(self, _: Meta, *properties: _Option) -> dict[str, str]:
        return dict(self._once(properties))

    def property(self, meta: Meta, key: str, value: str) -> _Option:
        return _Option(meta.start_pos, repr(key), (key, value))

    def partitioned_by(self, meta: Meta, *names: str) -> _Option:
        return _Option(meta.start_pos, "PARTITIONED BY", {"partition_by": names})

    def clustered_by(self, meta: Meta, columns: tuple[Path, ...]) -> _Option:
        return _Option(meta.start_pos, "CLUSTER BY", {"cluster_by": columns})

    def using(self, _: Meta, name: str) -> str:
        return name

    def delta(self, _: Meta) -> str:
        return "delta"

    def iceberg(self, _: Meta) -> str:
        return "iceberg"

    def partition_field(self, _: Meta, first: Path | str, size: Token | None = None, column: Path | None = None) -> str:
        if column is None:
            return format_path(cast("Path", first))
        return f"{first}({f'{size}, ' if size else ''}{format_path(column)})"

    def sort_key(self, _: Meta, column: Path, *order: str | None) -> str:
        return " ".join((format_path(column), *filter(None, order)))

    def ascending(self, _: Meta) -> str:
        return "ASC"

    def descending(self, _: Meta) -> str:
        return "DESC"

    def nulls_first(self, _: Meta) -> str:
        return "NULLS FIRST"

    def nulls_last(self, _: Meta) -> str:
        return "NULLS LAST"

    def at_version(self, _: Meta, number: int) -> int:
        return number

    retain_days = at_version

    def location(self, meta: Meta, text: str) -> _Option:
        return _Option(meta.start_pos, "LOCATION", {"location": text})

    def table_properties(self, meta: Meta, properties: dict[str, str]) -> _Option:
        return _Option(meta.start_pos, "TBLPROPERTIES", {"properties": properties})

    def version(self, _: Meta, number: int) -> int:
        return number

    def timestamp(self, _: Meta, text: str) -> str:
        return text

    def if_exists(self, _: Meta) -> bool:
        return True

    if_not_exists = truncate_history = extended = dry_run = if_exists

    # ---- words -------------------------------------------------------------------------------------

    def table(self, _: Meta, *tokens: Token) -> TableReference:
        return to_table_reference(tuple(map(_name, tokens)))

    def path(self, _: Meta, text: str) -> TableReference:
        return TableReference((TableReference.DELTA, text))

    def column(self, _: Meta, *names: str) -> Path:
        return names

    def columns(self, _: Meta, *columns: Path) -> tuple[Path, ...]:
        return columns

    def name(self, _: Meta, token: Token) -> str:
        return _name(token)

    def text(self, _: Meta, *literals: Token) -> str:
        return "".join(map(from_literal, literals))

    def key(self, _: Meta, first: str, *rest: str) -> str:
        return from_literal(first) if isinstance(first, Token) else ".".join((first, *rest))

    def value(self, meta: Meta, word: str) -> str:
        if not isinstance(word, Token) or word.type != "NAME":
            return str(word)
        if word.lower() not in ("true", "false"):
            raise self._refusal(meta, "a value must be a string in quotes, a number, true or false")
        return word.lower()

    def hours(self, _: Meta, digits: Token) -> float:
        return float(digits)

    def number(self, _: Meta, digits: Token) -> int:
        return int(digits)

    def integer(self, _: Meta, minus: Token | None, digits: Token) -> int:
        return -int(digits) if minus else int(digits)

    def type(self, meta: Meta, *_: object) -> DataType:
        text = _REMARK.sub(lambda match: match[1] or " ", self._text[meta.start_pos : meta.end_pos])
        return parse_type(text, allow_limits=True)

    def expression(self, meta: Meta, *_: object) -> str:
        return self._text[meta.start_pos : meta.end_pos]

    enclosed = predicate = expression

    def condition(self, _: Meta, *tokens: Token) -> str:
        """Return the tokens joined by spaces, as Delta Lake writes them to the log."""
        return " ".join(tokens)


def _name(token: Token) -> str:
    return token[1:-1].replace("``", "`") if token.type == "QUOTED" else str(token)


# Parse statements about rows.
#
# Source: Spark's INSERT, TRUNCATE and SELECT; Delta Lake's UPDATE, DELETE and MERGE.


_FIRST = re.compile(r"(?:\s|--[^\r\n]*|/\*[\s\S]*?\*/|\()*([A-Za-z]*)")
_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(", "MAP", "REDUCE")
_CREATE_AS = re.compile(r"\bAS\s*\(*\s*(?:SELECT|WITH|VALUES|FROM|TABLE)\b", re.IGNORECASE)


def parse_row_statement(text: str) -> RowStatement | None:
    """Parse a statement about rows; return None if the text begins like another one."""
    match = _FIRST.match(text)
    first = match[1].upper() if match else ""
    if first in _QUERY:
        return _query(text)
    parse = _PARSERS.get(first)
    return parse(TokenReader(text)) if parse else None


def split_create_as(text: str) -> tuple[str, str] | None:
    """Return the head and the query of a CREATE TABLE statement; None if it has no query."""
    match = _FIRST.match(text)
    if not match or match[1].upper() != "CREATE" or not _CREATE_AS.search(text):
        return None
    reader = TokenReader(text)
    head = reader.until("AS")
    while reader.accept("AS"):
        if reader.token.word in _QUERY:
            return head, reader.rest()
        head = text[: text.index(head) + len(head)] + " AS " + reader.until("AS")
    return None


def _query(text: str) -> Query | Insert:
    """Parse a query, or an INSERT whose query has its WITH clause in front of the statement."""
    reader = TokenReader(text)
    if reader.token.word == "WITH":
        clause = reader.until("INSERT", "SELECT", "VALUES", "FROM", "TABLE", "MAP", "REDUCE")
        if reader.token.word == "INSERT" and clause.endswith(")"):
            insert = _insert(reader)
            return replace(insert, query=f"{clause} {insert.query}")
    return Query(TokenReader(text).rest())


def _insert(reader: TokenReader) -> Insert:
    reader.expect("INSERT")
    evolves = reader.accept("WITH", "SCHEMA", "EVOLUTION")
    overwrites = reader.accept("OVERWRITE")
    if not overwrites:
        reader.expect("INTO")
    reader.accept("TABLE")
    table = reader.table()
    partition = _partition(reader)
    if not partition and not overwrites and reader.accept("REPLACE", "WHERE"):
        where = reader.until("SELECT", "WITH", "VALUES", "FROM", "TABLE")
        return Insert(table, reader.rest(), overwrites=True, where=where, evolves=evolves)
    columns = None
    by_name = reader.accept("BY", "NAME")
    if not by_name and reader.token.word == "(" and reader.peek_after_group() in _QUERY:
        columns = tuple(map(_column, reader.group().items()))
    return Insert(table, reader.rest(), columns, by_name, overwrites, evolves=evolves, partition=partition)


def _partition(reader: TokenReader) -> dict[str, str | None]:
    """Read the PARTITION clause, if there is one; a column without a value gets it from the rows."""
    values: dict[str, str | None] = {}
    for item in reader.group().items() if reader.accept("PARTITION") else ():
        first, name = item.token, item.name()
        if name_key(name) in map(name_key, values):
            raise item.refuse(f"{name} occurs twice", first)
        values[name] = None if item.is_done else _value(item)
    return values


def _value(item: TokenReader) -> str:
    item.expect("=")
    return item.rest()


def _column(reader: TokenReader) -> str:
    name = reader.name()
    reader.end()
    return name


def _update(reader: TokenReader) -> Update:
    reader.expect("UPDATE")
    table = reader.table()
    name = table_qualifiers(_name_of(table, reader.alias("SET")))
    reader.expect("SET")
    assignments = []
    for item in reader.items("WHERE"):
        column, value = _assignment(item)
        _ensure_no_subquery(value)
        assignments.append((replace_qualifiers(column, name), replace_qualifiers(value.rest(), name)))
    return Update(table, _assigned_once(assignments), _where(reader, name))


def _assigned_once(assignments: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the values by column; names that only read differently are compared when the table is known.

    Raises:
        AssignmentConflict: a column occurs twice.
    """
    values: dict[str, str] = {}
    for column, value in assignments:
        if column in values:
            raise AssignmentConflict(columns=f"{column} and {column}")
        values[column] = value
    return values


def _assignment(item: TokenReader) -> tuple[str, TokenReader]:
    """Read the column of an assignment; return it, and a reader of the value."""
    first, column = item.token, item.until("=", "==")
    if not (item.accept("=") or item.accept("==")):
        raise item.refuse(f"{column!r} is not an assignment", first)
    return column, item


def _delete(reader: TokenReader) -> Delete:
    reader.expect("DELETE")
    reader.expect("FROM")
    table = reader.table()
    name = table_qualifiers(_name_of(table, reader.alias("WHERE")))
    return Delete(table, _where(reader, name))


def _where(reader: TokenReader, name: Mapping[tuple[str, ...], str]) -> str | None:
    if reader.accept("WHERE"):
        _ensure_no_subquery(reader)
        return replace_qualifiers(reader.rest(), name)
    reader.end()
    return None


def _ensure_no_subquery(reader: TokenReader) -> None:
    subquery = reader.find_subquery()
    if subquery is not None:
        reason = "UPDATE and DELETE do not support subqueries; use MERGE INTO table USING (query) alias ON condition"
        raise reader.refuse(reason, subquery)


def _truncate(reader: TokenReader) -> Delete:
    reader.expect("TRUNCATE", "TABLE")
    table = reader.table()
    reader.end()
    return Delete(table)


# ---- MERGE -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Names:
    """The names of the tables of a merge.

    Args:
        target: The parts of the name that expressions use for the target.
        source: Likewise; empty for a query without an alias.
    """

    target: tuple[str, ...]
    source: tuple[str, ...]

    @property
    def aliases(self) -> tuple[str, str]:
        """The aliases of target and source: the last parts of their names, unless they are paths or the same."""
        target, source = _last_name(self.target), _last_name(self.source)
        if target is not None and source is not None and name_key(target) == name_key(source):
            target = source = None
        return target or "__widen_target", source or "__widen_source"

    @property
    def qualifiers(self) -> dict[tuple[str, ...], str]:
        """What replaces the names; one that both tables have stays, and is refused."""
        target, source = map(table_qualifiers, (self.target, self.source), self.aliases)
        return {name: alias for name, alias in (target | source).items() if not (name in target and name in source)}

    def resolve(self, text: str) -> str:
        """Return an expression that qualifies columns by the aliases."""
        return replace_qualifiers(text, self.qualifiers)

    def to_column(self, text: str) -> str:
        """Return a column of the target without its qualifier."""
        return replace_qualifiers(text, table_qualifiers(self.target))


def _last_name(parts: tuple[str, ...]) -> str | None:
    return parts[-1] if parts and TableReference(parts).location is None else None


def _merge(reader: TokenReader) -> Merge:
    reader.expect("MERGE")
    evolves = reader.accept("WITH", "SCHEMA", "EVOLUTION")
    reader.expect("INTO")
    table = reader.table()
    target = _name_of(table, reader.alias("USING"))
    reader.expect("USING")
    source, parts = _source(reader)
    alias = reader.alias("ON")
    names = _Names(target, (alias,) if alias else parts)
    reader.expect("ON")
    on = names.resolve(reader.until("WHEN"))
    clauses = []
    while not reader.is_done:
        clauses.append(_clause(reader, names))
    return Merge(table, source, on, tuple(clauses), *names.aliases, evolves)


def _source(reader: TokenReader) -> tuple[str, tuple[str, ...]]:
    """Read the source of a merge; return its text, and its name."""
    if reader.token.word == "(":
        return f"({reader.enclosed()})", ()
    start = reader.token.start
    table = reader.table()
    if reader.token.word in ("(", "VERSION", "TIMESTAMP", "FOR"):
        raise reader.refuse("a query as the source needs parentheses: (SELECT * FROM ...)")
    return reader.text[start : reader.token.start].rstrip(), table.parts


def _clause(reader: TokenReader, names: _Names) -> MergeClause:
    reader.expect("WHEN")
    side = MergeSide.MATCHED
    if reader.accept("NOT"):
        side = MergeSide.NOT_MATCHED
    reader.expect("MATCHED")
    if side is MergeSide.NOT_MATCHED and reader.accept("BY", "SOURCE"):
        side = MergeSide.NOT_MATCHED_BY_SOURCE
    elif side is MergeSide.NOT_MATCHED:
        reader.accept("BY", "TARGET")
    condition = names.resolve(reader.until("THEN")) if reader.accept("AND") else None
    reader.expect("THEN")
    if side is MergeSide.NOT_MATCHED:
        return MergeClause(side, ChangeKind.INSERT, condition, _insert_values(reader, names))
    if reader.accept("DELETE"):
        return MergeClause(side, ChangeKind.DELETE, condition)
    reader.expect("UPDATE", "SET")
    if side is MergeSide.MATCHED and reader.accept("*"):
        return MergeClause(side, ChangeKind.UPDATE, condition)
    assignments = map(_assignment, reader.items("WHEN"))
    values = _assigned_once((names.to_column(column), names.resolve(value.rest())) for column, value in assignments)
    return MergeClause(side, ChangeKind.UPDATE, condition, values)


def _insert_values(reader: TokenReader, names: _Names) -> dict[str, str] | None:
    reader.expect("INSERT")
    if reader.accept("*"):
        return None
    columns = [names.to_column(item.rest()) for item in reader.group().items()]
    reader.expect("VALUES")
    first = reader.token
    values = [names.resolve(item.rest()) for item in reader.group().items()]
    if len(columns) != len(values):
        raise reader.refuse(f"{len(columns)} columns are named, but there are {len(values)} values", first)
    return _assigned_once(zip(columns, values, strict=True))


def _name_of(table: TableReference, alias: str | None) -> tuple[str, ...]:
    """Return the parts of the name that expressions use for a table."""
    return table.parts if alias is None else (alias,)


_PARSERS = cast(
    Mapping[str, Callable[[TokenReader], RowStatement]],
    {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete, "TRUNCATE": _truncate, "MERGE": _merge},
)
"""The parser of each statement, by its first word."""
