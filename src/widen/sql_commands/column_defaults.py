"""DEFAULT in INSERT, UPDATE and MERGE: the default of its column, or null.

Source: Spark's DEFAULT; PROTOCOL.md#default-columns
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from widen.model.schema_json import from_json
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
        """Return a query in which no row of VALUES has DEFAULT; other queries stay as they are.

        Args:
            names: The columns that the values go to.
        """
        reader, filled, at = TokenReader(query), "", 0
        if not reader.accept("VALUES"):
            return query
        for row in reader.items():
            values = row.group().items() if row.token.word == "(" else [row]
            for name, value in zip(names, values, strict=False):
                token = value.token
                if value.rest().upper() == _DEFAULT:
                    filled, at = f"{filled}{query[at : token.start]}{self._of(name)}", token.end
        return filled + query[at:]

    def _of(self, column: str) -> str:
        text = self.texts.get(column.casefold())
        return "NULL" if text is None else f"({text})"


def find_defaults(table: Table) -> ColumnDefaults:
    """Return the defaults of the columns of a table."""
    if "allowColumnDefaults" not in supported_features(table.protocol):
        return ColumnDefaults({})
    defaults = {field.name.casefold(): find_default(field) for field in from_json(table.metadata.schema_string)}
    return ColumnDefaults({name: text for name, text in defaults.items() if text is not None})


def _name(column: str) -> str:
    """Return the name of a column that may be in backticks; a nested field has no default."""
    tokens = tokenize(column)
    return tokens[0].text if len(tokens) == 1 else ""
