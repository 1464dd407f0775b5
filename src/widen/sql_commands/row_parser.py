"""Parse statements about rows.

Source: Spark's INSERT, TRUNCATE and SELECT; Delta Lake's UPDATE, DELETE and MERGE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from widen.model.types import name_key
from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.row_decision import ChangeKind
from widen.sql_commands.row_statements import Delete, Insert, Merge, Query, RowStatement, Update
from widen.sql_commands.statements import TableName
from widen.sql_commands.token_reader import TokenReader, replace_qualifiers, table_qualifiers

_FIRST = re.compile(r"(?:\s|--[^\r\n]*|/\*[\s\S]*?\*/|\()*([A-Za-z]*)")
_QUERY = ("SELECT", "WITH", "VALUES", "FROM", "TABLE", "(", "MAP", "REDUCE")
_CREATE_AS = re.compile(r"\bAS\s*\(*\s*(?:SELECT|WITH|VALUES|FROM|TABLE)\b", re.IGNORECASE)


def parse_row_statement(text: str) -> RowStatement | None:
    """Parse a statement about rows; return None if the text begins like another one.

    Raises:
        InvalidStatement: the text begins like a statement about rows, but is not one.
    """
    match = _FIRST.match(text)
    first = match[1].upper() if match else ""
    if first in _QUERY:
        return _query(text)
    parse = _PARSERS.get(first)
    return parse(TokenReader(text)) if parse else None


def split_create_as(text: str) -> tuple[str, str] | None:
    """Return the head and the query of a CREATE TABLE statement; None if it has no query.

    Raises:
        InvalidStatement: a quote is not closed.
    """
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
    assignments = {}
    for item in reader.items("WHERE"):
        column, value = _assignment(item)
        _ensure_no_subquery(value)
        assignments[replace_qualifiers(column, name)] = replace_qualifiers(value.rest(), name)
    return Update(table, assignments, _where(reader, name))


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
        target: The parts of the name by which expressions refer to the target.
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
        """Return an expression in which columns are qualified by the aliases."""
        return replace_qualifiers(text, self.qualifiers)

    def to_column(self, text: str) -> str:
        """Return a column of the target without its qualifier."""
        return replace_qualifiers(text, table_qualifiers(self.target))


def _last_name(parts: tuple[str, ...]) -> str | None:
    return parts[-1] if parts and TableName(parts).location is None else None


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
    values = {names.to_column(column): names.resolve(value.rest()) for column, value in assignments}
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
    return dict(zip(columns, values, strict=True))


def _name_of(table: TableName, alias: str | None) -> tuple[str, ...]:
    """Return the parts of the name by which expressions refer to a table."""
    return table.parts if alias is None else (alias,)


_PARSERS = cast(
    Mapping[str, Callable[[TokenReader], RowStatement]],
    {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete, "TRUNCATE": _truncate, "MERGE": _merge},
)
"""The parser of each statement, by its first word."""
