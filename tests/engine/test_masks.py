"""No hidden value is in any file of a table, its quarantine or its report: Delta and Iceberg, texts and typed sources.

WIDEN_MASK_TABLES sets the number of generated tables.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import widen
from widen import ingest
from widen.errors import UnmatchedFields
from widen.ingestion.replay_quarantine import replay
from widen.table import Table

TABLES = int(os.environ.get("WIDEN_MASK_TABLES", "6"))


def stored_text(folder: Path) -> str:
    """Return all bytes below a folder, and the values and statistics of its Parquet files."""
    parts = []
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            parts += [str(path.relative_to(folder)), path.read_bytes().decode("latin-1")]
            if path.suffix == ".parquet":
                file = pq.ParquetFile(path)
                groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
                parts += [str(file.read().to_pylist()), *(str(group.to_dict()) for group in groups)]
            elif path.suffix == ".avro":
                parts.append(str(_avro(path)))
    return "\n".join(parts)


def _avro(path: Path) -> Any:
    from pyiceberg.io.pyarrow import PyArrowFileIO
    from pyiceberg.manifest import DEFAULT_READ_VERSION, read_manifest_list  # noqa: F401

    source = PyArrowFileIO().new_input(str(path))
    if path.name.startswith("snap-"):
        return [
            [entry.data_file for entry in each.fetch_manifest_entry(PyArrowFileIO())]
            for each in read_manifest_list(source)
        ]
    return ""


def secret(draw: random.Random, secrets: list[str]) -> Any:
    word, digits = "".join(draw.choices("ghjkmnpqrs", k=14)), str(draw.randint(10**14, 10**15 - 1))
    secrets += [word, digits]
    return draw.choice((word, word, int(digits), [word], {"k": word}))


def record(draw: random.Random, secrets: list[str]) -> str:
    email = draw.choice(("email", "Email", "EMAIL"))
    customer: Any = {email: secret(draw, secrets), "name": "a"}
    form = draw.randint(0, 3)
    customer = (customer, json.dumps(customer), [customer, None], {**customer, "x": None})[form]
    tags = {draw.choice(("ssn", "Ssn")): secret(draw, secrets), "k": {"v": 1}}
    row = {"id": draw.choice((1, 2, 3, "x")), "customer": customer, "m": tags, "pin": secret(draw, secrets)}
    return json.dumps(row) + draw.choice(("", "", "", "}", " "))


@pytest.mark.parametrize("seed", range(TABLES))
def test_no_hidden_value_is_in_a_file(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw, secrets = random.Random(seed), list[str]()
    is_iceberg = seed % 2 == 1
    catalog = str(tmp_path / "table" / "catalog.db") if is_iceberg else None
    name = "shop.orders" if is_iceberg else str(tmp_path / "table" / "t")
    (tmp_path / "table").mkdir()
    target: dict[str, Any] = {"catalog": catalog} if is_iceberg else {}
    policy: dict[str, Any] = {
        "mask": ["Customer.EMAIL", "m.ssn"],
        "exclude": ["PIN"],
        "pins": draw.choice(({"m": "map"}, {"m": "json"}, {"customer": "json"}, {"m": "map<string,string>"}, {})),
        "samples": "raw",
        "evolve": draw.choice(("widen", "split", "freeze")),
    }
    if not is_iceberg and draw.random() < 0.7:
        properties = {"delta.constraints.positive": "id > 1", "delta.feature.checkConstraints": "supported"}
        widen.create_table(name, "id int not null", properties=properties)
        policy["evolve"] = "widen"
    shown = []
    for number in range(2):
        lines = [record(draw, secrets) for _ in range(8)]
        complete = {"id": 4, "customer": {"email": "e"}, "m": {"ssn": 1}, "pin": 1}
        (tmp_path / f"{number}.jsonl").write_text("\n".join([json.dumps(complete), *lines]), encoding="utf-8")
        events: list[Any] = []
        source = str(tmp_path / f"{number}.jsonl")
        done = ingest(source, name, **target, **policy, spark=spark, verify=True, on_event=events.append)
        assert done.verification is not None
        assert done.verification.is_clean, (seed, policy, done.verification)
        shown += [str(events), json.dumps(done.to_value(), default=str)]
    if not is_iceberg:
        table = Table(name)
        shown += [json.dumps(table.report().to_value(), default=str)] if hasattr(table, "report") else []
        table.optimize(spark=spark)
        if Path(f"{name}_quarantine").exists():
            replay(f"{name}_quarantine", name, **{**policy, "evolve": "widen"}, spark=spark)
    text = stored_text(tmp_path / "table") + "\n".join(shown)
    found = [each for each in secrets if each in text]
    assert not found, (seed, policy, found)


def test_typed_sources_and_columns_of_texts(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.sql(
        """select 1 id, '{"email":"hjkmnsecret1"}' customer, map('EMAIL', 'hjkmnsecret2', 'k', 'kept') m,
        named_struct('Email', 'hjkmnsecret3', 'name', 'kept') s, binary('{"email":"hjkmnsecret4"}') b,
        array(named_struct('eMail', 77000111222333)) l, map('a', named_struct('email', 'hjkmnsecret6')) n,
        named_struct('email', 'hjkmnsecret7') S2, 'hjkmnsecret8' Phone"""
    )
    names = ("customer", "m", "s", "b", "l", "n", "s2")
    mask = [f"{name}.email" for name in names]
    done = ingest(frame, str(tmp_path / "t"), mask=mask, exclude=["phone"], verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.is_clean
    text = stored_text(tmp_path / "t")
    assert "hjkmnsecret" not in text
    assert "77000111222333" not in text
    row = Table(str(tmp_path / "t")).read(spark=spark).collect()[0].asDict(recursive=True)
    assert (row["customer"], row["m"], row["s"]["name"]) == ("***", {"EMAIL": "***", "k": "kept"}, "kept")
    with pytest.raises(UnmatchedFields, match="emial"):
        ingest(frame, str(tmp_path / "u"), mask=["m.emial"], spark=spark)
    assert not (tmp_path / "u" / "_delta_log").exists()


def test_a_field_that_an_earlier_load_knew_may_be_missing(spark: SparkSession, tmp_path: Path) -> None:
    for number, text in enumerate(('{"a":1,"ssn":2,"m":{"email":1}}', '{"a":1}', '{"a":1,"b":1}')):
        (tmp_path / f"{number}.json").write_text(text, encoding="utf-8")
    for name, target in ((str(tmp_path / "t"), {}), ("x.t", {"catalog": str(tmp_path / "c.db")})):
        policy: dict[str, Any] = {"exclude": ["SSN"], "mask": ["m.email"], "pins": {"m": "map"}, **target}
        with pytest.raises(UnmatchedFields):
            ingest(str(tmp_path / "1.json"), name, **policy, spark=spark)
        ingest(str(tmp_path / "0.json"), name, **policy, spark=spark)
        ingest(str(tmp_path / "1.json"), name, **policy, spark=spark)
        with pytest.raises(UnmatchedFields, match="sn"):
            ingest(str(tmp_path / "2.json"), name, **{**policy, "mask": ["sn"]}, spark=spark)
        done = ingest(str(tmp_path / "2.json"), name, **{**policy, "mask": ["sn"]}, allow_unmatched=True, spark=spark)
        assert [str(each) for each in done.plan.unmatched]


@pytest.mark.parametrize("kind", ["parts", "partitioned", "iceberg"])
def test_columns_without_statistics(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    name = "shop.t" if kind == "iceberg" else str(folder / "t")
    target: dict[str, Any] = {"catalog": str(folder / "c.db")} if kind == "iceberg" else {}
    if kind == "partitioned":
        widen.create_table(name, "day string, total int", partition_by=["day"])
    text = '{"day":"d1","total":7,"salary":1234567,"who":{"name":"Zacharias"}}\n{"day":"d1","total":9,"salary":"much"}'
    (tmp_path / "a.json").write_text(text, encoding="utf-8")
    ingest(str(tmp_path / "a.json"), name, **target, no_stats=["Salary", "who.name"], spark=spark)
    if kind != "iceberg":
        Table(name).optimize(spark=spark)
        Table(name).update({"total": "8"}, "total = 7", spark=spark)
    bounds = []
    for path in folder.rglob("*.parquet"):
        metadata = pq.read_metadata(path)
        for group in range(metadata.num_row_groups):
            for at in range(metadata.num_columns):
                column = metadata.row_group(group).column(at)
                if column.is_stats_set and column.statistics.has_min_max:
                    bounds.append(column.path_in_schema)
    assert "total" in bounds
    assert not [path for path in bounds if path.startswith(("salary", "who"))]
    if kind != "iceberg":
        logs = "".join(path.read_text(encoding="utf-8") for path in (folder / "t" / "_delta_log").glob("*.json"))
        assert "Zacharias" not in logs
        assert "1234567" not in logs
        assert '\\"total\\":8' in logs
