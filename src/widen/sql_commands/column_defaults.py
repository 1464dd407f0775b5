"""DEFAULT in INSERT, UPDATE and MERGE: the default of its column, or null.

Source: Spark's DEFAULT; PROTOCOL.md#default-columns
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from widen.model.schema_json import from_json
from widen.model.types import name_key
from widen.protocol.column_metadata import find_default
from widen.protocol.table_features import supported_features
from widen.spark.dml.merge_clause import MergeClause
from widen.spark.expression import Expression
from widen.sql_commands.token_reader import TokenReader, tokenize
from widen.table import Table

_DEFAULT = "DEFAULT"


@dataclass(frozen=True, slots=True)
class ColumnDefaults:
    """The defaults of the columns of a table.

    Args:
        texts: The expressions in Spark SQL, by the names of the columns in lower case.
    """

    texts: Mapping[str, str]

    def fill_assignments(self, assignments: Mapping[str, Expression]) -> dict[str, Expression]:
        """Return assignments without DEFAULT."""
        return {
            column: self._of(_name(column)) if isinstance(value, str) and value.upper() == _DEFAULT else value
            for column, value in assignments.items()
        }

    def fill_clause(self, clause: MergeClause) -> MergeClause:
        """Return a clause of a merge without DEFAULT."""
        values = clause.values
        return clause if values is None else replace(clause, values=self.fill_assignments(values))

    def fill_rows(self, query: str, names: Sequence[str]) -> str:
        """Return a query without DEFAULT in the rows of VALUES, and in the list of a plain SELECT.

        Args:
            names: The columns that the values go to.
        """
        filled, at = "", 0
        for row in _find_rows(TokenReader(query)):
            for name, (start, text) in zip(names, row, strict=False):
                if text.strip("()` ").upper() == _DEFAULT:
                    filled, at = f"{filled}{query[at:start]}{self._of(name)}", start + len(text)
        return filled + query[at:]

    def _of(self, column: str) -> str:
        text = self.texts.get(name_key(column))
        return "NULL" if text is None else f"({text})"


_COMBINING = ("GROUP BY", "HAVING", "UNION", "EXCEPT", "INTERSECT", "MINUS")
_AFTER_LIST = (
    "FROM",
    "WHERE",
    "ORDER BY",
    "SORT BY",
    "CLUSTER BY",
    "DISTRIBUTE BY",
    "LIMIT",
    "OFFSET",
    "LATERAL",
    "WINDOW",
)


def _find_rows(query: TokenReader) -> Iterator[list[tuple[int, str]]]:
    """Yield the values whose positions are those of the columns, each with its position in the text.

    Source: Spark, which takes DEFAULT in no query that groups, combines or removes duplicates, or has a WITH clause.
    """
    if query.token.word == "(" and not query.peek_after_group():
        yield from _find_rows(query.group())
        return
    if query.accept("FROM"):
        query.until("SELECT")
    query.accept("SELECT", "*", "FROM")
    if query.accept("VALUES"):
        for row in query.items(*_COMBINING):
            yield _values(row.group().items() if row.token.word == "(" else [row])
    elif query.accept("SELECT") and query.token.word != "DISTINCT":
        values = _values(query.items(*_AFTER_LIST, *_COMBINING))
        if not query.is_done and query.token.word not in _COMBINING:
            query.until(*_COMBINING)
        if query.is_done and not any(text.endswith("*") for _, text in values):
            yield values


def _values(items: Iterable[TokenReader]) -> list[tuple[int, str]]:
    return [(item.token.start, item.rest()) for item in items]


def find_defaults(table: Table) -> ColumnDefaults:
    """Return the defaults of the columns of a table."""
    if "allowColumnDefaults" not in supported_features(table.protocol):
        return ColumnDefaults({})
    defaults = {name_key(field.name): find_default(field) for field in from_json(table.metadata.schema_string)}
    return ColumnDefaults({name: text for name, text in defaults.items() if text is not None})


def _name(column: str) -> str:
    """Return the name of a column that may be in backticks; a nested field has no default."""
    tokens = tokenize(column)
    return tokens[0].text if len(tokens) == 1 else ""
