"""One client that reads tables and answers questions, in a process and an environment of its own.

    python reader_clients.py CLIENT [ARGUMENT …]

A request is a JSON line ``{"table", "name", "columns", "question"}``: the question is null for all rows, or
``{"column", "op", "type", "value"}`` with an op of ``= > < >= <= null value``, or ``{"op": "and", "terms": [...]}`` of
such comparisons. An answer is ``{"rows": [...]}`` with the values as exact texts, ``{"count": n}`` for the op
``count``, or ``{"error": text}``.
"""

from __future__ import annotations

import glob
import importlib
import json
import operator
import os
import re
import sys
from collections.abc import Callable
from datetime import date, datetime, timezone
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa

Request = dict[str, Any]
OPERATORS = {"=": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}


# Values as texts that are the same whatever the client made of the type: 1 for int and long, micros for times.


def texts(array: Any) -> list[Any]:
    """Return the values of an Arrow array as exact texts, lists and objects."""
    if isinstance(array, pa.ChunkedArray):
        return [value for chunk in array.chunks for value in texts(chunk)]
    kind = array.type
    if isinstance(array, pa.ExtensionArray):
        return texts(array.storage)
    if pa.types.is_dictionary(kind):
        return texts(array.dictionary_decode())
    if pa.types.is_struct(kind):
        return _structs(array)
    if pa.types.is_map(kind):
        return [None if each is None else sorted(map(repr, each)) for each in array.to_pylist()]
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [texts(each.values) if each.is_valid else None for each in array]
    return _leaves(array)


def _structs(array: Any) -> list[Any]:
    columns = {field.name: texts(array.field(at)) for at, field in enumerate(array.type)}
    valid = array.is_valid().to_pylist()
    return [{name: column[at] for name, column in columns.items()} if valid[at] else None for at in range(len(array))]


PER_MICROSECOND = {"s": (1_000_000, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}


def _leaves(array: Any) -> list[Any]:
    kind = array.type
    if pa.types.is_timestamp(kind):
        times, over = PER_MICROSECOND[kind.unit]
        return [
            None if value is None else f"{value * times // over} us" for value in array.cast(pa.int64()).to_pylist()
        ]
    if pa.types.is_date(kind):
        days = array.cast(pa.int32()) if pa.types.is_date32(kind) else array.cast(pa.date32()).cast(pa.int32())
        return [None if value is None else f"{value} d" for value in days.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or kind == pa.string_view():
        array = array.cast(pa.large_string()).cast(pa.large_binary())  # some clients have texts for bytes
    return [_text(value) for value in array.to_pylist()]


def _text(value: Any) -> Any:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, Decimal):
        return f"{value.normalize():f}" if value else "0"
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def rows_of(table: Any, columns: list[str]) -> list[list[Any]]:
    """Return the rows of an Arrow table as lists of texts, sorted."""
    if isinstance(table, pa.RecordBatchReader):
        table = table.read_all()
    found = [texts(table.column(name)) for name in columns]
    return sorted(map(list, zip(*found, strict=True)), key=repr)


def plain_path(location: str) -> str:
    """Return a local path: Hadoop writes ``file:/``, others ``file:///``."""
    return re.sub("^file:/+", "/", location)


# Conditions: as SQL in four dialects, and as expressions of Arrow, polars, daft and PyIceberg.


def python_value(kind: str, value: str) -> Any:
    """Return a constant as Python has it."""
    if kind == "boolean":
        return value == "true"
    if kind.startswith("decimal"):
        return Decimal(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "date":
        return date.fromisoformat(value)
    if kind.startswith("timestamp"):
        moment = datetime.fromisoformat(value)
        return moment.replace(tzinfo=timezone.utc) if kind == "timestamp" else moment
    return value if kind == "string" else int(value)


def sql_value(dialect: str, kind: str, value: str) -> str:
    """Return a constant in SQL."""
    if kind in ("byte", "short", "integer", "long", "boolean"):
        return value
    if kind == "string" and dialect == "spark":
        return "'" + value.replace("'", "\\'") + "'"
    if kind == "string":
        return "'" + value.replace("'", "''") + "'"
    if dialect == "clickhouse":
        form = {"double": "toFloat64('{}')", "float": "toFloat64('{}')", "date": "toDate32('{}')"}
        if kind.startswith("decimal"):
            return f"toDecimal128('{value}', {kind.rstrip(')').partition(',')[2]})"
        return form.get(kind, "toDateTime64('{}', 6, 'UTC')").format(value)
    if kind.startswith("decimal"):
        return f"CAST('{value}' AS {kind.upper()})"
    if kind in ("float", "double"):
        return f"CAST('{value}' AS DOUBLE)"
    if kind == "date":
        return f"DATE '{value}'"
    if kind == "timestamp" and dialect == "duckdb":
        return f"TIMESTAMPTZ '{value}+00'"
    if kind == "timestamp_ntz" and dialect == "spark":
        return f"TIMESTAMP_NTZ '{value}'"
    if dialect == "datafusion":
        zone = 'Some("UTC")' if kind == "timestamp" else "None"
        return f"arrow_cast('{value}', 'Timestamp(Microsecond, {zone})')"
    return f"TIMESTAMP '{value}'"


QUOTES = {"spark": "`", "duckdb": '"', "datafusion": '"', "clickhouse": "`"}


def sql_query(dialect: str, source: str, request: Request) -> str:
    """Return the query of a request."""
    quote, asked = QUOTES[dialect], request["question"]
    selected = ", ".join(f"{quote}{name}{quote}" for name in request["columns"])
    if asked is None:
        return f"SELECT {selected} FROM {source}"
    if asked["op"] == "count":
        return f"SELECT count(*) AS n FROM {source}"
    column = f"{quote}{asked.get('column')}{quote}"
    if asked["op"] in ("null", "value"):
        return f"SELECT {selected} FROM {source} WHERE {column} IS {'NOT ' * (asked['op'] == 'value')}NULL"
    return f"SELECT {selected} FROM {source} WHERE {sql_condition(dialect, asked)}"


def sql_condition(dialect: str, asked: dict[str, Any]) -> str:
    """Return the condition of a question: a comparison, or some joined by ``and`` or ``or``."""
    if asked["op"] in JOINS:
        joined = f" {asked['op'].upper()} ".join(sql_condition(dialect, each) for each in asked["terms"])
        return f"({joined})"
    quote = QUOTES[dialect]
    return f"{quote}{asked['column']}{quote} {asked['op']} {sql_value(dialect, asked['type'], asked['value'])}"


JOINS = {"and": operator.and_, "or": operator.or_}


def compare(column: Callable[[str], Any], asked: dict[str, Any], constant: Callable[[str, Any], Any]) -> Any:
    """Return the condition of a question in the expressions of a library whose columns overload Python's operators.

    Args:
        column: Returns a column by name.
        constant: Returns the constant that a column is compared with.
    """
    if asked["op"] in JOINS:
        return reduce(JOINS[asked["op"]], (compare(column, each, constant) for each in asked["terms"]))
    value = constant(asked["column"], python_value(asked["type"], asked["value"]))
    return OPERATORS[asked["op"]](column(asked["column"]), value)


def answer(table: Any, request: Request) -> dict[str, Any]:
    """Return the answer to a request from the rows that were read."""
    if isinstance(table, int):
        return {"count": table}
    if request["question"] is not None and request["question"]["op"] == "count":
        if isinstance(table, pa.RecordBatchReader):
            table = table.read_all()
        return {"count": int(table.column(0)[0].as_py())}
    return {"rows": rows_of(table, request["columns"])}


# The clients.


def deltalake_dataset(request: Request) -> Any:
    """Ask the Arrow dataset of deltalake."""
    import pyarrow.compute as pc
    from deltalake import DeltaTable

    dataset, asked = DeltaTable(request["table"]).to_pyarrow_dataset(), request["question"]
    return _from_dataset(dataset, request, asked, pc)


def _from_dataset(dataset: Any, request: Request, asked: Any, pc: Any) -> Any:
    if asked is None:
        return dataset.to_table()
    if asked["op"] == "count":
        return int(dataset.count_rows())
    if asked["op"] in ("null", "value"):
        column = pc.field(asked["column"])
        return dataset.to_table(filter=column.is_null() if asked["op"] == "null" else column.is_valid())
    kinds = {field.name: field.type for field in dataset.schema}
    return dataset.to_table(filter=compare(pc.field, asked, lambda name, value: pa.scalar(value, kinds[name])))


def deltalake_queries(request: Request) -> Any:
    """Ask the query engine of deltalake."""
    from deltalake import DeltaTable, QueryBuilder

    builder = QueryBuilder().register("t", DeltaTable(request["table"]))
    return pa.table(builder.execute(sql_query("datafusion", "t", request)).read_all())


def duckdb_over_deltalake(request: Request) -> Any:
    """Ask DuckDB over the Arrow dataset of deltalake."""
    import duckdb
    from deltalake import DeltaTable

    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("t", DeltaTable(request["table"]).to_pyarrow_dataset())
        return connection.execute(sql_query("duckdb", "t", request)).to_arrow_table()


def polars_delta(request: Request) -> Any:
    """Ask polars about a Delta table."""
    polars = importlib.import_module("polars")
    return _in_polars(polars, polars.scan_delta(request["table"]), request)


def polars_iceberg(request: Request) -> Any:
    """Ask polars about an Iceberg table."""
    polars = importlib.import_module("polars")
    return _in_polars(polars, polars.scan_iceberg(request["table"]), request)


def _in_polars(polars: Any, frame: Any, request: Request) -> Any:
    asked = request["question"]
    if asked is not None and asked["op"] == "count":
        return int(frame.select(polars.len()).collect().item())
    if asked is not None and asked["op"] in ("null", "value"):
        column = polars.col(asked["column"])
        frame = frame.filter(column.is_null() if asked["op"] == "null" else column.is_not_null())
    elif asked is not None:
        frame = frame.filter(compare(polars.col, asked, lambda _, value: polars.lit(value)))
    return frame.select(request["columns"]).collect().to_arrow()


def _duckdb(extension: str, function: str) -> Callable[[Request], Any]:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    connection.execute("SET TimeZone = 'UTC'")
    for name in (*(["avro"] if extension == "iceberg" else []), extension):
        place = Path(str(importlib.import_module(f"duckdb_extension_{name}").__file__)).parent
        (file,) = glob.glob(f"{place}/**/*.duckdb_extension", recursive=True)
        connection.execute(f"LOAD '{file}'")

    def ask(request: Request) -> Any:
        table = plain_path(request["table"])
        return connection.execute(sql_query("duckdb", f"{function}('{table}')", request)).to_arrow_table()

    return ask


def _daft(read: Callable[[Any, str], Any]) -> Callable[[Request], Any]:
    daft = importlib.import_module("daft")

    def ask(request: Request) -> Any:
        frame, asked = read(daft, request["table"]), request["question"]
        if asked is not None and asked["op"] == "count":
            return int(frame.count_rows())
        if asked is not None and asked["op"] in ("null", "value"):
            column = daft.col(asked["column"])
            frame = frame.where(column.is_null() if asked["op"] == "null" else column.not_null())
        elif asked is not None:
            frame = frame.where(compare(daft.col, asked, lambda _, value: daft.lit(value)))
        return frame.select(*map(daft.col, request["columns"])).to_arrow()

    return ask


def _static(path: str) -> Any:
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(path)


def _chdb(function: str) -> Callable[[Request], Any]:
    chdb = importlib.import_module("chdb")
    os.chdir("/")  # it reads only below the working directory

    def ask(request: Request) -> Any:
        table = plain_path(request["table"]).partition("/metadata/")[0]
        query = sql_query("clickhouse", f"{function}('{table}')", request)
        query += " SETTINGS allow_experimental_variant_type=1, session_timezone='UTC', use_variant_as_common_type=0"
        data = chdb.query(query, "Arrow").bytes()
        return pa.ipc.open_file(pa.BufferReader(data)).read_all()

    return ask


def _sail(kind: str) -> Callable[[Request], Any]:
    server = importlib.import_module("pysail.spark").SparkConnectServer(ip="127.0.0.1", port=0)
    server.start(background=True)
    os.environ["SPARK_HOME"] = "/"  # pyspark-client looks for one, and does not use it
    from pyspark.sql import SparkSession

    host, port = server.listening_address
    session = SparkSession.builder.remote(f"sc://{host}:{port}").getOrCreate()
    session.conf.set("spark.sql.session.timeZone", "UTC")

    def ask(request: Request, _: object = server) -> Any:  # which stops when nobody refers to it
        table = plain_path(request["table"])
        if kind == "iceberg":
            table = table.partition("/metadata/")[0]
        session.read.format(kind).load(table).createOrReplaceTempView("t")
        return session.sql(sql_query("spark", "t", request)).toArrow()

    return ask


def spark_with_delta(jars: str) -> Any:
    """Return a session with Delta Lake."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _spark_delta(jars: str) -> Callable[[Request], Any]:
    session = spark_with_delta(jars)
    return lambda request: session.sql(sql_query("spark", f"delta.`{request['table']}`", request)).toArrow()


def _spark_iceberg(jars: str, catalog: str, warehouse: str) -> Callable[[Request], Any]:
    from pyspark.sql import SparkSession

    settings = {
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.default.type": "jdbc",
        "spark.sql.catalog.default.cache-enabled": "false",
        "spark.sql.catalog.default.uri": f"jdbc:sqlite:{catalog}",
        "spark.sql.catalog.default.warehouse": warehouse,
    }
    builder = SparkSession.builder.master("local[1]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return lambda request: session.sql(sql_query("spark", f"default.{request['name']}", request)).toArrow()


def _datafusion() -> Callable[[Request], Any]:
    from deltalake import DeltaTable

    datafusion = importlib.import_module("datafusion")

    def ask(request: Request) -> Any:
        context = datafusion.SessionContext()
        context.register_table("t", DeltaTable(request["table"]))
        return context.sql(sql_query("datafusion", "t", request)).to_arrow_table()

    return ask


def pyiceberg_scan(request: Request) -> Any:
    """Ask PyIceberg."""
    from pyiceberg import expressions

    table, asked = _static(request["table"]), request["question"]
    if asked is None:
        return table.scan().to_arrow()
    if asked["op"] == "count":
        return int(table.scan().count())
    if asked["op"] in ("null", "value"):
        term = expressions.IsNull if asked["op"] == "null" else expressions.NotNull
        return table.scan(row_filter=term(asked["column"])).to_arrow()
    forms = {
        "=": expressions.EqualTo,
        ">": expressions.GreaterThan,
        "<": expressions.LessThan,
        ">=": expressions.GreaterThanOrEqual,
        "<=": expressions.LessThanOrEqual,
    }

    joins = {"and": expressions.And, "or": expressions.Or}

    def to_term(each: dict[str, Any]) -> Any:
        if each["op"] in joins:
            return reduce(joins[each["op"]], map(to_term, each["terms"]))
        value = python_value(each["type"], each["value"])
        is_time = each["type"].startswith(("timestamp", "date"))
        return forms[each["op"]](each["column"], value.isoformat() if is_time else value)

    return table.scan(row_filter=to_term(asked)).to_arrow()


CLIENTS: dict[str, Callable[..., Callable[[Request], Any]]] = {
    "deltalake": lambda: deltalake_dataset,
    "deltalake-sql": lambda: deltalake_queries,
    "polars": lambda: polars_delta,
    "duckdb-deltalake": lambda: duckdb_over_deltalake,
    "duckdb": lambda: _duckdb("delta", "delta_scan"),
    "daft": lambda: _daft(lambda daft, path: daft.read_deltalake(path)),
    "chdb": lambda: _chdb("deltaLakeLocal"),
    "sail": lambda: _sail("delta"),
    "datafusion": _datafusion,
    "spark": _spark_delta,
    "pyiceberg": lambda: pyiceberg_scan,
    "polars-iceberg": lambda: polars_iceberg,
    "duckdb-iceberg": lambda: _duckdb("iceberg", "iceberg_scan"),
    "daft-iceberg": lambda: _daft(lambda daft, path: daft.read_iceberg(_static(path))),
    "chdb-iceberg": lambda: _chdb("icebergLocal"),
    "sail-iceberg": lambda: _sail("iceberg"),
    "spark-iceberg": _spark_iceberg,
}
IN_PROCESS = ("deltalake", "deltalake-sql", "polars", "duckdb-deltalake", "pyiceberg", "polars-iceberg")
"""The clients that the environment of the tests has, and that share a process."""


def main(client: str, *arguments: str) -> None:
    """Answer requests until the input ends."""
    ask = CLIENTS[client](*arguments)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            found = answer(ask(request), request)
        except BaseException as error:  # each client has errors of its own, some are panics
            if isinstance(error, KeyboardInterrupt):
                raise
            found = {"error": f"{type(error).__name__}: {error}"[:400]}
        print("\x1e" + json.dumps(found), flush=True)
    os._exit(0)  # the threads of some clients never end, or end badly


if __name__ == "__main__":
    main(*sys.argv[1:])
