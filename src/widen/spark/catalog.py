"""Tables that the catalog of a Spark session has names for.

A session without Delta Lake cannot describe a Delta table, but it can list it; both ways lead to its location.

Source: Spark's DESCRIBE TABLE and SHOW TABLE EXTENDED.
"""

from __future__ import annotations

import re

from widen.errors import EngineMissing, NameNotFound
from widen.model.literal import to_identifier, to_literal
from widen.model.path import Path, format_path
from widen.spark.failure import FAILURES
from widen.spark.schema import SparkSession

_DETAILS = "# Detailed Table Information"
_WITHOUT_DELTA = "DATA_SOURCE_NOT_FOUND"
_LOCAL = re.compile(r"file:/+(?=[^/])")


def find_table(spark: SparkSession, name: Path) -> str:
    """Return where the Delta table of that name lies.

    Raises:
        NameNotFound: the catalog has no such name, or it is that of something else.
    """
    try:
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {_quoted(name)}").collect()
    except FAILURES as error:
        if _WITHOUT_DELTA in str(error):
            return _location(name, _listed(spark, name))
        raise _unknown(name, _reason(error)) from error
    names = [row["col_name"] for row in rows]
    first = len(names) - names[::-1].index(_DETAILS) if _DETAILS in names else len(names)
    return _location(name, {row["col_name"]: row["data_type"] for row in rows[first:]})


def _listed(spark: SparkSession, name: Path) -> dict[str, str]:
    """Return what a session says of a table that it cannot open; nothing if there is none."""
    within = f" IN {_quoted(name[:-1])}" if name[:-1] else ""
    rows = spark.sql(f"SHOW TABLE EXTENDED{within} LIKE {to_literal(name[-1])}").collect()
    found = [row["information"] for row in rows if row["tableName"].casefold() == name[-1].casefold()]
    lines = found[0].splitlines() if found else []
    return {key: said for key, colon, said in (line.partition(": ") for line in lines) if colon}


def _location(name: Path, said: dict[str, str]) -> str:
    provider = said.get("Provider", "").lower()
    if provider != "delta" or "Location" not in said:
        raise _unknown(name, f"it is a table of {provider}" if provider else "it is no table")
    return _LOCAL.sub("/", said["Location"])


def ensure_registers(spark: SparkSession) -> None:
    """Check that a session can give names to Delta tables.

    Raises:
        EngineMissing: it lacks Delta Lake.
    """
    try:
        _ = spark.read.format("delta").load("/").schema
    except FAILURES as error:
        if _WITHOUT_DELTA in str(error):
            reason = "the session has no Delta Lake, without which it gives no table a name"
            fix = "Call the table delta.`/path`, or use a session that has Delta Lake."
            raise EngineMissing(reason=reason, fix=fix) from error


def register(spark: SparkSession, name: Path, location: str) -> None:
    """Give the table at a location a name.

    Raises:
        NameNotFound: the catalog takes no such name.
    """
    try:
        spark.sql(f"CREATE TABLE {_quoted(name)} USING delta LOCATION {to_literal(location)}")
    except FAILURES as error:
        raise _unknown(name, f"the table at {location} was made, but not named so: {_reason(error)}") from error


def _quoted(name: Path) -> str:
    return ".".join(map(to_identifier, name))


def _reason(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")


def _unknown(name: Path, reason: str) -> NameNotFound:
    return NameNotFound(name=format_path(name), reason=reason)
