"""Tables in the catalog of a Spark session.

A session without Delta Lake cannot describe a Delta table, but it can list it; either yields the location.

Source: Spark's DESCRIBE TABLE and SHOW TABLE EXTENDED.
"""

from __future__ import annotations

import re

from widen.errors import NameNotFound
from widen.errors.tables import first_line
from widen.model.column_path import Path, format_path
from widen.model.schema_json import to_identifier, to_literal
from widen.model.types import name_key
from widen.spark.errors import SPARK_ERRORS
from widen.spark.types import SparkSession

_DETAILS, _PROVIDER, _LOCATION = "# Detailed Table Information", "Provider", "Location"
_WITHOUT_DELTA = "DATA_SOURCE_NOT_FOUND"
_CODE = re.compile(r"^\[[\w.]+\] ")
_LOCAL = re.compile(r"file:/+(?=[^/])")


def find_table_location(spark: SparkSession, name: Path) -> str:
    """Return the location of the Delta table with a name.

    Raises:
        NameNotFound: the catalog does not have the name, or the name belongs to something other than a Delta table.
    """
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {_quote_path(name)}").collect()
    except SPARK_ERRORS as error:
        if _WITHOUT_DELTA in str(error):
            return _location(name, _list_table(spark, name))
        raise _name_error(name, _reason(error)) from error
    names = [row["col_name"] for row in rows]
    # A column may have the name of the heading, so only what follows its last occurrence are details.
    first = len(names) - names[::-1].index(_DETAILS) if _DETAILS in names else len(names)
    return _location(name, {row["col_name"]: row["data_type"] for row in rows[first:]})


def _list_table(spark: SparkSession, name: Path) -> dict[str, str]:
    """Return the provider and the location of a table that the session can list but not open; empty if there is none.

    A comment may contain lines that look like these entries. Spark prints the provider before the comment and the
    location after it, so the first provider and the last location are the real ones.
    """
    within = f" IN {_quote_path(name[:-1])}" if name[:-1] else ""
    rows = spark.sql(f"SHOW TABLE EXTENDED{within} LIKE {to_literal(name[-1])}").collect()
    entries = [row["information"] for row in rows if name_key(row["tableName"]) == name_key(name[-1])]
    lines = [line.partition(": ") for line in entries[0].splitlines()] if entries else []
    providers, locations = ([value for key, _, value in lines if key == wanted] for wanted in (_PROVIDER, _LOCATION))
    return {_PROVIDER: providers[0], _LOCATION: locations[-1]} if providers and locations else {}


def _location(name: Path, details: dict[str, str]) -> str:
    provider = details.get(_PROVIDER, "").lower()
    if provider != "delta" or _LOCATION not in details:
        raise _name_error(name, f"it is a {provider} table" if provider else "it is not a table")
    return _LOCAL.sub("/", details[_LOCATION])


def ensure_registers(spark: SparkSession, name: Path) -> None:
    """Check that a session can register a Delta table in its catalog.

    Raises:
        NameNotFound: the session does not have Delta Lake.
    """
    try:
        _ = spark.read.format("delta").load("/").schema
    except SPARK_ERRORS as error:
        if _WITHOUT_DELTA in str(error):
            raise _name_error(name, "a session without Delta Lake cannot register a Delta table") from error


def is_name_in_use(spark: SparkSession, name: Path) -> bool:
    """Return whether a table or view of that name exists."""
    return spark.catalog.tableExists(_quote_path(name))


def register_table(spark: SparkSession, name: Path, location: str) -> None:
    """Register the table at a location under a name.

    Raises:
        NameNotFound: the catalog refuses the name.
    """
    try:
        spark.sql(f"CREATE TABLE {_quote_path(name)} USING delta LOCATION {to_literal(location)}")
    except SPARK_ERRORS as error:
        raise _name_error(
            name, f"the table at {location} was created but could not be registered: {_reason(error)}"
        ) from error


def _quote_path(name: Path) -> str:
    return ".".join(map(to_identifier, name))


def _reason(error: Exception) -> str:
    return _CODE.sub("", first_line(error))


def _name_error(name: Path, reason: str) -> NameNotFound:
    return NameNotFound(name=format_path(name), reason=reason)
