"""Statements about rows, columns and tables, each run by Widen and by Delta Lake on copies of one table.

The rows, the columns, the properties and the refusals must be the same. WIDEN_STATEMENT_REPORT names a file to which
every statement is appended with what the engines did. After a difference both go on with the table of Delta Lake.
WIDEN_STATEMENT_SUITES names the suites to run, as ``merge,identity`` or ``all``, and WIDEN_STATEMENT_STEP=1 runs all of
their statements.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import widen
from widen.errors import WidenError

NUMBERS = ("_commit_version", "_commit_timestamp")
"""The columns of feeds that differ: Delta Lake also commits a merge that changes nothing."""

CHOSEN, STEP = (
    os.environ.get("WIDEN_STATEMENT_SUITES", "insert types"),
    int(os.environ.get("WIDEN_STATEMENT_STEP", "8")),
)

FEED, VECTORS, NAMES, WIDE = (
    f"'{key}' = '{value}'"
    for key, value in (
        ("delta.enableChangeDataFeed", "true"),
        ("delta.enableDeletionVectors", "true"),
        ("delta.columnMapping.mode", "name"),
        ("delta.enableTypeWidening", "true"),
    )
)


def table(columns: str, *properties: str, split: str = "") -> str:
    listed = f"TBLPROPERTIES ({', '.join(properties)})" if properties else ""
    return f"CREATE TABLE {{t}} ({columns}) USING delta {split} {listed}"


TYPES = [
    "boolean",
    "tinyint",
    "smallint",
    "int",
    "bigint",
    "float",
    "double",
    "decimal(5,2)",
    "string",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
]
VALUES = (
    *(
        "NULL",
        "true",
        "7Y",
        "300S",
        "40000",
        "5000000000L",
        "1.5F",
        "2.5D",
        "1.25BD",
        "12345.678BD",
        "'8'",
        "'x'",
        "X'31'",
    ),
    *("DATE'2024-02-29'", "TIMESTAMP'2024-02-29 12:00:00'", "TIMESTAMP_NTZ'2024-02-29 12:00:00'", "array(1)"),
)
EVERY_TYPE = ", ".join(f"c{number} {each}" for number, each in enumerate(TYPES))

SOURCE = "(SELECT * FROM VALUES (1, 'one', 10.5D), (3, 'three', 30.5D), (9, 'nine', 90.5D) AS s(id, name, amount)) s"
TWICE = "(SELECT * FROM VALUES (1, 'one', 1D), (1, 'uno', 2D) AS s(id, name, amount)) s"
MORE = "(SELECT * FROM VALUES (2, 'two', 2D, true), (8, 'eight', 8D, false) AS s(id, name, amount, extra)) s"
LESS = "(SELECT * FROM VALUES (3, 'less'), (11, 'eleven') AS s(id, name)) s"
MATCH, MISS, LONE = "WHEN MATCHED", "WHEN NOT MATCHED", "WHEN NOT MATCHED BY SOURCE"
REFILL = "INSERT OVERWRITE {t} VALUES (1, 'a', 1.0D), (2, 'b', 2.0D), (3, NULL, 3.0D), (4, 'd', NULL)"
MERGES = (
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET *",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {MISS} THEN INSERT *",
    f"USING {SOURCE} ON t.id = s.id {MATCH} AND s.amount > 20 THEN DELETE {MATCH} THEN UPDATE SET name = s.name",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET name = s.name {MATCH} THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {MISS} THEN INSERT (id) VALUES (s.id)",
    f"USING {SOURCE} ON t.id = s.id {MISS} THEN INSERT (id, id) VALUES (s.id, s.id)",
    f"USING {SOURCE} ON t.id = s.id {MISS} THEN INSERT (id, nope) VALUES (s.id, 1)",
    f"USING {SOURCE} ON t.id = s.id {MISS} THEN INSERT (id, name) VALUES (s.id)",
    f"USING {SOURCE} ON t.id = s.id {MISS} AND s.id > 100 THEN INSERT *",
    f"USING {SOURCE} ON t.id = s.id {LONE} THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {LONE} AND t.id > 3 THEN UPDATE SET name = 'lone' {LONE} THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {LONE} THEN UPDATE SET name = s.name",
    f"USING {SOURCE} ON t.id = s.id {LONE} AND s.id > 1 THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {LONE} THEN INSERT *",
    f"USING {SOURCE} ON t.id = s.id {MISS} THEN UPDATE SET name = 'x'",
    f"USING {SOURCE} ON t.id = s.id {MISS} AND t.id > 1 THEN INSERT *",
    f"USING {SOURCE} ON t.id = s.id {MISS} THEN INSERT (id, name) VALUES (s.id, t.name)",
    f"USING {SOURCE} ON t.id = s.id",
    f"USING {SOURCE} ON t.id = s.nope {MATCH} THEN DELETE",
    f"USING {SOURCE} ON id = id {MATCH} THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET t.nope = 1",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET s.name = 'x'",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET name = 'a', name = 'b'",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET id = 'text'",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET id = 5000000000",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET amount = NULL, name = upper(t.name)",
    f"USING {SOURCE} ON t.id = s.id {MATCH} THEN UPDATE SET amount = DEFAULT",
    f"USING {SOURCE} ON rand() > 0.5 {MATCH} THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {MATCH} AND rand() > 2 THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {MATCH} AND max(s.id) > 1 THEN DELETE",
    f"USING {SOURCE} ON t.id = s.id {MATCH} AND EXISTS (SELECT 1) THEN DELETE",
    f"USING {SOURCE} ON t.id = (SELECT max(1)) {MATCH} THEN DELETE",
    f"USING {SOURCE} ON true {MATCH} THEN UPDATE SET name = 'all'",
    f"USING {SOURCE} ON false {MISS} THEN INSERT *",
    f"USING {SOURCE} ON NULL {MISS} THEN INSERT *",
    f"USING {SOURCE} ON t.id <=> s.id {MATCH} AND s.name = 'one' THEN UPDATE SET *",
    f"USING {SOURCE} ON t.id = s.id AND t.name = 'a' {MATCH} THEN DELETE {MISS} THEN INSERT *",
    f"USING {SOURCE} ON t.id > s.id {MATCH} THEN UPDATE SET name = 'greater'",
    f"USING {TWICE} ON t.id = s.id {MATCH} THEN UPDATE SET *",
    f"USING {TWICE} ON t.id = s.id {MATCH} THEN DELETE",
    f"USING {TWICE} ON t.id = s.id {MATCH} AND s.name = 'uno' THEN DELETE",
    f"USING {TWICE} ON t.id = s.id {MATCH} AND s.name = 'uno' THEN UPDATE SET *",
    f"USING {TWICE} ON t.id = s.id + 10 {MISS} THEN INSERT *",
    f"USING {MORE} ON t.id = s.id {MATCH} THEN UPDATE SET *",
    f"USING {MORE} ON t.id = s.id {MISS} THEN INSERT *",
    f"USING {MORE} ON t.id = s.id {MATCH} THEN UPDATE SET extra = s.extra",
    f"USING {LESS} ON t.id = s.id {MATCH} THEN UPDATE SET *",
    f"USING {LESS} ON t.id = s.id {MISS} THEN INSERT *",
    f"USING {LESS} ON t.id = s.id {MATCH} THEN UPDATE SET t.name = s.name {MISS} THEN INSERT (name, id) VALUES (s.name, s.id)",  # noqa: E501
    f"USING {{t}} AS s ON t.id = s.id {MATCH} AND s.id = 2 THEN UPDATE SET name = 'self'",
    f"USING (SELECT 2 AS id) ON t.id = id {MATCH} THEN DELETE",
    f"USING (SELECT 2 AS ID, 'upper' AS NAME, 1D AS AMOUNT) s ON t.ID = s.ID {MATCH} THEN UPDATE SET *",
    f"USING (SELECT 2 AS id, 'b' AS name, 'x' AS amount) s ON t.id = s.id {MATCH} THEN UPDATE SET *",
    f"USING (SELECT 2L AS id, 'b' AS name, 1.5BD AS amount) s ON t.id = s.id {MATCH} THEN UPDATE SET *",
    f"USING (SELECT 5000000000L AS id, 'b' AS name, 1D AS amount) s ON t.id = s.id {MISS} THEN INSERT *",
    f"USING (SELECT 1 AS id, 1 AS id, 'x' AS name) s ON t.id = s.id {MATCH} THEN UPDATE SET name = s.name",
    f"USING (SELECT 1 AS id WHERE false) s ON t.id = s.id {LONE} THEN UPDATE SET amount = coalesce(amount, 0D) + 1",
)
EVOLVING = tuple(each for each in MERGES if "(SELECT" in each and ("extra" in each or "less" in each or "ID," in each))

STRUCTS = "id int, s struct<a: int, b: struct<c: string, d: int>>, l array<struct<x: int, y: int>>, m map<string, int>"
NESTED = (
    "INSERT INTO {t} VALUES (1, struct(1, struct('c', 2)), array(struct(1, 2)), map('k', 1)), (2, NULL, NULL, NULL)",
    "UPDATE {t} SET s.a = 5",
    "UPDATE {t} SET s.b.c = 'deep' WHERE id = 1",
    "UPDATE {t} SET s.b.d = s.a + 1, s.a = 0 WHERE id = 1",
    "UPDATE {t} SET s = NULL, s.a = 1",
    "UPDATE {t} SET s.b.c = 'x', s.b = NULL",
    "UPDATE {t} SET s.nope = 1",
    "UPDATE {t} SET l.x = 1",
    "UPDATE {t} SET m['k'] = 1",
    "UPDATE {t} SET l = array(struct(7, 8), NULL) WHERE id = 2",
    "UPDATE {t} SET m = map_concat(m, map('z', 9)) WHERE id = 1",
    "UPDATE {t} SET s = struct(9, struct('n', 9)) WHERE id = 2",
    "UPDATE {t} SET s = named_struct('b', struct('n', 9), 'a', 4) WHERE id = 2",
    "UPDATE {t} SET s = struct(9) WHERE id = 2",
    "INSERT INTO {t} BY NAME SELECT 3 AS id, named_struct('a', 1, 'b', named_struct('c', 'q', 'd', 4)) AS s",
    "INSERT INTO {t} (id, s) SELECT 4, named_struct('a', 1L, 'b', named_struct('c', 'q', 'd', 4L))",
    "INSERT INTO {t} (id, s.a) VALUES (5, 1)",
    "INSERT INTO {t} (id, l) VALUES (5, array(named_struct('x', 1, 'y', 2)))",
    "INSERT INTO {t} (id, m) VALUES (6, map('a', 5000000000L))",
    "INSERT INTO {t} (id, m) VALUES (6, map(1, 2))",
    "DELETE FROM {t} WHERE s.b.c = 'deep'",
    "DELETE FROM {t} WHERE l[0].x = 7",
    "DELETE FROM {t} WHERE m['z'] = 9 AND size(l) > 0",
    "ALTER TABLE {t} ADD COLUMNS (s.b.e double AFTER c, l.element.z string FIRST)",
    "INSERT INTO {t} (id, s) VALUES (7, struct(1, struct('c', 2.5D, 3)))",
    "ALTER TABLE {t} ALTER COLUMN s.b.d TYPE bigint",
    "ALTER TABLE {t} ALTER COLUMN m.value TYPE bigint",
    "ALTER TABLE {t} ALTER COLUMN l.element.x COMMENT 'inside'",
    "ALTER TABLE {t} ALTER COLUMN s.b.c AFTER d",
    "ALTER TABLE {t} RENAME COLUMN s.b.c TO cc",
    "ALTER TABLE {t} DROP COLUMN s.b.e",
    "ALTER TABLE {t} DROP COLUMN s.a",
    "ALTER TABLE {t} DROP COLUMN s.b",
    "ALTER TABLE {t} ADD COLUMN m.key.x int",
    "ALTER TABLE {t} ADD COLUMN s.b.D int",
    "ALTER TABLE {t} RENAME COLUMN s.b.cc TO D",
    "ALTER TABLE {t} RENAME COLUMN s.b.cc TO cc",
    "ALTER TABLE {t} RENAME COLUMN S TO s",
    "ALTER TABLE {t} ALTER COLUMN s.b.cc AFTER cc",
)

INSERTS = (
    "INSERT INTO {t} VALUES (1, 'a', 'x')",
    "INSERT INTO {t} TABLE {t}",
    "INSERT INTO {t} (p, id, name) VALUES ('y', 2, 'b'), ('z', 3, DEFAULT)",
    "INSERT INTO {t} (id) VALUES (4)",
    "INSERT INTO {t} (ID, NAME) VALUES (5, 'case')",
    "INSERT INTO {t} (id, id) VALUES (5, 6)",
    "INSERT INTO {t} (id, nope) VALUES (5, 6)",
    "INSERT INTO {t} VALUES (1, 'a')",
    "INSERT INTO {t} VALUES (1, 'a', 'x', 4)",
    "INSERT INTO {t} SELECT 'text', 'a', 'x'",
    "INSERT INTO {t} BY NAME SELECT 'q' AS p, 6 AS id",
    "INSERT INTO {t} BY NAME SELECT 'q' AS p, 6 AS id, 7 AS more",
    "INSERT INTO {t} BY NAME SELECT 6",
    "INSERT INTO {t} PARTITION (p = 'static') VALUES (7, 'in')",
    "INSERT INTO {t} PARTITION (p = 'static') (id) VALUES (8)",
    "INSERT INTO {t} PARTITION (p) SELECT 9, 'dynamic', 'd'",
    "INSERT INTO {t} PARTITION (p = NULL) VALUES (10, 'null')",
    "INSERT INTO {t} PARTITION (name = 'x') VALUES (10, 'null')",
    "INSERT INTO {t} PARTITION (nope = 'x') VALUES (10, 'null')",
    "INSERT OVERWRITE {t} PARTITION (p = 'static') VALUES (11, 'over')",
    "INSERT OVERWRITE {t} PARTITION (p) SELECT 12, 'over', 'd'",
    "INSERT INTO {t} VALUES (13, 'a', 'b=c/d%20 e'), (14, 'b', '')",
    "INSERT INTO {t} REPLACE WHERE p = 'x' VALUES (15, 'replaced', 'x')",
    "INSERT INTO {t} REPLACE WHERE p = 'x' VALUES (15, 'replaced', 'y')",
    "INSERT INTO {t} REPLACE WHERE id < 5 VALUES (1, 'data', 'z')",
    "INSERT INTO {t} REPLACE WHERE id < 5 AND p = 'z' SELECT 2, 'both', 'z'",
    "INSERT INTO {t} REPLACE WHERE nope = 1 VALUES (1, 'data', 'z')",
    "INSERT INTO {t} REPLACE WHERE rand() > 0 VALUES (1, 'data', 'z')",
    "INSERT INTO {t} REPLACE WHERE p = 'gone' SELECT 1, 'n', 'gone' WHERE false",
    "INSERT INTO {t} SELECT * FROM {t} WHERE id = 1",
    "INSERT OVERWRITE {t} SELECT id + 1, name, p FROM {t}",
    "INSERT OVERWRITE {t} (id, p) VALUES (20, 'only')",
    "INSERT OVERWRITE {t} BY NAME SELECT 21 AS id",
    "INSERT OVERWRITE {t} SELECT 1, 'n', 'p' WHERE false",
    "INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'y'), (NULL, NULL, NULL)",
    "DELETE FROM {t} WHERE p IS NULL",
    "DELETE FROM {t} WHERE id IN (SELECT 1)",
    "DELETE FROM {t} WHERE nope = 1",
    "DELETE FROM {t} WHERE id = 'text'",
    "DELETE FROM {t} WHERE id",
    "DELETE FROM {t} WHERE NULL",
    "DELETE FROM {t} WHERE rand() > 2",
    "DELETE FROM {t} WHERE count(*) > 1",
    "DELETE FROM {t} AS x WHERE x.id = 2",
    "DELETE FROM {t}",
    "TRUNCATE TABLE {t}",
    "UPDATE {t} SET id = id + 1",
    "INSERT INTO {t} VALUES (1, 'a', 'x'), (2, 'b', 'y')",
    "UPDATE {t} SET p = 'moved' WHERE id = 1",
    "UPDATE {t} SET id = name",
    "UPDATE {t} SET id = DEFAULT WHERE p = 'y'",
    "UPDATE {t} SET nope = 1",
    "UPDATE {t} SET id = 1, ID = 2",
    "UPDATE {t} SET id = (SELECT 7) WHERE p = 'y'",
    "UPDATE {t} SET id = 3 WHERE p IN (SELECT 'y')",
    "UPDATE {t} SET name = CASE WHEN id > 1 THEN NULL ELSE p END",
    "UPDATE {t} SET id = max(id)",
    "UPDATE {t} x SET x.name = 'alias' WHERE x.p = 'moved'",
    "UPDATE {t} SET id = 3000000000",
    "UPDATE {t} SET name = X'00'",
)

GENERATED = (
    "INSERT INTO {t} (id) VALUES (1), (2)",
    "INSERT INTO {t} (id, g) VALUES (3, 30)",
    "INSERT INTO {t} (id, g) VALUES (3, 31)",
    "INSERT INTO {t} (id, g) VALUES (4, NULL)",
    "INSERT INTO {t} VALUES (5, 50, DATE'2024-01-01', 2024)",
    "INSERT INTO {t} (id, day) VALUES (6, DATE'2023-05-06')",
    "INSERT INTO {t} (id, day, year) VALUES (6, DATE'2023-05-06', 2022)",
    "INSERT INTO {t} BY NAME SELECT 7 AS id",
    "INSERT INTO {t} (g) VALUES (10)",
    "INSERT INTO {t} (id) VALUES (300000000)",
    "UPDATE {t} SET id = 8 WHERE id = 7",
    "UPDATE {t} SET g = 1 WHERE id = 8",
    "UPDATE {t} SET id = 9, g = 90 WHERE id = 8",
    "UPDATE {t} SET id = NULL WHERE id = 9",
    "DELETE FROM {t} WHERE g = 30",
    "DELETE FROM {t} WHERE year = 2023",
    f"MERGE INTO {{t}} t USING (SELECT 1 AS id, DATE'2020-01-01' AS day) s ON t.id = s.id {MATCH} THEN UPDATE SET *",
    f"MERGE INTO {{t}} t USING (SELECT 1 AS id) s ON t.id = s.id {MATCH} THEN UPDATE SET id = 11",
    f"MERGE INTO {{t}} t USING (SELECT 11 AS id, 5 AS g) s ON t.id = s.id {MATCH} THEN UPDATE SET g = s.g",
    f"MERGE INTO {{t}} t USING (SELECT 12 AS id) s ON t.id = s.id {MISS} THEN INSERT (id) VALUES (s.id)",
    f"MERGE INTO {{t}} t USING (SELECT 13 AS id, 1 AS g) s ON t.id = s.id {MISS} THEN INSERT (id, g) VALUES (s.id, s.g)",  # noqa: E501
    "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
    "ALTER TABLE {t} ALTER COLUMN g TYPE bigint",
    "ALTER TABLE {t} RENAME COLUMN id TO ident",
    "ALTER TABLE {t} DROP COLUMN day",
    "ALTER TABLE {t} DROP COLUMN g",
    "ALTER TABLE {t} ALTER COLUMN g COMMENT 'computed'",
    "ALTER TABLE {t} ALTER COLUMN g FIRST",
    "ALTER TABLE {t} ALTER COLUMN g SET DEFAULT 1",
    "ALTER TABLE {t} ADD CONSTRAINT positive CHECK (g > 0 OR g IS NULL)",
    "INSERT INTO {t} (id) VALUES (-1)",
    "ALTER TABLE {t} DROP CONSTRAINT positive",
    "INSERT OVERWRITE {t} (id) VALUES (21)",
    "INSERT INTO {t} REPLACE WHERE id = 21 SELECT 21, 210, NULL, NULL",
    "ALTER TABLE {t} ADD COLUMN h int GENERATED ALWAYS AS (id)",
)
GENERATIONS = tuple(
    f"CREATE TABLE {{u}} (id int, day timestamp, g {kind} GENERATED ALWAYS AS ({expression})) USING delta"
    for kind, expression in (
        *(
            ("int", "id + 1"),
            ("bigint", "id + 1"),
            ("string", "id + 1"),
            ("date", "CAST(day AS DATE)"),
            ("int", "nope"),
        ),
        *(("int", "year(day)"), ("double", "rand()"), ("int", "(SELECT 1)"), ("bigint", "count(id)"), ("int", "g + 1")),
        *(
            ("int", "explode(array(1))"),
            ("string", "date_format(day, 'yyyy-MM')"),
            ("timestamp", "current_timestamp()"),
        ),
        *(("string", "current_user()"), ("int", "row_number() OVER (ORDER BY id)"), ("int", "1"), ("int", "NULL")),
        *(("struct<a: int>", "named_struct('a', id)"), ("array<int>", "array(id)"), ("string", "uuid()")),
    )
)

IDENTITY = (
    "INSERT INTO {t} (name) VALUES ('a')",
    "INSERT INTO {t} (name) VALUES ('b')",
    "INSERT INTO {t} (k, name) VALUES (100, 'c')",
    "INSERT INTO {t} VALUES (101, 7, 'd')",
    "INSERT INTO {t} (d, name) VALUES (50, 'e')",
    "INSERT INTO {t} (name) VALUES ('f')",
    "INSERT INTO {t} (d, name) VALUES (NULL, 'g')",
    "INSERT INTO {t} (d, name) VALUES (DEFAULT, 'g')",
    "INSERT INTO {t} (k, name) VALUES (DEFAULT, 'g')",
    "UPDATE {t} SET k = 5",
    "UPDATE {t} SET d = 5 WHERE name = 'a'",
    "UPDATE {t} SET name = 'z' WHERE name = 'b'",
    "ALTER TABLE {t} ALTER COLUMN k SYNC IDENTITY",
    "ALTER TABLE {t} ALTER COLUMN d SYNC IDENTITY",
    "ALTER TABLE {t} ALTER COLUMN name SYNC IDENTITY",
    "ALTER TABLE {t} ALTER COLUMN k TYPE int",
    "ALTER TABLE {t} ALTER COLUMN k DROP NOT NULL",
    "ALTER TABLE {t} ALTER COLUMN k SET DEFAULT 3",
    "ALTER TABLE {t} ALTER COLUMN k COMMENT 'a number'",
    "ALTER TABLE {t} REPLACE COLUMNS (k bigint, d bigint, name string)",
    "INSERT OVERWRITE {t} (name) VALUES ('only')",
    f"MERGE INTO {{t}} t USING (SELECT 'm' AS name) s ON t.name = s.name {MISS} THEN INSERT (name) VALUES (s.name)",
    f"MERGE INTO {{t}} t USING (SELECT 'n' AS name) s ON t.name = s.name {MISS} THEN INSERT (k, name) VALUES (1, s.name)",  # noqa: E501
    f"MERGE INTO {{t}} t USING (SELECT 'm' AS name) s ON t.name = s.name {MATCH} THEN UPDATE SET k = 1",
    f"MERGE INTO {{t}} t USING (SELECT 'm' AS name) s ON t.name = s.name {MATCH} THEN UPDATE SET name = 'mm'",
    "DELETE FROM {t} WHERE k > 0",
    "ALTER TABLE {t} ALTER COLUMN d SYNC IDENTITY",
    *(
        f"CREATE TABLE {{u}} (k {kind} GENERATED {how} AS IDENTITY {sequence}, v int) USING delta {split}"
        for kind, how, sequence, split in (
            *(("bigint", "ALWAYS", "", ""), ("int", "ALWAYS", "", ""), ("string", "ALWAYS", "", "")),
            *(("bigint", "ALWAYS", "(INCREMENT BY 0)", ""), ("bigint", "ALWAYS", "(START WITH 5 START WITH 6)", "")),
            *(("bigint", "BY DEFAULT", "(START WITH -9223372036854775808 INCREMENT BY -1)", ""),),
            *(("bigint", "ALWAYS", "", "PARTITIONED BY (k)"), ("decimal(10,0)", "ALWAYS", "", "")),
        )
    ),
)

ALTERS = (
    "ALTER TABLE {t} CLUSTER BY (id)",
    "ALTER TABLE {t} CLUSTER BY (id, name)",
    "ALTER TABLE {t} CLUSTER BY (nope)",
    "ALTER TABLE {t} CLUSTER BY (id, id)",
    "ALTER TABLE {t} CLUSTER BY (l)",
    "ALTER TABLE {t} CLUSTER BY (id, name, day, amount, s.a)",
    "ALTER TABLE {t} DROP COLUMN name",
    "ALTER TABLE {t} CLUSTER BY NONE",
    "ALTER TABLE {t} DROP COLUMN name",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('nope')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES IF EXISTS ('nope')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.appendOnly')",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'true')",
    "DELETE FROM {t} WHERE id = 1",
    "UPDATE {t} SET id = 2",
    "INSERT OVERWRITE {t} (id) VALUES (1)",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('delta.appendOnly')",
    *(
        f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{key}' = '{value}')"
        for key, value in (
            ("delta.dataSkippingStatsColumns", "id, nope"),
            ("delta.dataSkippingStatsColumns", "s.a, id"),
            ("delta.dataSkippingStatsColumns", "s"),
            ("delta.dataSkippingStatsColumns", "l"),
            ("delta.dataSkippingStatsColumns", "id,id"),
            ("delta.dataSkippingStatsColumns", "ID"),
            ("delta.dataSkippingStatsColumns", "part"),
            ("delta.dataSkippingStatsColumns", "id,,s"),
            ("delta.dataSkippingStatsColumns", "flag"),
            ("delta.dataSkippingNumIndexedCols", "-2"),
            ("delta.checkpointInterval", "0"),
            ("delta.logRetentionDuration", "interval 1 month"),
            ("delta.logRetentionDuration", "interval 3 days"),
            ("delta.enableVariantShredding", "true"),
            ("delta.parquet.format.version", "2.12.0"),
            ("delta.parquet.format.version", "1.0.0"),
            ("delta.writePartitionColumnsToParquet", "true"),
            ("delta.feature.materializePartitionColumns", "supported"),
            ("delta.feature.nope", "supported"),
            ("delta.columnMapping.mode", "id"),
            ("delta.columnMapping.mode", "none"),
            ("delta.nope", "1"),
            ("mine", "1"),
            ("delta.constraints.mine", "id > 0"),
            ("delta.minReaderVersion", "1"),
            ("delta.checkpointPolicy", "v2"),
            ("delta.enableRowTracking", "true"),
        )
    ),
    "INSERT INTO {t} (id) VALUES (1), (2)",
    "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0)",
    "ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 1)",
    "ALTER TABLE {t} ADD CONSTRAINT d CHECK (id > 1)",
    "ALTER TABLE {t} ADD CONSTRAINT d CHECK (nope > 1)",
    "ALTER TABLE {t} ADD CONSTRAINT d CHECK (id + 1)",
    "ALTER TABLE {t} ADD CONSTRAINT d CHECK (count(*) > 1)",
    "ALTER TABLE {t} DROP CONSTRAINT nope",
    "ALTER TABLE {t} DROP CONSTRAINT IF EXISTS nope",
    "ALTER TABLE {t} DROP FEATURE checkConstraints",
    "ALTER TABLE {t} DROP CONSTRAINT C",
    "ALTER TABLE {t} DROP FEATURE checkConstraints",
    "ALTER TABLE {t} DROP FEATURE nope",
    "ALTER TABLE {t} DROP FEATURE appendOnly",
    "ALTER TABLE {t} DROP FEATURE rowTracking",
    "ALTER TABLE {t} DROP FEATURE v2Checkpoint",
    "ALTER TABLE {t} DROP FEATURE deletionVectors",
    "ALTER TABLE {t} ALTER COLUMN id TYPE bigint",
    "ALTER TABLE {t} ALTER COLUMN id TYPE string",
    "ALTER TABLE {t} ALTER COLUMN id SET NOT NULL",
    "ALTER TABLE {t} ALTER COLUMN nope COMMENT 'x'",
    "ALTER TABLE {t} ADD COLUMN id int",
    "ALTER TABLE {t} ADD COLUMN ID int",
    "ALTER TABLE {t} ADD COLUMN n int NOT NULL",
    "ALTER TABLE {t} ADD COLUMN n int AFTER nope",
    "ALTER TABLE {t} ADD COLUMN _change_type int",
    "ALTER TABLE {t} RENAME COLUMN id TO day",
    "ALTER TABLE {t} RENAME COLUMN nope TO x",
    "ALTER TABLE {t} RENAME COLUMN part TO parts",
    "ALTER TABLE {t} DROP COLUMN parts",
    "ALTER TABLE {t} DROP COLUMNS (day, amount)",
    "ALTER TABLE {t} DROP COLUMN IF EXISTS nope",
    "ALTER TABLE {t} REPLACE COLUMNS (id bigint, flag boolean, parts string)",
)

MAINTENANCE = (
    "INSERT INTO {t} VALUES (1, 'a', 1D), (2, 'b', 2D), (3, 'c', 3D)",
    "INSERT INTO {t} VALUES (4, 'a', 1D), (5, 'b', 2D)",
    "DELETE FROM {t} WHERE id = 2",
    "OPTIMIZE {t}",
    "OPTIMIZE {t} WHERE name = 'a'",
    "OPTIMIZE {t} ZORDER BY (id)",
    "OPTIMIZE {t} ZORDER BY (nope)",
    "OPTIMIZE {t} ZORDER BY (id, id)",
    "VACUUM {t}",
    "VACUUM {t} RETAIN 168 HOURS",
    "VACUUM {t} RETAIN 1 HOURS",
    "VACUUM {t} RETAIN -1 HOURS",
    "VACUUM {t} RETAIN 200 HOURS DRY RUN",
    "VACUUM {t} LITE",
    "VACUUM {t} FULL",
    "REORG TABLE {t} APPLY (PURGE)",
    "REORG TABLE {t} WHERE id > 1 APPLY (PURGE)",
    "RESTORE TABLE {t} TO VERSION AS OF 1",
    "RESTORE TABLE {t} TO VERSION AS OF 99",
    "RESTORE TABLE {t} TO TIMESTAMP AS OF '1990-01-01'",
    "RESTORE TABLE {t} TO TIMESTAMP AS OF '2990-01-01'",
    "RESTORE TABLE {t} TO TIMESTAMP AS OF 'no time'",
    "CREATE TABLE {u} SHALLOW CLONE {t}",
    "CREATE TABLE {u} SHALLOW CLONE {t} VERSION AS OF 1",
    "CREATE TABLE {u} SHALLOW CLONE {t} VERSION AS OF 99",
    "CREATE OR REPLACE TABLE {u} SHALLOW CLONE {t}",
    "CREATE TABLE IF NOT EXISTS {u} SHALLOW CLONE {t} TBLPROPERTIES ('mine' = '1')",
    "CREATE TABLE {u} DEEP CLONE {t}",
    "DESCRIBE HISTORY {t} LIMIT 0",
    "SELECT count(*), sum(id) FROM {t}",
    "SELECT * FROM {t} VERSION AS OF 1 WHERE id > 1 ORDER BY id",
    "SELECT * FROM {t} VERSION AS OF 99",
    "SELECT * FROM {t} TIMESTAMP AS OF '1990-01-01'",
    "SELECT nope FROM {t}",
    "CREATE TABLE {t} (id int) USING delta",
    "CREATE TABLE IF NOT EXISTS {t} (id int) USING delta",
    "CREATE OR REPLACE TABLE {u} (id int) USING delta",
    "REPLACE TABLE {u} (id int) USING delta",
    "CREATE TABLE {u} USING delta AS SELECT * FROM {t}",
    "CREATE TABLE {u} USING delta PARTITIONED BY (nope) AS SELECT * FROM {t}",
    "CREATE TABLE {u} (id int, ID int) USING delta",
    "CREATE TABLE {u} (`a b` int) USING delta",
    "CREATE TABLE {u} (`a b` int) USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "CREATE TABLE {u} (id int) USING delta PARTITIONED BY (id)",
    "CREATE TABLE {u} (id int, l array<int>) USING delta PARTITIONED BY (l)",
    "CREATE TABLE {u} (id int, v varchar(3), c char(2), l array<varchar(2)>, m map<string, struct<x: char(3)>>) USING delta",  # noqa: E501
    "CREATE TABLE {u} (id int) USING delta CLUSTER BY (id)",
    "CREATE TABLE {u} (id int) USING delta CLUSTER BY (nope)",
    "CREATE TABLE {u} (id int) USING delta TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'nope')",
    "CREATE TABLE {u} (id int, v variant) USING delta",
    "CREATE TABLE {u} (id int DEFAULT 3) USING delta",
    "CREATE TABLE {u} (id int DEFAULT 3) USING delta TBLPROPERTIES ('delta.feature.allowColumnDefaults' = 'supported')",
    "CREATE TABLE {u} (id int NOT NULL COMMENT 'x') USING delta COMMENT 'whole' TBLPROPERTIES ('delta.minWriterVersion' = '3')",  # noqa: E501
)

TEXTS = (
    *("INSERT INTO {t} VALUES (1, 'abc', 'ab', array('ab'), map('k', struct('abc')), struct('ab'))",),
    *(
        f"INSERT INTO {{t}} ({column}) VALUES ({value})"
        for column, value in (
            *(
                ("v", "'abcd'"),
                ("v", "'abc   '"),
                ("c", "'a'"),
                ("c", "'abc'"),
                ("l", "array('abc')"),
                ("l", "array('a', NULL)"),
            ),
            *(
                ("m", "map('k', struct('abcd'))"),
                ("m", "map('kkk', struct('x'))"),
                ("s", "struct('abc')"),
                ("s", "struct('a')"),
            ),
        )
    ),
    "UPDATE {t} SET v = 'long text'",
    "UPDATE {t} SET s.x = 'long text'",
    "UPDATE {t} SET c = 'z', l = array('zz')",
    "UPDATE {t} SET l = array('zzz')",
    f"MERGE INTO {{t}} t USING (SELECT 1 AS id, 'wxyz' AS v) s ON t.id = s.id {MATCH} THEN UPDATE SET v = s.v",
    f"MERGE INTO {{t}} t USING (SELECT 2 AS id, array('wxy') AS l) s ON t.id = s.id {MISS} THEN INSERT (id, l) VALUES (s.id, s.l)",  # noqa: E501
    "SELECT count(*) FROM {t} WHERE c = 'z'",
    "ALTER TABLE {t} ALTER COLUMN v TYPE varchar(10)",
    "ALTER TABLE {t} ALTER COLUMN v TYPE varchar(2)",
    "ALTER TABLE {t} ALTER COLUMN c TYPE string",
    "ALTER TABLE {t} ALTER COLUMN l.element TYPE varchar(9)",
    "DELETE FROM {t} WHERE v = 'abc'",
)

CHANGES = (
    "INSERT INTO {t} VALUES (1, 'a', 1D), (2, 'b', 2D), (3, 'c', 3D)",
    "CHANGES 1",
    "UPDATE {t} SET name = 'u' WHERE id = 1",
    "CHANGES 2",
    "DELETE FROM {t} WHERE id = 2",
    "CHANGES 3 3",
    *(f"MERGE INTO {{t}} t {each}" for each in (MERGES[0] + f" {MISS} THEN INSERT *", MERGES[11], MERGES[58 - 1])),
    "CHANGES 4",
    "INSERT OVERWRITE {t} VALUES (5, 'e', 5D)",
    "INSERT INTO {t} REPLACE WHERE id = 5 VALUES (5, 'f', 6D)",
    "DELETE FROM {t}",
    "CHANGES 0",
    "CHANGES 99",
    "CHANGES 3 2",
    "CHANGES -1",
    "STREAM",
    "STREAM startingVersion=1",
    "STREAM readChangeFeed=true startingVersion=1",
    "STREAM ignoreDeletes=true",
    "STREAM skipChangeCommits=true startingVersion=1",
    "STREAM startingVersion=99",
    "STREAM startingVersion=x",
    "STREAM maxFilesPerTrigger=1 startingVersion=0 skipChangeCommits=true",
)

SUITES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "insert types": (
        table(EVERY_TYPE, "'delta.feature.timestampNtz' = 'supported'"),
        tuple(
            f"INSERT INTO {{t}} (c{number}) VALUES ({value})" for number, value in product(range(len(TYPES)), VALUES)
        ),
    ),
    "merge": (
        table("id int, name string, amount double", FEED),
        tuple(f"MERGE INTO {{t}} t {each}" for each in MERGES),
    ),
    "merge with evolution": (
        table("id int, name string, amount double", VECTORS, WIDE),
        tuple(f"MERGE WITH SCHEMA EVOLUTION INTO {{t}} t {each}" for each in EVOLVING),
    ),
    "nested": (table(STRUCTS, NAMES, WIDE), NESTED),
    "insert, update, delete": (table("id int, name string, p string", split="PARTITIONED BY (p)"), INSERTS),
    "generated": (
        table(
            "id int, g int GENERATED ALWAYS AS (id * 10), day date, year int GENERATED ALWAYS AS (year(day))",
            NAMES,
            WIDE,
        ),
        GENERATED + GENERATIONS,
    ),
    "identity": (
        table(
            "k bigint GENERATED ALWAYS AS IDENTITY, d bigint GENERATED BY DEFAULT AS IDENTITY (START WITH 10), name string"  # noqa: E501
        ),
        IDENTITY,
    ),
    "alter": (
        table(
            "id int, name string, day date, amount double, flag boolean, s struct<a: int>, l array<int>", NAMES, WIDE
        ),
        ALTERS,
    ),
    "alter a partitioned table": (
        table("id int, part string, l array<int>, s struct<a: int>", VECTORS, WIDE, split="PARTITIONED BY (part)"),
        tuple(
            each
            for each in ALTERS
            if "part" in each or "CLUSTER" in each or "SkippingStats" in each or "version" in each
        ),
    ),
    "maintenance": (table("id int, name string, amount double", VECTORS, split="PARTITIONED BY (name)"), MAINTENANCE),
    "texts": (
        table(
            "id int, v varchar(3), c char(2), l array<varchar(2)>, m map<string, struct<x: varchar(3)>>, s struct<x: char(2)>"  # noqa: E501
        ),
        TEXTS,
    ),
    "changes": (table("id int, name string, amount double", FEED), CHANGES),
}

KNOWN: Mapping[str, str] = {
    r"refused by Delta Lake alone[\s\S]*DELTA_UNSUPPORTED_SUBQUERY": "conditions of a merge may have subqueries here",
    r"Cannot find main error class": "Delta Lake fails with an error of its own",
    r"l\.element TYPE varchar": "the limit of a text in an array can be raised here",
    r"delta\.parquet\.format\.version": "only 1.0.0 is written here, and others are refused",
    r"VACUUM \{t\} RETAIN 1 HOURS": "the session of these tests turns Delta Lake's check of the retention off",
    r"VACUUM \{t\} RETAIN -1 HOURS": "Delta Lake accepts a negative retention without its check",
    r"WIDEN_INVALID_STATEMENT[\s\S]*(Omit LITE|Use Table\.rewrite|AS SELECT|Use Table\.overwrite)": (
        "named with what to do instead: VACUUM LITE, REORG, CLONE, CREATE OR REPLACE"
    ),
    r"is string in the table and binary in the data": "bytes do not become a text by themselves here",
    r"UPDATE and DELETE do not support subqueries": "refused with the MERGE to use instead",
    r"WRONG_COLUMN_DEFAULTS_FOR_DELTA": "CREATE TABLE with a default supports the feature that it needs",
    r"delta\.enableVariantShredding": "Delta Lake enables the feature by the name of its preview",
}
"""Patterns of differences that are decisions, each with the reason."""


class Pair:
    """Two copies of a table, one for each engine."""

    def __init__(self, spark: SparkSession, folder: Path, create: str) -> None:
        self.spark, self.count = spark, 0
        self.folder, self.places = folder, {"mine": str(folder / "mine"), "theirs": str(folder / "theirs")}
        spark.sql(create.format(t=f"delta.`{self.places['theirs']}`"))
        self.copy()

    def copy(self) -> None:
        """Let both go on with the table of Delta Lake."""
        shutil.rmtree(self.places["mine"], ignore_errors=True)
        shutil.copytree(self.places["theirs"], self.places["mine"])

    def run(self, statement: str) -> tuple[str, Any, Any]:
        """Run a statement on both; return how they compare, and what each did."""
        self.count += 1
        (mine, ours), (theirs, wanted) = (self.outcome(side, statement) for side in ("mine", "theirs"))
        if mine and theirs:
            return ("same refusal" if mine[0] == theirs[0] else "different message"), mine, theirs
        if bool(mine) != bool(theirs):
            kind = "refused by us alone" if mine else "refused by Delta Lake alone"
            self.copy()
            return kind, mine or ours, theirs or wanted
        if ours != wanted:
            self.copy()
            return "different", ours, wanted
        return "equal", None, None

    def outcome(self, side: str, statement: str) -> tuple[tuple[str, str] | None, Any]:
        place, other = self.places[side], str(self.folder / f"{side}{self.count}")
        text = statement.replace("{t}", f"delta.`{place}`").replace("{u}", f"delta.`{other}`")
        try:
            answer = self.answer(side, place, text)
        except Py4JJavaError as error:  # an error of the reference that PySpark does not translate
            if side == "mine":
                raise
            said = str(error)
            named = re.search(r"\[([A-Z][A-Z_]+)", said)
            return (named[1] if named else said.partition(":")[0], said[:400]), None
        except (WidenError, PySparkException) as error:
            code = error.code if isinstance(error, WidenError) else str(error.getCondition())
            return (code.partition(".")[0], str(error)[:400]), None
        return None, (answer, self.content(place), self.content(other) if Path(other).exists() else None)

    def answer(self, side: str, place: str, text: str) -> Any:
        if text.startswith("STREAM"):
            return self.streamed(side, place, dict(part.split("=") for part in text.split()[1:]))
        if text.startswith("CHANGES"):
            numbers = [int(each) for each in text.split()[1:]]
            if side == "mine":
                frame = widen.Table(place).changes(*numbers, spark=self.spark)
            else:
                options = dict(zip(("startingVersion", "endingVersion"), numbers, strict=False))
                frame = self.spark.read.option("readChangeFeed", "true").options(**options).format("delta").load(place)
            return sorted(map(repr, frame.drop(*NUMBERS).collect()))
        run = self.spark.sql(text) if side == "theirs" else widen.sql(text, spark=self.spark)
        return sorted(map(repr, run.collect())) if text.startswith("SELECT") else None

    def streamed(self, side: str, place: str, options: dict[str, str]) -> Any:
        source = "delta" if side == "theirs" else "widen"
        name = f"s{side}{self.count}"
        frame = self.spark.readStream.format(source).options(**options).load(place)
        query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
        query.awaitTermination()
        return sorted(map(repr, self.spark.table(name).drop(*NUMBERS).collect()))

    def content(self, place: str) -> Any:
        found = widen.Table(place)
        rows = found.to_arrow(spark=self.spark).to_pylist()
        state = found.snapshot
        properties = {key: value for key, value in state.properties.items() if "materialized" not in key.lower()}
        comments = [(field.name, field.metadata.get("comment")) for field in state.schema]
        features = sorted({*(state.protocol.writer_features or ()), *(state.protocol.reader_features or ())})
        return sorted(map(repr, rows)), state.schema.sql, state.partition_columns, properties, comments, features


def differences(spark: SparkSession, folder: Path, suite: str) -> Iterator[str]:
    create, statements = SUITES[suite]
    pair = Pair(spark, folder, create)
    for statement in statements[::STEP]:
        if suite.startswith("merge"):
            for place in pair.places.values():
                spark.sql(REFILL.format(t=f"delta.`{place}`")) if "extra" not in pair.content(place)[1] else None
        kind, mine, theirs = pair.run(statement)
        if report := os.environ.get("WIDEN_STATEMENT_REPORT"):
            with Path(report).open("a") as out:
                out.write(json.dumps([suite, kind, statement, str(mine), str(theirs)]) + "\n")
        if kind in ("refused by us alone", "refused by Delta Lake alone", "different"):
            yield f"{suite}: {kind}\n  {statement}\n  Widen: {mine}\n  Delta Lake: {theirs}"


@pytest.mark.parametrize("suite", SUITES if CHOSEN == "all" else CHOSEN.split(","))
def test_both_do_the_same(spark: SparkSession, tmp_path: Path, suite: str) -> None:
    widen.register(spark)
    found = [each for each in differences(spark, tmp_path, suite) if not any(re.search(known, each) for known in KNOWN)]
    assert not found, "\n\n".join(found)
