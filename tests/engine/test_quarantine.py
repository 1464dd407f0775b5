"""Records that violate fixed columns, and no others, are in the quarantine, whole and with place and reason."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from widen import IngestResult, ingest
from widen.errors import InvalidOption
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.table import Table

PROPERTIES = {
    "delta.constraints.positive": "amount > 0",
    "delta.feature.checkConstraints": "supported",
    "delta.enableTypeWidening": "true",
}
FITTING = [
    '{"id":1,"p":1,"amount":5}',
    '{"id":3000000000,"p":1,"amount":5}',
    '{"id":2,"p":3000000000,"amount":9,"new":true}',
]
QUARANTINED_RECORDS = {
    '{"p":1,"amount":5}': "id is null, and column id is NOT NULL",
    '{"id":"x","p":1,"amount":5}': 'id: "x" is not of type bigint, and column id is NOT NULL',
    '{"id":4,"p":"a","amount":5,"other":1}': 'p: "x" is not of type bigint, and column p is a partition column',
    '{"id":5,"p":2,"amount":"7"}': (
        'amount: "9" is not of type int, and column amount is referenced by the constraint positive'
    ),
    '{"id":6,"p":2,"amount":-5}': "The constraint positive (amount > 0) is not true",
    "nothing": "not a JSON record: expecting value at character 1",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quarantine")


@pytest.fixture(scope="module")
def done(spark: SparkSession, place: Path) -> IngestResult:
    widen.create_table(
        str(place / "t"), "id int not null, p int, amount int", partition_by=["p"], properties=PROPERTIES
    )
    (place / "s.jsonl").write_text("\n".join([*FITTING, *QUARANTINED_RECORDS]) + "\n", encoding="utf-8")
    return ingest(str(place / "s.jsonl"), str(place / "t"), verify=True, spark=spark)


def test_the_rest_of_the_batch_goes_through(spark: SparkSession, place: Path, done: IngestResult) -> None:
    found = [
        tuple(row) for row in Table(str(place / "t")).read(spark=spark).select("id", "p", "amount", "new").collect()
    ]
    assert sorted(found) == [(1, 1, 5, None), (2, 3000000000, 9, True), (3000000000, 1, 5, None)]
    assert Table(str(place / "t")).schema.names == ("id", "p", "amount", "new")
    assert (done.records, done.corrupt, done.quarantined) == (3, 0, 6)


def test_quarantined_records_are_whole_with_place_and_reason(
    spark: SparkSession, place: Path, done: IngestResult
) -> None:
    rows = [row.asDict() for row in Table(str(place / "t_quarantine")).read(spark=spark).collect()]
    assert {row["text"] for row in rows} == set(QUARANTINED_RECORDS)
    for row in rows:
        assert row["reason"].startswith(QUARANTINED_RECORDS[row["text"]])
        assert row["file"].endswith("s.jsonl")
        assert row["position"] == len(FITTING) + [*QUARANTINED_RECORDS].index(row["text"]) + 1
        assert row["table_version"] == 0
        assert row["kept_at"] is not None


def test_the_plan_and_the_proof_know_of_it(done: IngestResult) -> None:
    assert done.verification is not None
    assert done.verification.is_clean
    told: dict[tuple[str, ...], Any] = {kept.source: (kept.column, kept.count) for kept in done.plan.quarantined}
    assert told == {
        ("id",): ("NOT NULL", 2),
        ("p",): ("a partition column", 1),
        ("amount",): ("referenced by the constraint positive", 1),
    }


def test_a_table_of_another_kind_is_no_quarantine(spark: SparkSession, place: Path, done: IngestResult) -> None:
    with pytest.raises(InvalidOption, match="quarantine"):
        ingest(str(place / "s.jsonl"), str(place / "t"), quarantine=str(place / "t"), spark=spark)


def test_several_may_make_one_quarantine_at_once(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    widen.create_table(table, "id int not null")

    def take(number: int) -> int:
        rows = spark.createDataFrame([(f'{{"n":{number}}}',)], "value string")
        return ingest(rows, table, format="json", spark=spark).quarantined

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(take, (1, 2))) == [1, 1]
    kept = Table(f"{table}_quarantine").read(spark=spark).select("text").collect()
    assert sorted(row["text"] for row in kept) == ['{"n":1}', '{"n":2}']


@pytest.mark.parametrize(("kind", "data_type"), [("text", "string"), ("typed", "string"), ("typed", "binary")])
def test_texts_that_a_partition_cannot_hold_are_quarantined(
    spark: SparkSession, tmp_path: Path, kind: str, data_type: str
) -> None:
    texts = ["", "a/b", "__HIVE_DEFAULT_PARTITION__", " ", None, "a\0b"]
    widen.create_table(str(tmp_path / "t"), f"id int, p {data_type}", partition_by=["p"])
    frame = spark.createDataFrame([*enumerate(texts)], "id int, p string")
    source: Any = frame.withColumn("p", frame["p"].cast(data_type))
    if kind == "text":
        source = str(tmp_path / "s.jsonl")
        lines = (json.dumps({"id": number, "p": text}) for number, text in enumerate(texts))
        (tmp_path / "s.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = ingest(source, str(tmp_path / "t"), verify=True, spark=spark)
    assert (done.records, done.quarantined) == (3, 3)
    assert done.verification is not None
    assert done.verification.is_clean
    rows = Table(str(tmp_path / "t")).read(spark=spark).withColumn("p", F.col("p").cast("string")).collect()
    assert sorted((row["id"], row["p"]) for row in rows) == [(1, "a/b"), (3, " "), (4, None)]
    reasons = Table(str(tmp_path / "t_quarantine")).read(spark=spark).select("reason").collect()
    assert all(row["reason"].startswith("The partition column p (p IS NULL OR (p NOT IN (") for row in reasons)


@pytest.mark.parametrize("rule", [None, "CHECK", "DEFAULT"])
def test_quarantined_records_of_a_partition_keep_their_texts(
    spark: SparkSession, tmp_path: Path, rule: str | None
) -> None:
    at = str(tmp_path / "t")
    columns = "id INT, p STRING DEFAULT ''" if rule == "DEFAULT" else "id INT, p STRING"
    widen.sql(f"CREATE TABLE delta.`{at}` ({columns}) PARTITIONED BY (p)", spark=spark)
    if rule == "CHECK":
        widen.sql(f"ALTER TABLE delta.`{at}` ADD CONSTRAINT small CHECK (id < 4)", spark=spark)
    # The array makes its line a case for the exact path, like the number in a column of texts.
    lines = ['{"id":1,"p":""}', '{"id":2,"p":"x"}', '[{"id":3,"p":""}]', '{"id":4,"p":7}', '{"id":5}']
    lines.append('{"id":6,"p":"\\u0000"}')
    (tmp_path / "s.jsonl").write_text("\n".join(lines), encoding="utf-8")
    done = ingest(str(tmp_path / "s.jsonl"), at, verify=True, spark=spark)
    broken = {None: [1, 3, 6], "CHECK": [1, 3, 4, 5, 6], "DEFAULT": [1, 3, 5, 6]}[rule]
    kept = Table(f"{at}_quarantine").read(spark=spark).collect()
    assert sorted(json.loads(row["text"])["id"] for row in kept) == broken
    assert {row["file"].rsplit("/", 1)[-1] for row in kept} == {"s.jsonl"}
    assert sorted(row["position"] for row in kept) == broken
    rows = Table(at).read(spark=spark).collect()
    assert sorted(row["id"] for row in rows) == sorted({1, 2, 3, 4, 5, 6} - {*broken})
    assert (done.records, done.quarantined) == (len(rows), len(broken))


@pytest.mark.parametrize("kind", ["text", "typed"])
def test_reasons_show_the_masked_value_of_a_text_that_is_too_long(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    limits = {"v": "varchar(3)", "l": "array<varchar(2)>"}
    columns = [
        Field(name, parse_type(text), metadata={"__CHAR_VARCHAR_TYPE_STRING": limits[name]})
        for name, text in (("v", "string"), ("l", "array<string>"))
    ]
    widen.create_table(str(tmp_path / "t"), StructType((Field("id", parse_type("int")), *columns)))
    records = [(1, "abc", ["ab"]), (2, "Ab'\0\n12", []), (3, None, ["a", "abc"])]
    source: Any = spark.createDataFrame(records, "id int, v string, l array<string>")
    if kind == "text":
        source = str(tmp_path / "s.jsonl")
        lines = (json.dumps(dict(zip(("id", "v", "l"), record, strict=True))) for record in records)
        (tmp_path / "s.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    done = ingest(source, str(tmp_path / "t"), verify=True, spark=spark)
    assert (done.records, done.quarantined) == (1, 2)
    reasons = Table(f"{tmp_path}/t_quarantine").read(spark=spark).select("reason").collect()
    assert sorted(row["reason"] for row in reasons) == [
        'The string "Xx\'\\u0000\\n99" is too long for column v, which is of 3 characters at most.',
        'The string {"l":["x","xxx"]} is too long for column l.element, which is of 2 characters at most.',
    ]
