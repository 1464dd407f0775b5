"""What is said of a text that is not understood: the place, what could stand there, and the nearest form."""

from __future__ import annotations

import pytest

from widen.errors import InvalidStatement
from widen.sql_commands.grammar import ALL_FORMS as FORMS
from widen.sql_commands.grammar import UNDERSTOOD, nearest_form
from widen.sql_commands.parser import parse_statement

FIRST_WORDS = (
    "ALTER, COMMENT, CREATE, DELETE, DESC, DESCRIBE, INSERT, MERGE, OPTIMIZE, RESTORE, REWRITE, SELECT, SHOW, "
    "TRUNCATE, UPDATE or VACUUM"
)
PLACES = [
    ("", 1, 1, f"expected {FIRST_WORDS}"),
    ("SELEC 1", 1, 1, f"expected {FIRST_WORDS}, not 'SELEC'"),
    (
        "ALTER TABLE t DROP COLUM a",
        1,
        20,
        "expected BRANCH, COLUMN, COLUMNS, CONSTRAINT, FEATURE, PARTITION or TAG, not 'COLUM'",
    ),
    ("ALTER TABLE t ALTER COLUMN c TYPE  ", 1, 34, "expected a name"),
    ("ALTER TABLE t\n  ALTER COLUMN\n  c", 3, 4, "expected AFTER, COMMENT, DROP, FIRST, SET, SYNC or TYPE"),
    ("ALTER TABLE t RENAME COLUMN a TO b.c", 1, 35, "expected ';' or the end, not '.'"),
    (
        "ALTER TABLE t RENAME COLUMN a TO b; DROP TABLE t",
        1,
        37,
        "only one statement is allowed, and a second one begins here",
    ),
    ("ALTER TABLE t ALTER a COMMENT 'x", 1, 31, "this quote is not closed"),
    ("ALTER TABLE delta.`t ALTER a FIRST", 1, 19, "this quote is not closed"),
    (
        "ALTER TABLE t ALTER a COMMENT \"x\" 'y' z",
        1,
        39,
        "expected AFTER, COMMENT, DROP, FIRST, SET, TYPE, ',', ';', a string in quotes or the end, not 'z'",
    ),
    ("ALTER TABLE t ALTER a SET DEFAULT", 1, 34, "expected an expression"),
    ("ALTER TABLE t ADD CONSTRAINT c CHECK (a > 1", 1, 44, "expected ')' or an expression"),
    ("DESCRIBE HISTORY t LIMIT 'x'", 1, 26, "expected a number, not \"'x'\""),
    ("CREATE TABLE t (a int) USING parquet", 1, 30, "expected DELTA or ICEBERG, not 'parquet'"),
    ("ALTER TABLE t ALTER é FIRST ?", 1, 29, "or the end, not '?'"),
]

NEAREST = [
    ("ALTER TABLE t DROP COLUM a", "drop_columns"),
    ("ALTER TABLE t RENAME COLUM a b", "rename_column"),
    ("ALTER TABLE t MODIFY COLUMN a TYPE int", "alter_columns"),
    ("CREATE TABLE t (a int) PARTITIONED a", "create_table"),
    ("SHOW PROPERTIES t", "show_properties"),
    ("DESCRIBE HISTRY t", "describe_history"),
    ("RESTORE t TO 5", "restore"),
]


OPTIONS = [
    ("VACUUM t LITE", 10, "Omit LITE: VACUUM deletes every file that no version within the retention needs."),
    (
        "CREATE TABLE t SHALLOW CLONE u",
        16,
        "Use CREATE TABLE … AS SELECT; Widen reads clones, but only Delta Lake creates them.",
    ),
    (
        "OPTIMIZE t FULL",
        12,
        "Omit FULL: it is for clustered tables. To write all files again in an order, use ZORDER BY.",
    ),
]


@pytest.mark.parametrize(("text", "column", "advice"), OPTIONS)
def test_an_option_of_other_engines_is_explained(text: str, column: int, advice: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse_statement(text)
    assert (caught.value.fields["column"], caught.value.fields["nearest"]) == (column, advice)


@pytest.mark.parametrize(("text", "line", "column", "reason"), PLACES)
def test_the_place_and_what_could_stand_there(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse_statement(text)
    fields = caught.value.fields
    assert (fields["line"], fields["column"]) == (line, column)
    assert reason in str(fields["reason"])


def test_a_caret_points_at_the_place() -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse_statement("ALTER TABLE t\n\tALTER COLUMN c TIPE int")
    assert caught.value.message.splitlines()[:3] == [
        "The statement cannot be parsed at line 2, column 17:",
        "   ALTER COLUMN c TIPE int",
        "                  ^",
    ]


def test_a_long_line_is_cut() -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse_statement(f"ALTER TABLE t ADD COLUMNS ({', '.join(f'column{n} int' for n in range(500))} oops)")
    excerpt, caret = str(caught.value.fields["excerpt"]).splitlines()
    assert excerpt[len(caret) - 1 :].startswith("oops")
    assert len(excerpt) < 110


@pytest.mark.parametrize(("text", "form"), NEAREST)
def test_the_nearest_form(text: str, form: str) -> None:
    assert nearest_form(text) == f"The nearest form is:\n{'  '}{UNDERSTOOD[form]}"


def test_what_is_like_nothing_gets_all_forms() -> None:
    assert len(nearest_form("GRANT x TO y").splitlines()) == 1 + len(FORMS)


def test_a_form_of_another_statement_is_never_near() -> None:
    for text in ("INSERT t RENAME COLUMN a TO b", "UPDATE t ALTER COLUMN c TYPE int", "VACUUM t DROP FEATURE f"):
        assert nearest_form(text).splitlines()[1].split()[0] == text.split()[0]


def test_what_sql_does_not_do_names_the_method_that_does() -> None:
    assert nearest_form("REORG TABLE t APPLY (PURGE)").startswith("Use Table.rewrite")
    assert nearest_form("copy into t from 's3://b/x'") == "Use widen.ingest or widen ingest --new."
