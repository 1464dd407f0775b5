"""SQL: what is understood, literally; every form of the grammar is here."""

from __future__ import annotations

import pytest

from widen.errors import InvalidStatement, InvalidType
from widen.model.types import (
    ATOMIC_NAMES,
    DATE,
    INTEGER,
    LONG,
    STRING,
    ArrayType,
    AtomicType,
    DecimalType,
    Field,
    MapType,
    StructType,
)
from widen.sql_commands.grammar import FORMS
from widen.sql_commands.parser import parse_statement
from widen.sql_commands.statements import (
    AddColumns,
    AddConstraintStatement,
    AlterColumns,
    ChangePartitioning,
    ClusterBy,
    CreateReference,
    CreateTableAs,
    CreateTableStatement,
    DescribeDetail,
    DescribeHistory,
    DescribeTable,
    DropColumns,
    DropConstraintStatement,
    DropFeature,
    DropReference,
    FastForward,
    Optimize,
    RenameColumnStatement,
    ReplaceColumnsStatement,
    Restore,
    Rewrite,
    SetProperties,
    ShowProperties,
    Statement,
    SyncIdentityStatement,
    TableReference,
    UnsetProperties,
    Vacuum,
    WriteOrder,
)

T = TableReference(("delta", "t"))

FORM_OF: list[tuple[str, str, Statement]] = [
    (
        "alter_columns",
        "ALTER TABLE delta.`/a b/t` ALTER COLUMN a.`x.y`.element TYPE decimal(10, 2)",
        AlterColumns(TableReference(("delta", "/a b/t")), {("a", "x.y", "element"): {"type": DecimalType(10, 2)}}),
    ),
    ("alter_columns", "alter table Delta.`t` change c type bigint;", AlterColumns(T, {("c",): {"type": LONG}})),
    ("alter_columns", "ALTER TABLE delta.t ALTER c COMMENT ''", AlterColumns(T, {("c",): {"comment": ""}})),
    ("alter_columns", "ALTER TABLE delta.t ALTER c DROP NOT NULL", AlterColumns(T, {("c",): {"nullable": True}})),
    ("alter_columns", "ALTER TABLE delta.t ALTER c SET NOT NULL", AlterColumns(T, {("c",): {"nullable": False}})),
    ("alter_columns", "ALTER TABLE delta.t ALTER c FIRST -- first", AlterColumns(T, {("c",): {"first": True}})),
    ("alter_columns", "ALTER TABLE delta.t ALTER s.c AFTER d", AlterColumns(T, {("s", "c"): {"after": "d"}})),
    (
        "alter_columns",
        "ALTER TABLE delta.t ALTER c SET DEFAULT cast( now() AS date) -1",
        AlterColumns(T, {("c",): {"default": "cast( now() AS date) -1"}}),
    ),
    (
        "alter_columns",
        "ALTER TABLE delta.t ALTER c SET DEFAULT 1 is  not null SET NOT NULL",
        AlterColumns(T, {("c",): {"default": "1 is  not null", "nullable": False}}),
    ),
    (
        "alter_columns",
        "ALTER TABLE delta.t ALTER c SET DEFAULT CASE WHEN (first IS NOT NULL) THEN 1 END COMMENT 'x'",
        AlterColumns(T, {("c",): {"default": "CASE WHEN (first IS NOT NULL) THEN 1 END", "comment": "x"}}),
    ),
    ("alter_columns", "ALTER TABLE delta.t ALTER c DROP DEFAULT", AlterColumns(T, {("c",): {"drop_default": True}})),
    ("alter_columns", "ALTER TABLE delta.t ALTER c SET SOURCE 'd e'", AlterColumns(T, {("c",): {"source": "d e"}})),
    (
        "alter_columns",
        "ALTER TABLE delta.t ALTER source SET SOURCE source DROP SOURCE `a b`",
        AlterColumns(T, {("source",): {"source": "source", "drop_source": "a b"}}),
    ),
    (
        "alter_columns",
        "ALTER TABLE delta.t ALTER COLUMN a TYPE bigint COMMENT 'x', b DROP NOT NULL FIRST, c SET DEFAULT f(1, 2)",
        AlterColumns(
            T,
            {
                ("a",): {"type": LONG, "comment": "x"},
                ("b",): {"nullable": True, "first": True},
                ("c",): {"default": "f(1, 2)"},
            },
        ),
    ),
    (
        "alter_columns",
        "ALTER TABLE delta.t ALTER c TYPE VARCHAR ( 20 )",
        AlterColumns(T, {("c",): {"type": AtomicType("varchar(20)")}}),
    ),
    (
        "alter_columns",
        "ALTER TABLE delta.t ALTER c TYPE character(3)",
        AlterColumns(T, {("c",): {"type": AtomicType("char(3)")}}),
    ),
    (
        "change_column",
        "ALTER TABLE delta.t CHANGE COLUMN s.c C bigint COMMENT 'x' AFTER d",
        AlterColumns(T, {("s", "c"): {"type": LONG, "comment": "x", "after": "d"}}),
    ),
    ("sync_identity", "ALTER TABLE delta.t ALTER COLUMN id SYNC IDENTITY", SyncIdentityStatement(T, ("id",))),
    ("rename_column", "ALTER TABLE delta.t RENAME COLUMN a.b TO `c.d`", RenameColumnStatement(T, ("a", "b"), "c.d")),
    ("add_columns", "ALTER TABLE delta.t ADD COLUMN a int", AddColumns(T, {("a",): {"type": INTEGER}})),
    (
        "add_columns",
        "ALTER TABLE delta.t ADD COLUMNS a int DEFAULT 5, b string NOT NULL",
        AddColumns(T, {("a",): {"type": INTEGER, "default": "5"}, ("b",): {"type": STRING, "nullable": False}}),
    ),
    (
        "add_columns",
        "ALTER TABLE delta.t ADD COLUMNS (a int COMMENT 'x' FIRST, s.b map<string,array<int>> AFTER c)",
        AddColumns(
            T,
            {
                ("a",): {"type": INTEGER, "comment": "x", "first": True},
                ("s", "b"): {"type": MapType(STRING, ArrayType(INTEGER)), "after": "c"},
            },
        ),
    ),
    (
        "add_columns",
        "ALTER TABLE delta.t ADD COLUMN s struct<`a b`: int NOT NULL COMMENT 'it''s', c string /* > */>",
        AddColumns(
            T,
            {("s",): {"type": StructType((Field("a b", INTEGER, False, {"comment": "it's"}), Field("c", STRING)))}},
        ),
    ),
    ("drop_columns", "ALTER TABLE delta.t DROP COLUMN a.b", DropColumns(T, (("a", "b"),))),
    ("drop_columns", "ALTER TABLE delta.t DROP COLUMNS IF EXISTS (a, b)", DropColumns(T, (("a",), ("b",)), True)),
    (
        "replace_columns",
        "ALTER TABLE delta.t REPLACE COLUMNS (a int COMMENT 'x', b string NOT NULL)",
        ReplaceColumnsStatement(
            T, StructType((Field("a", INTEGER, True, {"comment": "x"}), Field("b", STRING, False)))
        ),
    ),
    (
        "set_properties",
        "ALTER TABLE delta.t SET TBLPROPERTIES ('a.b' = 'x', c.d=TRUE, 'n' 5, e = 1.5)",
        SetProperties(T, {"a.b": "x", "c.d": "true", "n": "5", "e": "1.5"}),
    ),
    ("unset_properties", "ALTER TABLE delta.t UNSET TBLPROPERTIES ('a', b.c)", UnsetProperties(T, ("a", "b.c"))),
    ("unset_properties", "ALTER TABLE delta.t UNSET TBLPROPERTIES IF EXISTS (a)", UnsetProperties(T, ("a",), True)),
    (
        "add_constraint",
        "ALTER TABLE delta.t ADD CONSTRAINT c CHECK (hash(a)>0 AND b.`x y` <=> 'it''s' -- so\n)",
        AddConstraintStatement(T, "c", "hash ( a ) > 0 AND b . `x y` <=> 'it''s'"),
    ),
    (
        "add_constraint",
        "ALTER TABLE delta.t ADD CONSTRAINT c CHECK (comment IS NOT NULL AND (first, after) NOT IN ((1, 2)))",
        AddConstraintStatement(T, "c", "comment IS NOT NULL AND ( first , after ) NOT IN ( ( 1 , 2 ) )"),
    ),
    ("drop_constraint", "ALTER TABLE delta.t DROP CONSTRAINT c", DropConstraintStatement(T, "c")),
    ("drop_constraint", "ALTER TABLE delta.t DROP CONSTRAINT IF EXISTS `c d`", DropConstraintStatement(T, "c d", True)),
    ("cluster_by", "ALTER TABLE delta.t CLUSTER BY (a, s.`x y`)", ClusterBy(T, (("a",), ("s", "x y")))),
    ("cluster_by_none", "ALTER TABLE delta.t CLUSTER BY NONE", ClusterBy(T)),
    ("drop_feature", "ALTER TABLE delta.t DROP FEATURE typeWidening", DropFeature(T, "typeWidening")),
    ("drop_feature", "ALTER TABLE delta.t DROP FEATURE 'x' TRUNCATE HISTORY", DropFeature(T, "x", True)),
    ("comment_on_table", "COMMENT ON TABLE delta.t IS 'x'", SetProperties(T, {"comment": "x"})),
    ("comment_on_table", "COMMENT ON TABLE delta.t IS NULL", SetProperties(T, {"comment": ""})),
    (
        "create_table",
        "CREATE TABLE delta.t (a int) USING delta",
        CreateTableStatement(T, StructType((Field("a", INTEGER),)), using="delta"),
    ),
    (
        "create_table",
        """CREATE TABLE IF NOT EXISTS shop.orders (
             id BIGINT GENERATED ALWAYS AS IDENTITY (INCREMENT BY -2 START WITH 10),
             other bigint GENERATED BY DEFAULT AS IDENTITY,
             day date NOT NULL COMMENT 'when',
             year int GENERATED ALWAYS AS (if(day IS NOT NULL, year(day), -1)),
             state varchar(2) DEFAULT 'CA'
           ) USING DELTA COMMENT 'all' PARTITIONED BY (day) LOCATION '/o' TBLPROPERTIES (x = '1')""",
        CreateTableStatement(
            TableReference(("shop", "orders")),
            StructType(
                (
                    Field(
                        "id",
                        LONG,
                        True,
                        {
                            "delta.identity.start": 10,
                            "delta.identity.step": -2,
                            "delta.identity.allowExplicitInsert": False,
                        },
                    ),
                    Field(
                        "other",
                        LONG,
                        True,
                        {
                            "delta.identity.start": 1,
                            "delta.identity.step": 1,
                            "delta.identity.allowExplicitInsert": True,
                        },
                    ),
                    Field("day", DATE, False, {"comment": "when"}),
                    Field("year", INTEGER, True, {"delta.generationExpression": "if(day IS NOT NULL, year(day), -1)"}),
                    Field(
                        "state", STRING, True, {"__CHAR_VARCHAR_TYPE_STRING": "varchar(2)", "CURRENT_DEFAULT": "'CA'"}
                    ),
                )
            ),
            ("day",),
            "/o",
            "all",
            {"x": "1"},
            True,
            "delta",
        ),
    ),
    ("restore", "RESTORE TABLE delta.t TO VERSION AS OF 3", Restore(T, 3)),
    (
        "restore",
        "RESTORE a.b.c FOR TIMESTAMP AS OF '2024-01-31'",
        Restore(TableReference(("a", "b", "c")), "2024-01-31"),
    ),
    (
        "create_table_as",
        "CREATE TABLE IF NOT EXISTS delta.t USING delta PARTITIONED BY (p) AS QUERY",
        CreateTableAs(T, partition_by=("p",), if_not_exists=True, using="delta"),
    ),
    (
        "create_table_as",
        "CREATE TABLE delta.t CLUSTER BY (a, s.`x y`) COMMENT 'c' AS QUERY",
        CreateTableAs(T, comment="c", cluster_by=(("a",), ("s", "x y"))),
    ),
    (
        "create_table",
        "CREATE TABLE delta.t (a int) CLUSTER BY (a)",
        CreateTableStatement(T, StructType((Field("a", INTEGER),)), cluster_by=(("a",),)),
    ),
    (
        "create_table",
        "CREATE TABLE delta.t (a int, s struct<b: string>) USING iceberg PARTITIONED BY (Bucket(4, a), s.b, days(`x`))",
        CreateTableStatement(
            T,
            StructType((Field("a", INTEGER), Field("s", StructType((Field("b", STRING),))))),
            ("Bucket(4, a)", "s.b", "days(x)"),
            using="iceberg",
        ),
    ),
    ("add_partition_field", "ALTER TABLE delta.t ADD PARTITION FIELD days(at)", ChangePartitioning(T, ("days(at)",))),
    ("drop_partition_field", "ALTER TABLE delta.t DROP PARTITION FIELD p", ChangePartitioning(T, drop=("p",))),
    (
        "replace_partition_field",
        "ALTER TABLE delta.t REPLACE PARTITION FIELD p WITH truncate(2, p)",
        ChangePartitioning(T, ("truncate(2, p)",), ("p",)),
    ),
    (
        "write_ordered",
        "ALTER TABLE delta.t WRITE ORDERED BY a DESC NULLS FIRST, s.b ASC, c NULLS LAST",
        WriteOrder(T, ("a DESC NULLS FIRST", "s.b ASC", "c NULLS LAST")),
    ),
    ("write_unordered", "ALTER TABLE delta.t WRITE UNORDERED", WriteOrder(T)),
    (
        "create_branch",
        "ALTER TABLE delta.t CREATE BRANCH b AS OF VERSION 7 RETAIN 3 DAYS",
        CreateReference(T, "branch", "b", 7, 3),
    ),
    ("create_tag", "ALTER TABLE delta.t CREATE TAG `v 1`", CreateReference(T, "tag", "v 1")),
    ("drop_branch", "ALTER TABLE delta.t DROP BRANCH b", DropReference(T, "branch", "b")),
    ("drop_tag", "ALTER TABLE delta.t DROP TAG b", DropReference(T, "tag", "b")),
    ("fast_forward", "ALTER TABLE delta.t FAST FORWARD main TO b", FastForward(T, "main", "b")),
    ("rewrite", "REWRITE delta.t", Rewrite(T)),
    ("vacuum", "VACUUM delta.t", Vacuum(T)),
    (
        "vacuum",
        "vacuum '/data/t' FULL RETAIN 0.5 HOURS DRY RUN",
        Vacuum(TableReference(("delta", "/data/t")), 0.5, True),
    ),
    ("optimize", "OPTIMIZE delta.t", Optimize(T)),
    (
        "optimize",
        "OPTIMIZE delta.t WHERE p = 'x' AND q.r > 1 ZORDER BY (a, b.c)",
        Optimize(T, "p = 'x' AND q.r > 1", (("a",), ("b", "c"))),
    ),
    ("describe_detail", "DESCRIBE DETAIL '/data/t'", DescribeDetail(TableReference(("delta", "/data/t")))),
    ("describe_detail", "DESC DETAIL orders", DescribeDetail(TableReference(("orders",)))),
    ("describe_history", "DESCRIBE HISTORY delta.t", DescribeHistory(T)),
    ("describe_history", "desc history delta.t limit 3", DescribeHistory(T, 3)),
    ("describe_table", "DESCRIBE delta.t", DescribeTable(T)),
    ("describe_table", "DESC TABLE FORMATTED delta.t", DescribeTable(T, True)),
    ("show_properties", "SHOW TBLPROPERTIES delta.t", ShowProperties(T)),
    ("show_properties", "SHOW TBLPROPERTIES delta.t (delta.appendOnly)", ShowProperties(T, "delta.appendOnly")),
]

WORDS = [
    "alter",
    "column",
    "type",
    "comment",
    "first",
    "after",
    "set",
    "drop",
    "default",
    "key",
    "element",
    "to",
    "table",
]

REFUSED = [
    ("ALTER TABLE t CHANGE a b int", 1, "use RENAME COLUMN"),
    ("ALTER TABLE t ADD COLUMNS (a int, A int)", 35, "a occurs twice"),
    ("ALTER TABLE t ALTER a TYPE int, A COMMENT 'x'", 33, "a occurs twice"),
    ("ALTER TABLE t ALTER a COMMENT 'x' COMMENT 'y'", 35, "COMMENT occurs twice"),
    ("ALTER TABLE t ALTER a SET NOT NULL DROP NOT NULL", 36, "NOT NULL occurs twice"),
    ("ALTER TABLE t ALTER a FIRST AFTER b", 29, "the place occurs twice"),
    ("ALTER TABLE t SET TBLPROPERTIES ('a' = '1', 'a' = '2')", 45, "'a' occurs twice"),
    ("ALTER TABLE t SET TBLPROPERTIES (a = b)", 38, "a string in quotes, a number, true or false"),
    ("CREATE TABLE t (a int, A int)", 24, "a occurs twice"),
    ("CREATE TABLE t (a int GENERATED ALWAYS AS IDENTITY)", 17, "an identity column must be a bigint"),
    ("CREATE TABLE t (a bigint GENERATED ALWAYS AS IDENTITY (INCREMENT BY 0))", 26, "must not be 0"),
    ("CREATE TABLE t (a int DEFAULT 1 GENERATED ALWAYS AS (2))", 33, "the default occurs twice"),
    ("CREATE TABLE t (a int) LOCATION '/a' LOCATION '/b'", 38, "LOCATION occurs twice"),
    (f"ALTER TABLE t ALTER c TYPE {'array<' * 3000}int{'>' * 3000}", 1, "nested too deeply"),
]


@pytest.mark.parametrize(("form", "text", "expected"), FORM_OF, ids=[text for _, text, _ in FORM_OF])
def test_understood(form: str, text: str, expected: Statement) -> None:
    assert form in FORMS
    assert parse_statement(text) == expected


def test_every_form_has_an_example() -> None:
    assert {form for form, _, _ in FORM_OF} == FORMS.keys()


@pytest.mark.parametrize("word", WORDS)
def test_names_may_be_words_of_the_grammar(word: str) -> None:
    assert parse_statement(f"ALTER TABLE t ALTER COLUMN {word} TYPE int") == AlterColumns(
        TableReference(("t",)), {(word,): {"type": INTEGER}}
    )
    assert parse_statement(f"ALTER TABLE t RENAME COLUMN a.{word} TO {word}") == RenameColumnStatement(
        TableReference(("t",)), ("a", word), word
    )
    assert parse_statement(f"ALTER TABLE t ADD COLUMNS ({word} int, s.{word} int AFTER {word})") == AddColumns(
        TableReference(("t",)), {(word,): {"type": INTEGER}, ("s", word): {"type": INTEGER, "after": word}}
    )


@pytest.mark.parametrize(("text", "column", "reason"), REFUSED, ids=[text[:60] for text, _, _ in REFUSED])
def test_refused(text: str, column: int, reason: str) -> None:
    with pytest.raises(InvalidStatement) as caught:
        parse_statement(text)
    assert caught.value.fields["column"] == column
    assert reason in str(caught.value.fields["reason"])


@pytest.mark.parametrize("name", sorted(ATOMIC_NAMES))
def test_types_may_be_words_of_the_grammar(name: str) -> None:
    found = parse_statement(f"ALTER TABLE t ADD COLUMNS (a {name} FIRST, b array<{name}>)")
    assert isinstance(found, AddColumns)
    assert found.columns["a",] == {"type": AtomicType(name), "first": True}


def test_a_type_that_is_none() -> None:
    with pytest.raises(InvalidType, match="decimal"):
        parse_statement("ALTER TABLE delta.`t` ALTER COLUMN c TYPE decimal(99,1)")
