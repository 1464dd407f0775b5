"""MERGE: the first clause that is true takes a row; the table grows with what is taken from the source as it is."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import widen
from support.change import (
    FEED,
    LAYOUTS,
    changes,
    last_commit,
    layout_name,
    leftovers,
    numbered,
    plain,
    two_files,
)
from support.covering import covering
from widen.errors import (
    AmbiguousMerge,
    AppendOnlyTable,
    AssignedOverflow,
    ColumnMissingInSource,
    ColumnNotFound,
    ConcurrentAppend,
    IdentityColumnGiven,
    InvalidCondition,
    MergeWithoutClause,
    NotDeterministic,
    SchemaMismatch,
    UnreachableClause,
)
from widen.model.types import INTEGER, STRING, Field, StructType
from widen.table import Table

WIDENING = {"delta.enableTypeWidening": "true"}


def source(spark: SparkSession, *rows: tuple[int, str]) -> DataFrame:
    values = ", ".join(f"({n}L, '{p}')" for n, p in rows)
    return spark.sql(f"SELECT id, p, named_struct('x', int(-id), 'y', 'new') AS s FROM VALUES {values} AS v(id, p)")


@pytest.mark.parametrize(("properties", "partition_by"), LAYOUTS, ids=layout_name)
def test_clauses_of_every_side(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    table = two_files(spark, tmp_path, properties, partition_by)
    rows = source(spark, (3, "go"), (4, "all"), (14, "some"), (15, "stay"), (30, "in"), (31, "out"), (32, "other"))
    merge = table.merge(rows, "t.id = s.id")
    merge = merge.when_matched_delete(condition="s.p = 'go'")
    merge = merge.when_matched_update_all(condition="s.p = 'all'")
    merge = merge.when_matched_update({"s.x": "t.s.x * 100 + s.id"}, condition=F.col("s.p") == "some")
    merge = merge.when_not_matched_insert_all(condition="s.p = 'in'")
    merge = merge.when_not_matched_insert({"id": "s.id * 10", "s.y": "'made'"}, condition="s.p = 'other'")
    merge = merge.when_not_matched_by_source_delete(condition="t.id >= 18")
    merge = merge.when_not_matched_by_source_update({"p": "'alone'"}, condition="t.id % 8 = 0")
    merge.execute()
    expected: dict[int, Any] = {row[0]: row for row in numbered(0, 18) if row[0] != 3}
    expected |= {4: (4, "all", (-4, "new")), 14: (14, "p2", (1414, "old")), 30: (30, "in", (-30, "new"))}
    expected |= {n: (n, "alone", (n, "old")) for n in (0, 8, 16)} | {320: (320, None, (None, "made"))}
    assert plain(spark, table) == [expected[n] for n in sorted(expected)]
    operation, parameters, numbers = last_commit(table)
    assert (operation, parameters["predicate"]) == ("MERGE", '["t.id = s.id"]')
    assert parameters["notMatchedBySourcePredicates"] == (
        """[{"predicate":"t.id >= 18","actionType":"delete"},{"predicate":"t.id % 8 = 0","actionType":"update"}]"""
    )
    counted = {"Inserted": 2, "Updated": 5, "MatchedUpdated": 2, "NotMatchedBySourceUpdated": 3}
    counted |= {"Deleted": 3, "MatchedDeleted": 1, "NotMatchedBySourceDeleted": 2}
    assert {key: numbers[f"numTargetRows{key}"] for key in counted} == counted
    if FEED.items() <= properties.items():
        kinds = [kind for kind, _ in changes(table)]
        assert {kind: kinds.count(kind) for kind in kinds} == {
            "delete": 3,
            "insert": 2,
            "update_preimage": 5,
            "update_postimage": 5,
        }
    assert leftovers(table) == []


def test_several_matches(spark: SparkSession, tmp_path: Path) -> None:
    """They are an error unless all that happens to the row is that it goes."""
    table = two_files(spark, tmp_path, {}, ())
    twice = source(spark, (3, "a"), (3, "b"), (40, "c"), (40, "c"))
    with pytest.raises(AmbiguousMerge, match="1 rows"):
        table.merge(twice, "t.id = s.id").when_matched_update_all().execute()
    with pytest.raises(AmbiguousMerge):
        table.merge(twice, "t.id = s.id").when_matched_delete(condition="s.p = 'a'").execute()
    merge = table.merge(twice, "t.id = s.id").when_matched_delete()
    merge.when_not_matched_insert({"id": "s.id"}).execute()
    assert [row[0] for row in plain(spark, table)] == [0, 1, 2, *range(4, 20), 40, 40]
    assert last_commit(table)[2]["numTargetRowsDeleted"] == 1
    assert leftovers(table) == []


def test_only_inserts_write_no_file_anew(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, {"delta.appendOnly": "true"}, ())
    merge = table.merge(source(spark, (3, "a"), (50, "b")), "t.id = s.id")
    merge.when_not_matched_insert_all().execute()
    assert last_commit(table)[2] == {"numTargetRowsInserted": 1, "numOutputRows": 1, "numTargetFilesAdded": 1}
    assert table.history(1)[0][2]["isBlindAppend"] is False
    version = merge.when_not_matched_insert_all().execute().version
    assert version == table.version == 4
    with pytest.raises(AppendOnlyTable):
        merge.when_matched_delete().execute()


def test_the_source_is_asked_only_once(spark: SparkSession, tmp_path: Path) -> None:
    """A source that says something else every time gives one answer to all clauses and files."""
    table = two_files(spark, tmp_path, {}, ())
    rows = spark.range(40).selectExpr("id", "uuid() p", "named_struct('x', 1, 'y', cast(rand() AS string)) s")
    merge = table.merge(rows.where("rand() < 0.5"), "t.id = s.id")
    merge.when_matched_update({"p": "s.p"}).when_not_matched_insert_all().execute()
    found = [row[0] for row in plain(spark, table)]
    assert len(found) == len(set(found))
    assert set(range(20)) <= set(found)


def test_types_widen_to_those_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    columns = "id int, a smallint, b smallint, c smallint, s struct<x: tinyint, z: int>, m map<string, smallint>"
    table = widen.create_table(str(tmp_path), columns, properties={**WIDENING, **FEED})
    table.append(spark.sql("SELECT 1 id, 1S a, 2S b, 3S c, named_struct('x', 4Y, 'z', 5) s, map('k', 6S) m"))
    rows = spark.sql("SELECT 1 id, 70000 a, 7 b, 8L c, named_struct('x', 900, 'new', 'n') s, map('k', 80000) m, 1.5D d")
    merge = table.merge(rows, "t.id = s.id", merge_schema=True)
    merge.when_matched_update({"a": "s.a", "b": "s.b + 1", "s.x": "s.s.x", "m": "s.m"}).execute()
    assert table.read(spark=spark).schema.simpleString() == (
        "struct<id:int,a:int,b:int,c:smallint,s:struct<x:int,z:int>,m:map<string,int>>"
    )
    assert plain(spark, table) == [(1, 70000, 8, 3, (900, 5), {"k": 80000})]
    table.merge(rows, "t.id = s.id", merge_schema=True).when_matched_update_all().execute()
    assert table.read(spark=spark).schema.simpleString() == (
        "struct<id:int,a:int,b:int,c:bigint,s:struct<x:int,z:int,new:string>,m:map<string,int>,d:double>"
    )
    assert plain(spark, table) == [(1, 70000, 7, 8, (900, 5, "n"), {"k": 80000}, 1.5)]
    assert len(table.type_changes) == 5
    recorded = table.changes(table.version, spark=spark).select("_change_type", "c", "s.new", "d")
    assert sorted(map(tuple, recorded.collect())) == [
        ("update_postimage", 8, "n", 1.5),
        ("update_preimage", 3, None, None),
    ]


def test_nothing_widens_unasked(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int, v smallint", properties=WIDENING)
    table.append(spark.sql("SELECT 1 id, 1S v"))
    small, large = spark.sql("SELECT 1 id, 7 v, 'x' more"), spark.sql("SELECT 1 id, 70000 v")
    table.merge(small, "t.id = s.id").when_matched_update_all().execute()
    assert plain(spark, table) == [(1, 7)]
    for options in ({}, {"merge_schema": True, "widening": "never"}):
        with pytest.raises(AssignedOverflow, match="99999"):
            table.merge(large, "t.id = s.id", **options).when_matched_update_all().execute()  # type: ignore[arg-type]
    table.merge(large, "t.id = s.id", merge_schema=True).when_not_matched_by_source_update({"v": "9"}).execute()
    assert table.read(spark=spark).schema.simpleString() == "struct<id:int,v:smallint>"
    with pytest.raises(ColumnMissingInSource, match="v"):
        table.merge(spark.sql("SELECT 1 id"), "t.id = s.id").when_matched_update_all().execute()
    with pytest.raises(AssignedOverflow, match="value x"):
        table.merge(spark.sql("SELECT 1 id, 'x' v"), "t.id = s.id").when_matched_update_all().execute()
    assert leftovers(table) == []


@pytest.mark.parametrize("properties", [{}, FEED], ids=layout_name)
def test_what_a_new_row_lacks_is_filled_in(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    names = ("allowColumnDefaults", "generatedColumns")
    properties = {**properties, **{f"delta.feature.{name}": "supported" for name in names}}
    note = Field("note", STRING, metadata={"CURRENT_DEFAULT": "'none'"})
    twice = Field("twice", INTEGER, metadata={"delta.generationExpression": "id * 2"})
    schema = StructType((Field("id", INTEGER), note, twice, Field("v", INTEGER)))
    table = widen.create_table(str(tmp_path), schema, properties=properties)
    table.append(spark.sql("SELECT 1 id, 'old' note, 1 v"))
    merge = table.merge(spark.sql("SELECT explode(array(1, 5)) id, 7 v"), "t.id = s.id")
    merge.when_matched_update({"id": "s.id + 100"}).when_not_matched_insert({"id": "s.id"}).execute()
    assert plain(spark, table) == [(5, "none", 10, None), (101, "old", 202, 1)]
    if properties.keys() & FEED.keys():
        assert changes(table) == [("insert", 5), ("update_postimage", 101), ("update_preimage", 1)]
    table.merge(spark.sql("SELECT 6 id, 8 v"), "t.id = s.id").when_not_matched_insert_all().execute()
    assert plain(spark, table)[1] == (6, "none", 12, 8)


def test_names_and_conditions(spark: SparkSession, tmp_path: Path) -> None:
    table = two_files(spark, tmp_path, {}, ())
    rows = source(spark, (3, "a")).withColumnRenamed("id", "key")
    merge = table.merge(rows, "target.id = new.key AND key > 0", source_alias="new", target_alias="target")
    merge.when_matched_update({"p": "new.p", "s.x": "key"}).execute()
    assert plain(spark, table)[3] == (3, "a", (3, "old"))
    with pytest.raises(MergeWithoutClause):
        merge.execute()
    with pytest.raises(UnreachableClause, match="not matched"):
        merge.when_not_matched_insert({"id": "key"}).when_not_matched_insert({"id": "key"}).execute()
    refused: list[tuple[Any, type[Exception]]] = [
        (table.merge(rows, "t.nothing = s.key").when_matched_delete(), InvalidCondition),
        (table.merge(rows, "t.id = s.key AND rand() > 0").when_matched_delete(), NotDeterministic),
        (table.merge(rows, "t.id = s.key").when_matched_delete(condition="rand() > 0"), NotDeterministic),
        (table.merge(rows, "t.id = s.key").when_not_matched_insert({"id": "t.id"}), InvalidCondition),
        (table.merge(rows, "t.id = s.key").when_not_matched_by_source_update({"p": "s.p"}), InvalidCondition),
    ]
    for broken, error in refused:
        with pytest.raises(error):
            broken.execute()
    assert table.refresh().version == 4


def test_a_race_matters_only_where_rows_could_match(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = two_files(spark, tmp_path, {}, ("p",))
    other, honest = Table(table.location), table._commit_change

    def committed(*args: Any) -> Any:
        other.append(source(spark, (60, "p2")))
        return honest(*args)

    monkeypatch.setattr(table, "_commit_change", committed)
    rows = source(spark, (4, "p1"), (60, "p1"))
    merge = table.merge(rows, "t.id = s.id AND t.p = 'p1'")
    merge.when_matched_delete().when_not_matched_insert_all().execute()
    with pytest.raises(ConcurrentAppend):
        table.merge(rows, "t.id = s.id").when_matched_delete().execute()
    assert [row[:2] for row in plain(spark, table.refresh()) if row[0] > 19] == [(60, "p1"), (60, "p2"), (60, "p2")]
    assert leftovers(table) == []


@pytest.mark.parametrize(
    ("column", "shape"),
    [
        ("struct<a: int, b: int>", "{}"),
        ("array<struct<a: int, b: int>>", "array({})"),
        ("map<string, struct<a: int, b: int>>", "map('k', {})"),
    ],
)
def test_a_field_that_the_source_lacks(spark: SparkSession, tmp_path: Path, column: str, shape: str) -> None:
    """Null in its place would be a lost value: only where the schema may evolve does Delta Lake fill it in."""
    whole, part = "named_struct('a', 1, 'b', 2)", "named_struct('b', 20)"
    table = widen.create_table(str(tmp_path), f"id int, v {column}")
    table.append(spark.sql(f"SELECT 1 id, {shape.format(whole)} v"))
    before = plain(spark, table)
    rows = spark.sql(f"SELECT explode(array(1, 2)) id, {shape.format(part)} v")
    for refused in (
        table.merge(rows, "t.id = s.id").when_matched_update_all(),
        table.merge(rows, "t.id = s.id").when_matched_update({"v": "s.v"}),
        table.merge(rows, "t.id = s.id").when_not_matched_insert_all(),
        table.merge(rows, "t.id = s.id").when_not_matched_insert({"id": "s.id", "v": "s.v"}),
    ):
        with pytest.raises(SchemaMismatch, match=r"a is in the table and not in the data"):
            refused.execute()
    with pytest.raises(SchemaMismatch, match=r"a is in the table and not in the data"):
        table.update({"v": shape.format(part)}, spark=spark)
    assert plain(spark, table) == before
    merge = table.merge(rows, "t.id = s.id", merge_schema=True).when_not_matched_insert({"id": "s.id", "v": "s.v"})
    merge.execute()
    assert [row[0] for row in plain(spark, table)] == [1, 2]


def test_which_side_a_name_means(spark: SparkSession, tmp_path: Path) -> None:
    """An insert sees the source alone, a clause by source the table alone; no clause fails for another one's rows."""
    table = widen.create_table(str(tmp_path), "id int, v int, t struct<v: int, `p.q`: int>")
    table.append(spark.sql("SELECT explode(array(1, 2)) id, 10 v, named_struct('v', 5, 'p.q', 6) t"))
    rows = spark.sql("SELECT id, id * 100 v, id - 2 w FROM VALUES (2), (3) AS x(id)")
    merge = table.merge(rows, "t.id = s.id").when_matched_update({"t.v": "s.v + t.v", "t.t.`p.q`": "w"})
    merge = merge.when_not_matched_insert({"id": "id", "v": "v div w"}, condition="v > 100 AND w <> 0")
    merge.when_not_matched_by_source_update({"v": "v + 1"}, condition="v < 100").execute()
    assert plain(spark, table) == [(1, 11, (5, 6)), (2, 210, (5, 0)), (3, 300, None)]
    merge = table.merge(rows.withColumn("v", rows["v"] + 1), "t.id = s.id", merge_schema=True)
    merge.when_matched_update({"s.w": "s.w + 7"}).when_not_matched_by_source_delete(condition="v = 11").execute()
    assert plain(spark, table) == [(2, 210, (5, 0), 7), (3, 300, None, 8)]
    for refused in (
        table.merge(rows, "t.id = s.id").when_matched_update({"v": "v"}),
        table.merge(rows, "t.id = s.id").when_not_matched_insert({"id": "s.id", "v": "t.v"}),
        table.merge(rows, "t.id = s.id").when_not_matched_by_source_update({"v": "s.v"}),
    ):
        with pytest.raises(InvalidCondition):
            refused.execute()


def test_values_are_cast(spark: SparkSession, tmp_path: Path) -> None:
    """As an explicit cast does it: text to a number where it is one, doubles to ints without their fraction."""
    table = widen.create_table(str(tmp_path), "id int, i int, l array<int>, m map<string, struct<x: int>>, d date")
    rows = spark.sql("SELECT 1 id, '12' i, array('3', null) l, map('k', named_struct('x', '4')) m, '2020-02-03' d")
    table.merge(rows, "t.id = s.id").when_not_matched_insert_all().execute()
    assert plain(spark, table) == [(1, 12, [3, None], {"k": (4,)}, date(2020, 2, 3))]
    table.merge(rows, "t.id = s.id").when_matched_update({"i": "-2.7D", "l": "array(1.5D)"}).execute()
    assert plain(spark, table) == [(1, -2, [1], {"k": (4,)}, date(2020, 2, 3))]
    for assigned, value in [({"i": "'12.5'"}, "99.9"), ({"l": "array('y')"}, "x"), ({"i": "3e10D"}, "9.9X99")]:
        with pytest.raises(AssignedOverflow, match=value):
            table.merge(rows, "t.id = s.id").when_matched_update(assigned).execute()
    with pytest.raises(SchemaMismatch):
        table.merge(rows, "t.id = s.id").when_matched_update({"d": "1"}).execute()


def test_assignments_add_columns_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    """The column of that name in the source says the type of a new column, whatever is assigned to it."""
    table = widen.create_table(str(tmp_path), "id int, n struct<a: smallint>", properties=WIDENING)
    table.append(spark.sql("SELECT 1 id, named_struct('a', 1S) n"))
    rows = spark.sql("SELECT explode(array(1, 2)) id, named_struct('a', 70000, 'b', 'x') n, 7L w, 'z' z")
    merge = table.merge(rows, "t.id = s.id", merge_schema=True)
    for path in ("n.c", "nowhere"):
        with pytest.raises(ColumnNotFound):
            merge.when_matched_update({path: "s.w"}).execute()
    with pytest.raises(ColumnNotFound):
        merge.when_not_matched_insert_all().when_not_matched_by_source_update({"w": "1"}).execute()
    with pytest.raises(ColumnNotFound):
        table.merge(rows, "t.id = s.id", merge_schema=False).when_matched_update({"n.b": "s.n.b"}).execute()
    merge = merge.when_matched_update({"n.b": "upper(s.n.b)", "n.a": "s.n.a + 1"})
    merge.when_not_matched_insert({"id": "id", "w": "1"}).execute()
    assert table.read(spark=spark).schema.simpleString() == "struct<id:int,n:struct<a:int,b:string>,w:bigint>"
    assert plain(spark, table) == [(1, (70001, "X"), None), (2, None, 1)]


SEQUENCES = {"": 1, " (START WITH 100 INCREMENT BY -3)": -3}


@pytest.mark.parametrize(("sequence", "vectors"), covering(SEQUENCES, [False, True]))
def test_inserted_rows_get_identities(spark: SparkSession, tmp_path: Path, sequence: str, vectors: bool) -> None:
    step = SEQUENCES[sequence]
    at, properties = str(tmp_path / "t"), f"TBLPROPERTIES ('delta.enableDeletionVectors' = '{str(vectors).lower()}')"
    columns = f"n bigint GENERATED BY DEFAULT AS IDENTITY{sequence}, id int, p string"
    widen.sql(f"CREATE TABLE delta.`{at}` ({columns}) {properties}", spark=spark)
    table = Table(at)
    # A value that a row provides does not count as one of the sequence.
    table.append(
        spark.createDataFrame([(2**63 - 1 if step > 0 else -(2**63), 0, "given")], "n bigint, id int, p string")
    )
    table.append(spark.createDataFrame([(1, "a"), (2, "b")], "id int, p string").coalesce(1))
    before = {row.id: row.n for row in table.read(spark=spark).collect()}
    for turn in (1, 2):
        rows = spark.createDataFrame([(i, "new") for i in (0, 1, *range(10 * turn, 10 * turn + 8))], "id int, p string")
        merge = table.merge(rows.repartition(3), "t.id = s.id").when_matched_update_all()
        merge = merge.when_not_matched_insert({"id": "s.id", "p": "'odd'"}, condition="s.id % 2 = 1")
        merge = merge.when_not_matched_insert({"n": "-7L", "id": "s.id"}, condition="s.id % 10 = 0")
        merge.when_not_matched_insert_all().execute()
    found = {row.id: row.n for row in table.read(spark=spark).collect()}
    new = [n for id, n in found.items() if id > 2 and id % 10]
    assert {id: found[id] for id in before} == before
    assert (found[10], found[20], len(found), len({*new, *before.values()})) == (-7, -7, 19, len(new) + len(before))
    assert {(n - before[1]) % abs(step) for n in new} == {0}
    mark = table.snapshot.schema.fields[0].metadata["delta.identity.highWaterMark"]
    assert mark == (max if step > 0 else min)(new)


def test_the_table_gives_its_identities_itself(spark: SparkSession, tmp_path: Path) -> None:
    at = str(tmp_path / "t")
    widen.sql(f"CREATE TABLE delta.`{at}` (n bigint GENERATED ALWAYS AS IDENTITY, id int)", spark=spark)
    merge = Table(at).merge(spark.range(3).selectExpr("5L n", "int(id) id"), "t.id = s.id")
    with pytest.raises(IdentityColumnGiven):
        merge.when_not_matched_insert_all().execute()
    Table(at).merge(spark.range(0).selectExpr("int(id) id"), "t.id = s.id").when_not_matched_insert_all().execute()
    assert Table(at).version == 0
    merge = Table(at).merge(spark.range(3).selectExpr("int(id) id"), "t.id = s.id")
    assert merge.when_not_matched_insert_all().execute().metrics["numTargetRowsInserted"] == 3
    assert len({row.n for row in Table(at).read(spark=spark).collect()}) == 3
