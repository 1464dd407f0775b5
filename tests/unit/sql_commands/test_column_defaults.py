"""DEFAULT becomes the default of its column where it stands alone as a value, and nowhere else."""

from __future__ import annotations

import pytest

from widen.changes.assignment import ChangeKind
from widen.changes.merge import MergeClause, MergeSide
from widen.sql_commands.execute import ColumnDefaults

DEFAULTS = ColumnDefaults({"a": "1 + 1", "b c": "'x'"})
ROWS = [
    ("VALUES (1, DEFAULT), (default, 2)", "VALUES (1, ('x')), ((1 + 1), 2)"),
    ("VALUES DEFAULT", "VALUES (1 + 1)"),
    ("VALUES (1, 'DEFAULT'), (f(DEFAULT), `DEFAULT`)", "VALUES (1, 'DEFAULT'), (f(DEFAULT), ('x'))"),
    ("SELECT DEFAULT", "SELECT (1 + 1)"),
    (
        "(SELECT 1, (DEFAULT) FROM x WHERE a IN (SELECT 1 GROUP BY 1) LIMIT 1)",
        "(SELECT 1, ('x') FROM x WHERE a IN (SELECT 1 GROUP BY 1) LIMIT 1)",
    ),
    ("FROM x SELECT DEFAULT, DEFAULT", "FROM x SELECT (1 + 1), ('x')"),
    ("SELECT * FROM VALUES (1, DEFAULT)", "SELECT * FROM VALUES (1, ('x'))"),
    *((text, text) for text in ("SELECT DISTINCT DEFAULT", "SELECT DEFAULT FROM x GROUP BY 1", "SELECT 1, DEFAULT b")),
    *((text, text) for text in ("SELECT DEFAULT UNION SELECT 1", "SELECT 1 UNION SELECT DEFAULT", "SELECT *, DEFAULT")),
    *((text, text) for text in ("WITH x AS (SELECT 1) SELECT DEFAULT FROM x", "SELECT f(DEFAULT)", "TABLE x")),
]


@pytest.mark.parametrize(("query", "expected"), ROWS)
def test_rows(query: str, expected: str) -> None:
    assert DEFAULTS.fill_rows(query, ["a", "B C"]) == expected


def test_assignments() -> None:
    filled = DEFAULTS.fill_assignments({"A": "DEFAULT", "`b c`": "default", "d": "DEFAULT", "s.a": "DEFAULT", "e": "1"})
    assert filled == {"A": "(1 + 1)", "`b c`": "('x')", "d": "NULL", "s.a": "NULL", "e": "1"}
    clause = MergeClause(MergeSide.MATCHED, ChangeKind.UPDATE, None, {"a": "DEFAULT"})
    assert DEFAULTS.fill_clause(clause).values == {"a": "(1 + 1)"}
