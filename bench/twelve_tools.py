"""The twelve sources as users of four tools load a day of them, each with what the documentation of the tool shows.

Each function loads the files of one day of one source. The lines that its body has are counted.

Source: dlt: "Filesystem source", "Merge loading"; deltalake: "Writing Delta Tables", "Merging a table"; Delta Lake:
"Table batch reads and writes", "Delta type widening"; Spark: "Data Sources"
"""

# The names of the functions say what they load.
# ruff: noqa: D103

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Load = Callable[[Any, Path, str], None]
"""Loads the files of a folder whose names begin with a day."""


def sniff(file: Path) -> tuple[str, str, str]:
    """Return the separator, the encoding and the decimal sign of a CSV file: what every tool but Widen is told."""
    content = file.read_bytes()
    try:
        encoding, text = "utf-8", content.decode()
    except UnicodeDecodeError:
        encoding, text = "iso-8859-1", content.decode("iso-8859-1")
    separator = csv.Sniffer().sniff(text.partition("\n")[0], ",;").delimiter
    return separator, encoding, "," if separator == ";" else "."


# ---- dlt, into DuckDB ------------------------------------------------------------------------------


class Dlt:
    """A pipeline of dlt."""

    setup_lines = 3

    def __init__(self, place: Path) -> None:
        import dlt

        to = dlt.destinations.duckdb(str(place / "twelve.duckdb"))
        self.pipeline = dlt.pipeline("twelve", destination=to, dataset_name="lake", pipelines_dir=str(place / "work"))

    def files(self, folder: Path, glob: str) -> Any:
        """Return the readers of files."""
        from dlt.sources.filesystem import readers

        return readers(bucket_url=folder.as_uri(), file_glob=glob)


def dlt_orders(tool: Dlt, folder: Path, day: str) -> None:
    tool.pipeline.run(tool.files(folder, f"{day}*").read_jsonl().with_name("orders"))


def dlt_clicks(tool: Dlt, folder: Path, day: str) -> None:
    tool.pipeline.run(tool.files(folder, f"{day}*").read_jsonl().with_name("clicks"))


def dlt_sales(tool: Dlt, folder: Path, day: str) -> None:
    for file in folder.glob(f"{day}*"):
        separator, encoding, decimal = sniff(file)
        read = tool.files(folder, file.name).read_csv(sep=separator, encoding=encoding, decimal=decimal)
        tool.pipeline.run(read.with_name("sales"))


def dlt_stock(tool: Dlt, folder: Path, day: str) -> None:
    tool.pipeline.run(tool.files(folder, f"{day}*").read_parquet().with_name("stock"))


def dlt_customers(tool: Dlt, folder: Path, day: str) -> None:
    import dlt

    gone: Any = {"gone": {"hard_delete": True}}

    @dlt.resource(name="customers", primary_key="id", write_disposition="merge", columns=gone)
    def read() -> Iterator[Any]:
        for line in (folder / f"{day}.json").open():
            event = json.loads(line)
            if "op" in event:
                yield (event["after"] or event["before"]) | {"gone": event["op"] == "d"}

    tool.pipeline.run(read)


def dlt_profiles(tool: Dlt, folder: Path, day: str) -> None:
    tool.pipeline.run(tool.files(folder, f"{day}*").read_jsonl().with_name("profiles"))


def dlt_logs(tool: Dlt, folder: Path, day: str) -> None:
    document = json.loads((folder / f"{day}.json").read_text())
    records = [
        record | {"scope": scope["scope"], "resource": resource["resource"]}
        for resource in document["resourceLogs"]
        for scope in resource["scopeLogs"]
        for record in scope["logRecords"]
    ]
    tool.pipeline.run(records, table_name="logs")


def dlt_webhooks(tool: Dlt, folder: Path, day: str) -> None:
    documents = [json.loads(file.read_text()) for file in sorted(folder.glob(f"{day}-*"))]
    tool.pipeline.run(documents, table_name="webhooks")


def dlt_payments(tool: Dlt, folder: Path, day: str) -> None:
    import fastavro

    with (folder / f"{day}.avro").open("rb") as file:
        tool.pipeline.run(fastavro.reader(file), table_name="payments")


def dlt_budget(tool: Dlt, folder: Path, day: str) -> None:
    import pandas as pd

    frame = pd.read_excel(folder / f"{day}.xlsx", engine="calamine")
    tool.pipeline.run(frame.to_dict(orient="records"), table_name="budget")


def dlt_sensors(tool: Dlt, folder: Path, day: str) -> None:
    with (folder / f"{day}.json").open() as lines:
        tool.pipeline.run(map(json.loads, lines), table_name="sensors")


def dlt_catalog(tool: Dlt, folder: Path, day: str) -> None:
    document = json.loads((folder / f"{day}.json").read_text())
    items = [item | {"page": document["data"]["page"]} for item in document["data"]["items"]]
    tool.pipeline.run(items, table_name="catalog")


# ---- deltalake with pandas -------------------------------------------------------------------------


class Deltalake:
    """A folder of tables."""

    setup_lines = 2

    def __init__(self, place: Path) -> None:
        self.place = place

    def append(self, name: str, frame: Any) -> None:
        """Append rows; new columns are added."""
        from deltalake import write_deltalake

        write_deltalake(str(self.place / name), frame, mode="append", schema_mode="merge")


def deltalake_orders(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    tool.append("orders", pd.read_json(folder / f"{day}.json", lines=True))


def deltalake_clicks(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    tool.append("clicks", pd.read_json(folder / f"{day}.json.gz", lines=True))


def deltalake_sales(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    for file in folder.glob(f"{day}*"):
        separator, encoding, decimal = sniff(file)
        tool.append("sales", pd.read_csv(file, sep=separator, encoding=encoding, decimal=decimal))


def deltalake_stock(tool: Deltalake, folder: Path, day: str) -> None:
    import pyarrow.parquet as pq

    tool.append("stock", pq.read_table(folder / f"{day}.parquet"))


def deltalake_customers(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd
    from deltalake import DeltaTable

    events = [json.loads(line) for line in (folder / f"{day}.json").open()]
    rows = [(each["after"] or each["before"]) | {"op": each["op"]} for each in events if "op" in each]
    frame, place = pd.DataFrame(rows), str(tool.place / "customers")
    if not DeltaTable.is_deltatable(place):
        tool.append("customers", frame[frame.op != "d"].drop(columns="op"))
        return
    columns = {name: f"s.{name}" for name in frame.columns if name != "op"}
    merge = DeltaTable(place).merge(frame, "s.id = t.id", source_alias="s", target_alias="t", merge_schema=True)
    merge = merge.when_matched_delete("s.op = 'd'").when_matched_update(columns)
    merge.when_not_matched_insert(columns, "s.op <> 'd'").execute()


def deltalake_profiles(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    tool.append("profiles", pd.read_json(folder / f"{day}.json", lines=True))


def deltalake_logs(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    document = json.loads((folder / f"{day}.json").read_text())
    path, meta = ["resourceLogs", "scopeLogs", "logRecords"], [["resourceLogs", "resource"]]
    tool.append("logs", pd.json_normalize(document, path, [*meta, ["resourceLogs", "scopeLogs", "scope"]]))


def deltalake_webhooks(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    documents = [json.loads(file.read_text()) for file in sorted(folder.glob(f"{day}-*"))]
    tool.append("webhooks", pd.DataFrame(documents))


def deltalake_payments(tool: Deltalake, folder: Path, day: str) -> None:
    import fastavro
    import pandas as pd

    with (folder / f"{day}.avro").open("rb") as file:
        tool.append("payments", pd.DataFrame(fastavro.reader(file)))


def deltalake_budget(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    tool.append("budget", pd.read_excel(folder / f"{day}.xlsx", engine="calamine"))


def deltalake_sensors(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    with (folder / f"{day}.json").open() as lines:
        tool.append("sensors", pd.DataFrame(map(json.loads, lines)))


def deltalake_catalog(tool: Deltalake, folder: Path, day: str) -> None:
    import pandas as pd

    document = json.loads((folder / f"{day}.json").read_text())
    tool.append("catalog", pd.DataFrame(document["data"]["items"]).assign(page=document["data"]["page"]))


# ---- Spark with Delta Lake -------------------------------------------------------------------------


class Spark:
    """A session of Spark with Delta Lake, whose new tables have type widening."""

    setup_lines = 10

    def __init__(self, place: Path) -> None:
        from pyspark.sql import SparkSession

        work = Path(__file__).parents[1] / ".work"
        jars = [*(work / "jars").glob("delta-*.jar"), *(work / "jars-avro").glob("*.jar")]
        settings = {
            "spark.jars": ",".join(map(str, jars)),
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.properties.defaults.enableTypeWidening": "true",
            "spark.databricks.delta.schema.autoMerge.enabled": "true",
        }
        builder = SparkSession.builder.master("local[2]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.spark, self.place = builder.getOrCreate(), place
        self.spark.sparkContext.setLogLevel("OFF")

    def append(self, name: str, frame: Any) -> None:
        """Append rows; new columns are added, and types widened."""
        frame.write.format("delta").mode("append").option("mergeSchema", "true").save(str(self.place / name))


def spark_orders(tool: Spark, folder: Path, day: str) -> None:
    tool.append("orders", tool.spark.read.json(str(folder / f"{day}.json")))


def spark_clicks(tool: Spark, folder: Path, day: str) -> None:
    tool.append("clicks", tool.spark.read.json(str(folder / f"{day}.json.gz")))


def spark_sales(tool: Spark, folder: Path, day: str) -> None:
    for file in folder.glob(f"{day}*"):
        separator, encoding, _ = sniff(file)
        read = tool.spark.read.options(header=True, inferSchema=True, sep=separator, encoding=encoding)
        tool.append("sales", read.csv(str(file)))


def spark_stock(tool: Spark, folder: Path, day: str) -> None:
    tool.append("stock", tool.spark.read.parquet(str(folder / f"{day}.parquet")))


def spark_customers(tool: Spark, folder: Path, day: str) -> None:
    events = tool.spark.read.json(str(folder / f"{day}.json")).where("op is not null")
    has_before = "id" in events.select("before.*").columns if "struct" in dict(events.dtypes)["before"] else False
    row = "coalesce(after, before)" if has_before else "after"
    rows = events.selectExpr(f"inline(array(struct({row} as row, op)))").select("row.*", "op")
    table = f"delta.`{tool.place / 'customers'}`"
    tool.spark.sql(f"CREATE TABLE IF NOT EXISTS {table} (id bigint, name string, score bigint) USING delta")
    rows.createOrReplaceTempView("changes")
    set_all = ", ".join(f"{name} = s.{name}" for name in rows.columns if name != "op")
    names = ", ".join(name for name in rows.columns if name != "op")
    tool.spark.sql(
        f"MERGE WITH SCHEMA EVOLUTION INTO {table} t USING changes s ON s.id = t.id"
        f" WHEN MATCHED AND s.op = 'd' THEN DELETE WHEN MATCHED THEN UPDATE SET {set_all}"
        f" WHEN NOT MATCHED AND s.op <> 'd' THEN INSERT ({names}) VALUES ({names})"
    )


def spark_profiles(tool: Spark, folder: Path, day: str) -> None:
    tool.append("profiles", tool.spark.read.json(str(folder / f"{day}.json")))


def spark_logs(tool: Spark, folder: Path, day: str) -> None:
    documents = tool.spark.read.json(str(folder / f"{day}.json"), multiLine=True)
    resources = documents.selectExpr("inline(resourceLogs)")
    scopes = resources.selectExpr("resource", "inline(scopeLogs)")
    tool.append("logs", scopes.selectExpr("resource", "scope", "inline(logRecords)"))


def spark_webhooks(tool: Spark, folder: Path, day: str) -> None:
    tool.append("webhooks", tool.spark.read.json(str(folder / f"{day}-*.json"), multiLine=True))


def spark_payments(tool: Spark, folder: Path, day: str) -> None:
    tool.append("payments", tool.spark.read.format("avro").load(str(folder / f"{day}.avro")))


def spark_budget(tool: Spark, folder: Path, day: str) -> None:
    import pandas as pd

    frame = pd.read_excel(folder / f"{day}.xlsx", engine="calamine")
    tool.append("budget", tool.spark.createDataFrame(frame))


def spark_sensors(tool: Spark, folder: Path, day: str) -> None:
    tool.append("sensors", tool.spark.read.json(str(folder / f"{day}.json")))


def spark_catalog(tool: Spark, folder: Path, day: str) -> None:
    documents = tool.spark.read.json(str(folder / f"{day}.json"), multiLine=True)
    tool.append("catalog", documents.selectExpr("data.page", "inline(data.items)"))
