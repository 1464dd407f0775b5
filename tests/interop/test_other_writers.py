"""Delta Lake and Iceberg for Spark write to a table between two loads: the next load finds its columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from interop.conftest import IcebergSpark
from support.covering import covering
from unit.targets.test_other_writers import COLUMNS, FIRST, LOADS, NEXT, ensure_found, expected, load

ROW = (
    "SELECT array(named_struct('m', 9L)) AS l, 9L AS n, 9L AS order_id, named_struct('a_b', 'v', 'q', 9L) AS s, "
    "named_struct('u', 9L) AS t, 'nine' AS t_string"
)
WIDER = f"SELECT *, 1 AS added FROM ({ROW})"
MATCHED = "ON t.order_id = s.order_id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"

DELTA: dict[str, tuple[str, list[int]]] = {
    "append": ("frame append", [1, 2, 9]),
    "append, mergeSchema": ("frame append mergeSchema", [1, 2, 9]),
    "overwrite": ("frame overwrite", [9]),
    "overwrite, mergeSchema": ("frame overwrite mergeSchema", [9]),
    "overwrite, overwriteSchema": ("frame overwrite overwriteSchema", [9]),
    "replaceWhere": ("frame overwrite replaceWhere", [1, 2, 9]),
    "INSERT": (f"INSERT INTO {{t}} {ROW}", [1, 2, 9]),
    "INSERT WITH SCHEMA EVOLUTION": (f"INSERT WITH SCHEMA EVOLUTION INTO {{t}} {WIDER}", [1, 2, 9]),
    "INSERT OVERWRITE": (f"INSERT OVERWRITE {{t}} {ROW}", [9]),
    "MERGE": (f"MERGE INTO {{t}} t USING ({ROW}) s {MATCHED}", [1, 2, 9]),
    "MERGE WITH SCHEMA EVOLUTION": (
        f"MERGE WITH SCHEMA EVOLUTION INTO {{t}} t USING ({WIDER}) s {MATCHED}",
        [1, 2, 9],
    ),
    "UPDATE": ("UPDATE {t} SET n = n + 1 WHERE order_id = 1", [1, 2]),
    "DELETE": ("DELETE FROM {t} WHERE order_id = 2", [1]),
    "OPTIMIZE": ("OPTIMIZE {t}", [1, 2]),
    "ZORDER": ("OPTIMIZE {t} ZORDER BY (order_id)", [1, 2]),
    "RESTORE": ("RESTORE TABLE {t} TO VERSION AS OF 0", [1, 2]),
    "ADD COLUMNS": ("ALTER TABLE {t} ADD COLUMNS (added INT)", [1, 2]),
    "ADD CONSTRAINT": ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (order_id > 0)", [1, 2]),
    "SET TBLPROPERTIES": ("ALTER TABLE {t} SET TBLPROPERTIES ('delta.appendOnly' = 'false')", [1, 2]),
    "COMMENT": ("ALTER TABLE {t} ALTER COLUMN n COMMENT 'amount'", [1, 2]),
    "REPLACE COLUMNS": (
        "ALTER TABLE {t} REPLACE COLUMNS (l array<struct<m: bigint>>, n bigint, order_id bigint, "
        "s struct<a_b: string, q: bigint>, t struct<u: bigint>, t_string string, added int)",
        [1, 2],
    ),
    "REPLACE TABLE": (f"CREATE OR REPLACE TABLE {{t}} USING delta AS {WIDER}", [9]),
    "REORG": ("REORG TABLE {t} APPLY (PURGE)", [1, 2]),
    "VACUUM": ("VACUUM {t}", [1, 2]),
}
"""The ways in which Delta Lake writes to a table, and the orders that the table then has."""

REPLACING = {"overwrite, overwriteSchema", "REPLACE TABLE"}
"""The ways after which the columns have no metadata: they are those of the new rows."""


@pytest.mark.parametrize(("way", "by_key"), covering(DELTA, LOADS))
def test_the_next_load_finds_its_columns(spark: SparkSession, tmp_path: Path, way: str, by_key: bool) -> None:
    place = str(tmp_path / "t")
    keys: dict[str, Any] = {"key": ["order id"]} if by_key else {}
    load(tmp_path, FIRST, place, evolve="split", **keys)
    change, orders = DELTA[way]
    if change.startswith("frame"):
        _, mode, *option = change.split()
        values = {"replaceWhere": "order_id = 9"}
        options = {name: values.get(name, "true") for name in option}
        rows = spark.sql(WIDER if "Schema" in change else ROW)
        rows.write.format("delta").mode(mode).options(**options).save(place)
    else:
        spark.sql(change.format(t=f"delta.`{place}`")).collect()
    result = load(tmp_path, NEXT, place, verify=True, **keys)
    ensure_found(result, widen.Table(place).to_arrow(), expected(orders, by_key=by_key))
    assert {*widen.Table(place).schema.names} - {"added"} == {*COLUMNS}
    assert bool(result.plan.lost_sources) == (way in REPLACING)


ICEBERG: dict[str, tuple[str, list[int]]] = {
    "INSERT": (f"INSERT INTO {{t}} {ROW}", [1, 2, 9]),
    "INSERT OVERWRITE": (f"INSERT OVERWRITE {{t}} {ROW}", [9]),
    "MERGE": (f"MERGE INTO {{t}} t USING ({ROW}) s {MATCHED}", [1, 2, 9]),
    "UPDATE": ("UPDATE {t} SET n = n + 1 WHERE order_id = 1", [1, 2]),
    "DELETE": ("DELETE FROM {t} WHERE order_id = 2", [1]),
    "ADD COLUMNS": ("ALTER TABLE {t} ADD COLUMNS (added INT)", [1, 2]),
    "COMMENT": ("ALTER TABLE {t} ALTER COLUMN n COMMENT 'amount'", [1, 2]),
    "SET TBLPROPERTIES": ("ALTER TABLE {t} SET TBLPROPERTIES ('team' = 'ops')", [1, 2]),
    "UNSET TBLPROPERTIES": ("ALTER TABLE {t} UNSET TBLPROPERTIES ('widen.sources')", [1, 2]),
    "REPLACE TABLE": (f"CREATE OR REPLACE TABLE {{t}} USING iceberg AS {WIDER}", [9]),
    "rewrite_data_files": ("CALL default.system.rewrite_data_files('{t}')", [1, 2]),
    "rewrite_manifests": ("CALL default.system.rewrite_manifests('{t}')", [1, 2]),
}
"""The ways in which Iceberg for Spark writes to a table, and the orders that the table then has."""


@pytest.mark.parametrize(("way", "by_key"), covering(ICEBERG, LOADS))
def test_an_iceberg_table_keeps_its_columns(
    iceberg: IcebergSpark, catalog: SqlCatalog, tmp_path: Path, way: str, by_key: bool
) -> None:
    name = f"shop.orders_{[*ICEBERG].index(way)}_{by_key}"
    keys: dict[str, Any] = {"key": ["order id"]} if by_key else {}
    load(tmp_path, FIRST, name, catalog=catalog, **keys)
    change, orders = ICEBERG[way]
    iceberg.sql(change.format(t=f"default.{name}" if "CALL" not in change else name))
    result = load(tmp_path, NEXT, name, catalog=catalog, verify=True, **keys)
    ensure_found(result, catalog.load_table(name).scan().to_arrow(), expected(orders, by_key=by_key))
    assert bool(result.plan.lost_sources) == (way == "UNSET TBLPROPERTIES")
