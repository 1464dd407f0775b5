"""Parse a statement.

Source: Spark's ALTER TABLE and CREATE TABLE: which clauses may not be repeated, and what strings, numbers and names
    mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from lark import Lark, Token, Transformer, v_args
from lark.exceptions import UnexpectedInput, VisitError
from lark.tree import Meta

from widen.errors import InvalidStatement, WidenError
from widen.model.column_path import Path, format_path
from widen.model.sql_literal import LITERAL, from_literal
from widen.model.type_parser import parse_type
from widen.model.types import LONG, DataType, Field, StructType, name_key
from widen.planning.alter.set_properties import DESCRIPTION
from widen.planning.evolution.source_metadata import COMMENT
from widen.protocol.column_metadata import ALLOWS_EXPLICIT, DEFAULT, GENERATION, START, STEP
from widen.protocol.text_limits import to_stored
from widen.sql_commands import statements as statements
from widen.sql_commands.grammar import QUOTED, REMARK, grammar
from widen.sql_commands.row_parser import parse_row_statement, split_create_as
from widen.sql_commands.row_statements import CreateTableAs, RowStatement
from widen.sql_commands.statements import Statement, TableName
from widen.sql_commands.syntax_error import refused_message, unexpected_token_message
from widen.sql_commands.token_reader import to_table_name

if TYPE_CHECKING:
    from widen.planning.alter.alter_request import ColumnChanges, NewColumn


def parse_sql(text: str) -> Statement | RowStatement:
    """Parse one statement, also one about rows.

    Raises:
        InvalidStatement: as for `parse_statement`.
        InvalidType: a type cannot be parsed.
    """
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

    Raises:
        InvalidStatement: the text does not have exactly one statement that this version supports; the error has the
            position and the nearest form.
        InvalidType: a type cannot be parsed.

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

    def alter_columns(self, _: Meta, table: TableName, *changes: _Option) -> Statement:
        return statements.AlterColumns(table, dict(self._once(changes)))

    def change_column(
        self, meta: Meta, table: TableName, column: Path, name: str, data_type: DataType, *options: _Option
    ) -> Statement:
        if name_key(name) != name_key(column[-1]):
            raise self._refusal(meta, "this form of CHANGE cannot rename a column; use RENAME COLUMN")
        changes = cast("ColumnChanges", {"type": data_type, **self._merge(options)})
        return statements.AlterColumns(table, {column: changes})

    def sync_identity(self, _: Meta, table: TableName, column: Path) -> Statement:
        return statements.SyncIdentity(table, column)

    def rename_column(self, _: Meta, table: TableName, column: Path, name: str) -> Statement:
        return statements.RenameColumn(table, column, name)

    def add_columns(self, _: Meta, table: TableName, columns: dict[Path, NewColumn]) -> Statement:
        return statements.AddColumns(table, columns)

    def drop_columns(self, _: Meta, table: TableName, if_exists: bool | None, columns: tuple[Path, ...]) -> Statement:
        return statements.DropColumns(table, columns, bool(if_exists))

    def replace_columns(self, _: Meta, table: TableName, *columns: _Option) -> Statement:
        return statements.ReplaceColumns(table, StructType(tuple(self._once(columns))))

    # ---- statements: the rest ----------------------------------------------------------------------

    def set_properties(self, _: Meta, table: TableName, properties: dict[str, str]) -> Statement:
        return statements.SetProperties(table, properties)

    def comment_on_table(self, _: Meta, table: TableName, text: str = "") -> Statement:
        return statements.SetProperties(table, {DESCRIPTION: text})

    def unset_properties(self, _: Meta, table: TableName, if_exists: bool | None, *keys: str) -> Statement:
        return statements.UnsetProperties(table, keys, bool(if_exists))

    def cluster_by(self, _: Meta, table: TableName, columns: tuple[Path, ...] = ()) -> Statement:
        return statements.ClusterBy(table, columns)

    cluster_by_none = cluster_by

    def add_constraint(self, _: Meta, table: TableName, name: str, condition: str) -> Statement:
        return statements.AddConstraint(table, name, condition)

    def drop_constraint(self, _: Meta, table: TableName, if_exists: bool | None, name: str) -> Statement:
        return statements.DropConstraint(table, name, bool(if_exists))

    def drop_feature(self, _: Meta, table: TableName, name: str, truncate_history: bool | None) -> Statement:
        return statements.DropFeature(table, name, bool(truncate_history))

    def create_table(
        self, _: Meta, if_not_exists: bool | None, table: TableName, schema: StructType, *clauses: _Option
    ) -> Statement:
        return statements.CreateTable(table, schema, **self._merge(clauses), if_not_exists=bool(if_not_exists))

    def restore(self, _: Meta, table: TableName, moment: int | str) -> Statement:
        return statements.Restore(table, moment)

    def create_table_as(
        self, _: Meta, if_not_exists: bool | None, table: TableName, *clauses: _Option
    ) -> CreateTableAs:
        return CreateTableAs(table, **self._merge(clauses), if_not_exists=bool(if_not_exists))

    def vacuum(self, _: Meta, table: TableName, hours: float | None, dry_run: bool | None) -> Statement:
        return statements.Vacuum(table, hours, bool(dry_run))

    def optimize(self, _: Meta, table: TableName, where: str | None, columns: tuple[Path, ...] | None) -> Statement:
        return statements.Optimize(table, where, columns or ())

    def describe_detail(self, _: Meta, table: TableName) -> Statement:
        return statements.DescribeDetail(table)

    def describe_history(self, _: Meta, table: TableName, limit: int | None) -> Statement:
        return statements.DescribeHistory(table, limit)

    def describe_table(self, _: Meta, extended: bool | None, table: TableName) -> Statement:
        return statements.DescribeTable(table, bool(extended))

    def show_properties(self, _: Meta, table: TableName, key: str | None) -> Statement:
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

    def table(self, _: Meta, *tokens: Token) -> TableName:
        return to_table_name(tuple(map(_name, tokens)))

    def path(self, _: Meta, text: str) -> TableName:
        return TableName((TableName.DELTA, text))

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
