"""Spark's file sources of the first version, by the names of their classes.

Only they tell the file of a row, in the column ``_metadata``. By their short names, a session with an empty
``spark.sql.sources.useV1SourceList`` would take those of the second version.

Source: Spark's configuration, spark.sql.sources.useV1SourceList
"""

from __future__ import annotations

from collections.abc import Mapping

_PACKAGE = "org.apache.spark.sql.execution.datasources"
FILE_SOURCES: Mapping[str, str] = {
    "parquet": f"{_PACKAGE}.parquet.ParquetFileFormat",
    "orc": f"{_PACKAGE}.orc.OrcFileFormat",
    "text": f"{_PACKAGE}.text.TextFileFormat",
}
"""By their short names; other sources that we read have one version only."""
