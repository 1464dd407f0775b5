"""Parse statements about rows.

Source: Spark's INSERT, TRUNCATE and SELECT; Delta Lake's UPDATE, DELETE and MERGE.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import cast

from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.row_decision import ChangeKind
from widen.sql_commands.row_statements import Delete, Insert, Merge, Query, RowStatement, Update
from widen.sql_commands.statements import TableName
from widen.sql_commands.token_reader import TokenReader, without_qualifier

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


def _partition(reader: TokenReader) -> dict[str, str]:
    """Read the PARTITION clause, if there is one: each of its columns has a value."""
    if not reader.accept("PARTITION"):
        return {}
    values = {}
    for item in reader.group().items():
        name = item.name()
        if item.is_done:
            raise item.refuse("a partition column needs a value; without one, name it in the column list")
        item.expect("=")
        values[name] = item.rest()
    return values


def _column(reader: TokenReader) -> str:
    name = reader.name()
    reader.end()
    return name


def _update(reader: TokenReader) -> Update:
    reader.expect("UPDATE")
    table = reader.table()
    alias = reader.alias("SET") or _short_name(table)
    reader.expect("SET")
    assignments = _assignments(reader, alias, "WHERE")
    return Update(table, assignments, _where(reader, alias))


def _assignments(reader: TokenReader, alias: str | None, *stops: str, keeps: bool = False) -> dict[str, str]:
    """Read assignments up to a stop word; values keep their qualifiers only where two tables may be named."""
    assignments = {}
    for item in reader.items(*stops):
        first, text = item.token, item.until("=", "==")
        if not (item.accept("=") or item.accept("==")):
            raise item.refuse(f"{text!r} is not an assignment", first)
        if not keeps:
            _ensure_no_subquery(item)
        value = item.rest()
        assignments[without_qualifier(text, alias)] = value if keeps else without_qualifier(value, alias)
    return assignments


def _delete(reader: TokenReader) -> Delete:
    reader.expect("DELETE")
    reader.expect("FROM")
    table = reader.table()
    alias = reader.alias("WHERE") or _short_name(table)
    return Delete(table, _where(reader, alias))


def _where(reader: TokenReader, alias: str | None) -> str | None:
    if reader.accept("WHERE"):
        _ensure_no_subquery(reader)
        return without_qualifier(reader.rest(), alias)
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


def _merge(reader: TokenReader) -> Merge:
    reader.expect("MERGE")
    evolves = reader.accept("WITH", "SCHEMA", "EVOLUTION")
    reader.expect("INTO")
    table = reader.table()
    target_alias = reader.alias("USING") or _short_name(table) or "__widen_target"
    reader.expect("USING")
    source, default = _source(reader)
    source_alias = reader.alias("ON") or default
    reader.expect("ON")
    on = reader.until("WHEN")
    clauses = []
    while not reader.is_done:
        clauses.append(_clause(reader, target_alias))
    return Merge(table, source, on, tuple(clauses), target_alias, source_alias, evolves)


def _source(reader: TokenReader) -> tuple[str, str]:
    """Read the source of a merge; return its text, and its alias if there is no other."""
    if reader.token.word == "(":
        return f"({reader.enclosed()})", "__widen_source"
    start = reader.token.start
    table = reader.table()
    if reader.token.word in ("(", "VERSION", "TIMESTAMP", "FOR"):
        raise reader.refuse("a query as the source needs parentheses: (SELECT * FROM ...)")
    return reader.text[start : reader.token.start].rstrip(), _short_name(table) or "__widen_source"


def _clause(reader: TokenReader, alias: str) -> MergeClause:
    reader.expect("WHEN")
    side = MergeSide.MATCHED
    if reader.accept("NOT"):
        side = MergeSide.NOT_MATCHED
    reader.expect("MATCHED")
    if side is MergeSide.NOT_MATCHED and reader.accept("BY", "SOURCE"):
        side = MergeSide.NOT_MATCHED_BY_SOURCE
    elif side is MergeSide.NOT_MATCHED:
        reader.accept("BY", "TARGET")
    condition = reader.until("THEN") if reader.accept("AND") else None
    reader.expect("THEN")
    if side is MergeSide.NOT_MATCHED:
        return MergeClause(side, ChangeKind.INSERT, condition, _insert_values(reader, alias))
    if reader.accept("DELETE"):
        return MergeClause(side, ChangeKind.DELETE, condition)
    reader.expect("UPDATE", "SET")
    if side is MergeSide.MATCHED and reader.accept("*"):
        return MergeClause(side, ChangeKind.UPDATE, condition)
    return MergeClause(side, ChangeKind.UPDATE, condition, _assignments(reader, alias, "WHEN", keeps=True))


def _insert_values(reader: TokenReader, alias: str) -> dict[str, str] | None:
    reader.expect("INSERT")
    if reader.accept("*"):
        return None
    columns = [without_qualifier(item.rest(), alias) for item in reader.group().items()]
    reader.expect("VALUES")
    first = reader.token
    values = [item.rest() for item in reader.group().items()]
    if len(columns) != len(values):
        raise reader.refuse(f"{len(columns)} columns are named, but there are {len(values)} values", first)
    return dict(zip(columns, values, strict=True))


def _short_name(table: TableName) -> str | None:
    """Return the name by which a statement can refer to its table without an alias; None for a path."""
    return table.parts[-1] if table.location is None else None


_PARSERS = cast(
    Mapping[str, Callable[[TokenReader], RowStatement]],
    {"INSERT": _insert, "UPDATE": _update, "DELETE": _delete, "TRUNCATE": _truncate, "MERGE": _merge},
)
"""The parser of each statement, by its first word."""
