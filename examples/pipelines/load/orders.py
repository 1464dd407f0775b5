"""Load orders as they arrive: every record into bronze, and the versions of each order into silver."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

spark = SparkSession.active()
lake = spark.conf.get("lake")

dp.create_sink("bronze", "widen", {"path": f"{lake}/bronze", "ingest": "json", "verify": "true"})
dp.create_sink(
    "silver",
    "widen",
    {"path": f"{lake}/silver", "ingest": "json", "key": "id", "sequenceBy": "at", "history": "true"},
)


@dp.append_flow(target="bronze")
def load_bronze() -> DataFrame:
    """Every record."""
    return spark.readStream.text(f"{lake}/landing")


@dp.append_flow(target="silver")
def load_silver() -> DataFrame:
    """The versions of each order."""
    return spark.readStream.text(f"{lake}/landing")
