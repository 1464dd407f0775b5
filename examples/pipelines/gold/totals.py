"""Count the orders, and sum their totals, by status: the newest version of each order counts."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

spark = SparkSession.active()
lake = spark.conf.get("lake")


@dp.materialized_view
def totals() -> DataFrame:
    """The number of orders and the sum of their totals by status."""
    orders = spark.read.format("widen").load(f"{lake}/silver").where("_is_current")
    return orders.groupBy("status").agg(F.count("*").alias("orders"), F.sum("total").alias("total"))
