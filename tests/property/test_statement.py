"""Laws of statements: each is read back from the SQL that it is written as, and no text does anything unforeseen."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from support.to_sql import to_sql
from widen.errors import InvalidStatement, InvalidType
from widen.model.column_path import Path, format_path
from widen.model.types import (
    ATOMIC_NAMES,
    LONG,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
)
from widen.protocol.column_metadata import to_stored
from widen.sql_commands import statements
from widen.sql_commands.grammar import UNDERSTOOD
from widen.sql_commands.parser import parse_statement
from widen.sql_commands.statements import Statement, TableReference

EVIL = [
    "it's",
    "a`b",
    "a.b",
    "x\ny",
    "😀",
    "'; DROP TABLE t; --",
    "/*",
    "--",
    "\\",
    "\\'",
    '"',
    "`",
    "é",
    " ",
    "select",
    "t",
]
CHARS = st.characters(exclude_categories=["Cs"])
TEXTS = st.sampled_from(EVIL) | st.text(CHARS, max_size=12)
NAMES = st.sampled_from(EVIL) | st.text(CHARS, min_size=1, max_size=12)
PATHS = st.lists(NAMES, min_size=1, max_size=3).map(tuple)
EXPRESSIONS = st.sampled_from(
    ["5", "-1.5", "'a''b'", "concat('x', \"y\")", "current_date() - 1", "cast(null AS int)", "`a b`"]
)
CONDITIONS = st.sampled_from(["a > 0", "a IS NOT NULL AND b <> ')'", "length ( a ) <= 5", "s . x <=> 'it''s'"])


def tables() -> st.SearchStrategy[TableReference]:
    named = PATHS.filter(lambda parts: len(parts) != 2 or parts[0].lower() != "delta").map(TableReference)
    return named | NAMES.map(lambda path: TableReference(("delta", path)))


def types() -> st.SearchStrategy[DataType]:
    digits = st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s)))
    texts = st.builds("{}({})".format, st.sampled_from(["char", "varchar"]), st.integers(1, 99))
    atoms = (st.sampled_from(sorted(ATOMIC_NAMES)) | texts).map(AtomicType) | digits
    return st.recursive(
        atoms,
        lambda inner: (
            inner.map(ArrayType)
            | st.builds(MapType, inner, inner)
            | st.lists(st.builds(Field, NAMES, inner, st.booleans(), metadata({"comment": TEXTS})), max_size=3).map(
                lambda fields: StructType(tuple(fields))
            )
        ),
        max_leaves=4,
    )


def metadata(said: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({}, optional=dict(said))


def one_of(*said: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """One of these at most."""
    return st.one_of(st.just({}), *(st.fixed_dictionaries(dict(each)) for each in said))


PLACE = one_of({"first": st.just(True)}, {"after": NAMES})
DEFAULT = one_of({"default": EXPRESSIONS}, {"drop_default": st.just(True)})
CHANGES = st.builds(
    lambda *parts: {key: said for part in parts for key, said in part.items()},
    metadata({"type": types(), "comment": TEXTS, "nullable": st.booleans()}),
    DEFAULT,
    PLACE,
).filter(bool)
NEW_COLUMNS = st.builds(
    lambda data_type, *parts: {"type": data_type, **{key: said for part in parts for key, said in part.items()}},
    types(),
    metadata({"comment": TEXTS, "nullable": st.just(False), "default": EXPRESSIONS}),
    PLACE,
)


def by_path(said: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Path, Any]]:
    pairs = st.tuples(PATHS, said)
    return st.lists(pairs, min_size=1, max_size=3, unique_by=lambda pair: format_path(pair[0]).casefold()).map(dict)


def schemas(fields: st.SearchStrategy[Field]) -> st.SearchStrategy[StructType]:
    listed = st.lists(fields, min_size=1, max_size=3, unique_by=lambda field: field.name.casefold())
    return listed.map(lambda found: StructType(tuple(found)))


PLAIN_FIELDS = st.builds(Field, NAMES, types(), st.booleans(), metadata({"comment": TEXTS})).map(to_stored)
MADE_FIELDS = st.builds(
    Field,
    NAMES,
    types(),
    st.booleans(),
    one_of({"CURRENT_DEFAULT": EXPRESSIONS}, {"delta.generationExpression": EXPRESSIONS}),
).map(to_stored)
IDENTITY_FIELDS = st.builds(
    lambda name, start, step, explicit: Field(
        name,
        LONG,
        metadata={
            "delta.identity.start": start,
            "delta.identity.step": step,
            "delta.identity.allowExplicitInsert": explicit,
        },
    ),
    NAMES,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-9, 9).filter(bool),
    st.booleans(),
)
PROPERTIES = st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=3)

STATEMENTS: st.SearchStrategy[Statement] = st.one_of(
    st.builds(statements.AlterColumns, tables(), by_path(CHANGES)),
    st.builds(statements.RenameColumnStatement, tables(), PATHS, NAMES),
    st.builds(statements.AddColumns, tables(), by_path(NEW_COLUMNS)),
    st.builds(statements.DropColumns, tables(), st.lists(PATHS, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(statements.ReplaceColumnsStatement, tables(), schemas(PLAIN_FIELDS)),
    st.builds(statements.SyncIdentityStatement, tables(), PATHS),
    st.builds(statements.AddConstraintStatement, tables(), NAMES, CONDITIONS),
    st.builds(statements.DropConstraintStatement, tables(), NAMES, st.booleans()),
    st.builds(statements.SetProperties, tables(), PROPERTIES),
    st.builds(statements.UnsetProperties, tables(), st.lists(TEXTS, min_size=1, max_size=3).map(tuple), st.booleans()),
    st.builds(statements.DropFeature, tables(), TEXTS, st.booleans()),
    st.builds(
        statements.CreateTableStatement,
        tables(),
        schemas(PLAIN_FIELDS | MADE_FIELDS | IDENTITY_FIELDS),
        st.lists(NAMES.map(lambda name: format_path((name,))), max_size=2).map(tuple),
        st.none() | TEXTS,
        st.none() | TEXTS,
        PROPERTIES | st.just({}),
        st.booleans(),
        st.sampled_from([None, "delta", "iceberg"]),
    ),
    st.builds(statements.Restore, tables(), st.integers(0, 2**40) | TEXTS),
    st.builds(statements.Vacuum, tables(), st.none() | st.integers(0, 999).map(lambda n: n / 4), st.booleans()),
    st.builds(statements.Optimize, tables(), st.none() | CONDITIONS, st.lists(PATHS, max_size=3).map(tuple)),
    st.builds(statements.DescribeDetail, tables()),
    st.builds(statements.DescribeHistory, tables(), st.none() | st.integers(0, 99)),
    st.builds(statements.DescribeTable, tables(), st.booleans()),
    st.builds(statements.ShowProperties, tables(), st.none() | TEXTS),
)


@given(STATEMENTS)
def test_a_statement_is_read_back_from_its_sql(statement: Statement) -> None:
    assert parse_statement(to_sql(statement)) == statement


def exact(schema: StructType) -> list[Any]:
    return [(field.name, field.type, field.nullable, dict(field.metadata)) for field in schema]


@given(st.builds(statements.CreateTableStatement, tables(), schemas(PLAIN_FIELDS | MADE_FIELDS | IDENTITY_FIELDS)))
def test_no_metadata_of_a_new_column_is_lost(statement: statements.CreateTableStatement) -> None:
    found = parse_statement(to_sql(statement))
    assert isinstance(found, statements.CreateTableStatement)
    assert exact(found.schema) == exact(statement.schema)


WORDS = sorted({word for form in UNDERSTOOD.values() for word in form.replace("(", " ( ").replace(")", " ) ").split()})
PIECES = st.sampled_from([*WORDS, *EVIL, "`", "'x'", "5", "1.5", ",", ".", "=", "<", ">", ";", "delta.`p`"])


@given(st.lists(PIECES, max_size=12).map(" ".join) | st.text(CHARS, max_size=40))
@example("ALTER TABLE t ALTER COLUMN c TYPE struct<")
@example("\ud83d")
def test_a_text_is_a_statement_or_is_refused(text: str) -> None:
    with contextlib.suppress(InvalidStatement, InvalidType):
        assert parse_statement(to_sql(parse_statement(text))) == parse_statement(text)
