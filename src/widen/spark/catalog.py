"""Tables that the catalog of a Spark session has names for.

A session without Delta Lake cannot describe a Delta table, but it can list it; both ways lead to its location.

Source: Spark's DESCRIBE TABLE and SHOW TABLE EXTENDED.
"""

from __future__ import annotations

import re

from widen.errors import NameNotFound
from widen.errors.foreign import first_line
from widen.model.column_path import Path, format_path
from widen.model.sql_literal import to_identifier, to_literal
from widen.spark.spark_errors import SPARK_ERRORS
from widen.spark.spark_types import SparkSession

_DETAILS, _PROVIDER, _LOCATION = "# Detailed Table Information", "Provider", "Location"
_WITHOUT_DELTA = "DATA_SOURCE_NOT_FOUND"
_CODE = re.compile(r"^\[[\w.]+\] ")
_LOCAL = re.compile(r"file:/+(?=[^/])")


def find_table_location(spark: SparkSession, name: Path) -> str:
    """Return where the Delta table of that name lies.

    Raises:
        NameNotFound: the catalog has no such name, or it is that of something else.
    """
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {_quoted(name)}").collect()
    except SPARK_ERRORS as error:
        if _WITHOUT_DELTA in str(error):
            return _location(name, _listed(spark, name))
        raise _unknown(name, _reason(error)) from error
    names = [row["col_name"] for row in rows]
    first = len(names) - names[::-1].index(_DETAILS) if _DETAILS in names else len(names)
    return _location(name, {row["col_name"]: row["data_type"] for row in rows[first:]})


def _listed(spark: SparkSession, name: Path) -> dict[str, str]:
    """Return what a session says of a table that it cannot open; nothing if there is none.

    A comment may hold lines that look like the others: the provider comes before it, the location after it.
    """
    within = f" IN {_quoted(name[:-1])}" if name[:-1] else ""
    rows = spark.sql(f"SHOW TABLE EXTENDED{within} LIKE {to_literal(name[-1])}").collect()
    found = [row["information"] for row in rows if row["tableName"].casefold() == name[-1].casefold()]
    lines = [line.partition(": ") for line in found[0].splitlines()] if found else []
    providers, locations = ([said for key, _, said in lines if key == wanted] for wanted in (_PROVIDER, _LOCATION))
    return {_PROVIDER: providers[0], _LOCATION: locations[-1]} if providers and locations else {}


def _location(name: Path, said: dict[str, str]) -> str:
    provider = said.get(_PROVIDER, "").lower()
    if provider != "delta" or _LOCATION not in said:
        raise _unknown(name, f"it is a table of {provider}" if provider else "it is no table")
    return _LOCAL.sub("/", said[_LOCATION])


def ensure_registers(spark: SparkSession, name: Path) -> None:
    """Check that a session can give a name to a Delta table.

    Raises:
        NameNotFound: it lacks Delta Lake.
    """
    try:
        _ = spark.read.format("delta").load("/").schema
    except SPARK_ERRORS as error:
        if _WITHOUT_DELTA in str(error):
            raise _unknown(name, "the session has no Delta Lake, without which it gives no table a name") from error


def is_name_in_use(spark: SparkSession, name: Path) -> bool:
    """Tell whether a name is that of some table or view."""
    return spark.catalog.tableExists(_quoted(name))


def register_table(spark: SparkSession, name: Path, location: str) -> None:
    """Give the table at a location a name.

    Raises:
        NameNotFound: the catalog takes no such name.
    """
    try:
        spark.sql(f"CREATE TABLE {_quoted(name)} USING delta LOCATION {to_literal(location)}")
    except SPARK_ERRORS as error:
        raise _unknown(name, f"the table at {location} was made, but not named so: {_reason(error)}") from error


def _quoted(name: Path) -> str:
    return ".".join(map(to_identifier, name))


def _reason(error: Exception) -> str:
    return _CODE.sub("", first_line(error))


def _unknown(name: Path, reason: str) -> NameNotFound:
    return NameNotFound(name=format_path(name), reason=reason)
