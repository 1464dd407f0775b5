"""SQL: what is understood, literally, and what is refused with a reason."""

from __future__ import annotations

import pytest

from widen.errors import InvalidStatement, InvalidType
from widen.model.type import INTEGER, LONG, STRING, DecimalType, MapType
from widen.statement.parse import parse
from widen.statement.value import (
    AddColumns,
    AlterColumn,
    DescribeHistory,
    SetProperties,
    Statement,
    UnsetProperties,
)

UNDERSTOOD: list[tuple[str, Statement]] = [
    (
        "ALTER TABLE delta.`/a b/t` ALTER COLUMN a.`x.y`.element TYPE decimal(10,2)",
        AlterColumn("/a b/t", ("a", "x.y", "element"), type=DecimalType(10, 2)),
    ),
    ("alter table Delta.`s3://x/y` change c type bigint;", AlterColumn("s3://x/y", ("c",), type=LONG)),
    ("ALTER TABLE delta.`t` CHANGE COLUMN c C bigint AFTER d", AlterColumn("t", ("c",), type=LONG, after="d")),
    ("ALTER TABLE delta.`t` ALTER c COMMENT 'it''s'", AlterColumn("t", ("c",), comment="it's")),
    ("ALTER TABLE delta.`t` ALTER c COMMENT 'a' 'b'", AlterColumn("t", ("c",), comment="ab")),
    ("ALTER TABLE delta.`t` ALTER COLUMN c DROP NOT NULL", AlterColumn("t", ("c",), nullable=True)),
    ("ALTER TABLE delta.`t` ALTER COLUMN c SET NOT NULL", AlterColumn("t", ("c",), nullable=False)),
    ("ALTER TABLE delta.`t` ALTER COLUMN type FIRST -- first", AlterColumn("t", ("type",), first=True)),
    ("ALTER TABLE delta.`t` ADD COLUMN a int", AddColumns("t", {"a": INTEGER})),
    (
        "ALTER TABLE delta.`t` ADD COLUMNS (a int, s.b map<string,int>)",
        AddColumns("t", {"a": INTEGER, "s.b": MapType(STRING, INTEGER)}),
    ),
    (
        "ALTER TABLE delta.`t` SET TBLPROPERTIES ('a.b' = 'x', c.d=true, 'n' 5)",
        SetProperties("t", {"a.b": "x", "c.d": "true", "n": "5"}),
    ),
    ("ALTER TABLE delta.`t` UNSET TBLPROPERTIES IF EXISTS ('a', b.c)", UnsetProperties("t", ("a", "b.c"), True)),
    ("DESCRIBE HISTORY delta.`t`", DescribeHistory("t")),
    ("desc history delta.`t` limit 3", DescribeHistory("t", 3)),
]

REFUSED = [
    ("", "it lacks"),
    ("SELECT 1", "was expected, not 'SELECT 1'"),
    ("ALTER TABLE orders ALTER COLUMN c TYPE int", "delta.`path`"),
    ("ALTER TABLE delta.`t` ALTER COLUMN c TYPE", "it lacks a type"),
    ("ALTER TABLE delta.`t` ALTER COLUMN c", "it lacks TYPE"),
    ("ALTER TABLE delta.`t` DROP COLUMN c", "ALTER, CHANGE, ADD, SET or UNSET"),
    ("ALTER TABLE delta.`t` CHANGE a b int", "is not renamed"),
    ("ALTER TABLE delta.`t` ADD COLUMN a int COMMENT 'x'", "the end"),
    ("ALTER TABLE delta.`t` ADD COLUMNS (a int, a int)", "twice"),
    ("ALTER TABLE delta.`t` ALTER a TYPE int; DROP TABLE x", "the end"),
    ("ALTER TABLE delta.`t", "tokenizing"),
    ("DESCRIBE HISTORY delta.`t` LIMIT 'x'", "a whole number"),
]


@pytest.mark.parametrize(("text", "expected"), UNDERSTOOD, ids=[text for text, _ in UNDERSTOOD])
def test_understood(text: str, expected: Statement) -> None:
    assert parse(text) == expected


@pytest.mark.parametrize(("text", "reason"), REFUSED, ids=[text for text, _ in REFUSED])
def test_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse(text)
    assert reason in caught.value.message
    assert "UNSET TBLPROPERTIES" in caught.value.advice


def test_a_type_that_is_none() -> None:
    with pytest.raises(InvalidType):
        parse("ALTER TABLE delta.`t` ALTER COLUMN c TYPE decimal(99,1)")
