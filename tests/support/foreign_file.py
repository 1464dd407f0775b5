"""Data files as other writers make them, put into a table of ours without a word about what is in them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from widen.log.commit import commit
from widen.protocol.actions import Add
from widen.table import Table

SPARK_FORMS: Mapping[str, dict[str, str]] = {
    "pages v1, dictionaries": {},
    "pages v2, no dictionaries": {"parquet.writer.version": "v2", "parquet.enable.dictionary": "false"},
    "pages v2, dictionaries": {"parquet.writer.version": "v2"},
    "legacy decimals": {"spark.sql.parquet.writeLegacyFormat": "true"},
}
"""How Spark may write: the options of each form."""

ARROW_FORMS: Mapping[str, dict[str, object]] = {
    "fixed decimals": {},
    "whole number decimals": {"store_decimal_as_integer": True},
    "pages v2, plain": {"data_page_version": "2.0", "use_dictionary": False, "store_decimal_as_integer": True},
    "dictionaries, no statistics": {"write_statistics": False, "version": "1.0"},
}
"""How pyarrow may write: the arguments of each form."""


def add_file(
    table: Table, path: str, rows: pa.Table, partition: Mapping[str, str | None], absolute: bool = False, **form: object
) -> None:
    """Add a Parquet file of pyarrow under any path."""
    target = Path(path) if absolute else Path(table.location) / path
    target.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows, target, **form)
    uri = quote(str(target)) if absolute else quote(path)
    _add(table, [(f"file://{uri}" if absolute else uri, target)], partition)


def add_spark_files(table: Table, folder: str, rows: DataFrame, form: Mapping[str, str]) -> None:
    """Add the Parquet files that Spark writes into a folder."""
    target = Path(table.location) / folder
    rows.write.options(**form).parquet(str(target))
    _add(table, [(f"{folder}/{found.name}", found) for found in target.glob("*.parquet")], {})


def _add(table: Table, files: list[tuple[str, Path]], partition: Mapping[str, str | None]) -> None:
    actions = [
        Add(path=uri, partition_values=dict(partition), size=at.stat().st_size, modification_time=1, data_change=True)
        for uri, at in files
    ]
    commit(table.store, table.refresh().snapshot, actions, "WRITE", {}).or_raise()
    table.refresh()
