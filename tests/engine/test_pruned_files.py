"""The law of skipped files: those that a condition leaves have every row that Spark finds for it.

Files of Delta and Iceberg tables have the bounds of several writers: exact, cut off, rounded, of some columns only; and
partition values, as they are or transformed. `test_conditions` compares with Spark what this process finds for a
condition; Spark itself is asked for those of which only some parts are known, which still skip files.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.transforms import parse_transform
from pyiceberg.typedef import Record
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from engine.test_conditions import AT_ONCE, COUNT, NOT_COMPILED, evaluated, settings, statistics
from support.conditions import SCHEMA, rows
from support.covering import TRIES_ALL
from support.fault import FULL
from support.iceberg_files import append, data_file, embedded_catalog
from widen.files.data_writer import PartSink, to_arrow_with_ids
from widen.files.footers import footer_of, leaf_paths
from widen.files.iceberg_writer import IcebergLayout, describe_metrics, write_task
from widen.files.predicates import bind_condition
from widen.iceberg.file_metrics import IcebergFile, metrics_modes, to_data_file
from widen.iceberg.scan_plan import plan_scan, to_micros, to_row_filter
from widen.iceberg.schema_conversion import to_model
from widen.iceberg.snapshots import ReadPoint
from widen.log.file_list import filter_files, from_adds
from widen.log.log_store import LogStore
from widen.protocol.actions import Add
from widen.protocol.data_skipping import FileSelection, Predicate, column_conditions
from widen.spark.spark_types import to_spark

ROWS = rows()
Found = tuple[str, frozenset[int]]
"""A condition, and the numbers of the rows that fulfil it."""


IS_FULL = FULL in os.environ
SOME = COUNT if IS_FULL else 500
"""The number of conditions."""


@cache
def found_here() -> Sequence[Found]:
    return [(text, _true(answers)) for text, answers in evaluated()[:SOME]]


def _true(answers: Sequence[bool | None]) -> frozenset[int]:
    return frozenset(at for at, answer in enumerate(answers) if answer)


LEFT = [
    *("length(s) > 1", "i = l", "abs(i) = 5", "l + 1 > 6", "s = 5", "s < 'b' COLLATE UTF8_LCASE", "day = '2024-2-29'"),
    *(
        "coalesce(p, 5) = 5",
        "h IN ('5', 5.5)",
        "z > '2024-02-29 00:00:00'",
        "n IN ('2024-02-29')",
        "i = '5.5'",
        "b = 1",
    ),
]
"""Parts of conditions that this process leaves to Spark."""


@pytest.fixture(scope="module")
def found_by_spark(spark: SparkSession) -> Sequence[Found]:
    """Conditions that this process leaves to Spark, though not all of their parts, and what Spark finds for them."""
    here, texts = [text for text, _ in evaluated()], list[str]()
    for at in range(SOME // 4):
        first, second, part = here[2 * at], here[2 * at + 1], LEFT[at % len(LEFT)]
        forms = f"({first}) AND {part}", f"NOT (({first}) OR {part})", f"(({first}) OR {part}) AND ({second})"
        texts.append(
            (*forms, f"NOT ({part} AND ({first})) AND ({second})", f"({first}) OR NOT ({part}) OR {second}")[at % 5]
        )
    with settings(spark, **{**NOT_COMPILED, "spark.sql.ansi.enabled": "false", "spark.sql.session.timeZone": "UTC"}):
        frame = spark.createDataFrame(ROWS, to_spark(SCHEMA))
        answers = [
            frame.select(
                *(F.expr(text).alias(str(at)) for at, text in enumerate(texts[first : first + AT_ONCE]))
            ).toArrow()
            for first in range(0, len(texts), AT_ONCE)
        ]
    columns = (column for part in answers for column in part.columns)
    return [(text, _true(column.to_pylist())) for text, column in zip(texts, columns, strict=True)]


# ---- Delta ------------------------------------------------------------------------------------------

SPLIT = [range(at, min(at + 2, len(ROWS))) for at in range(0, len(ROWS), 2)]


def by_footers(numbers: Sequence[int]) -> str:
    """Statistics as Widen takes them from the footer of a file."""
    part, sink = ROWS.take(list(numbers)), pa.BufferOutputStream()
    pq.write_table(part, sink)
    return footer_of(pq.read_metadata(pa.BufferReader(sink.getvalue())), frozenset(leaf_paths(part.schema))).stats


def exact(numbers: Sequence[int]) -> str:
    return statistics(ROWS.take(list(numbers)))


def _restated(text: str, restate: Callable[[Any, str], Any]) -> str:
    """Return statistics with other values; None drops one."""

    def each(value: Any, key: str) -> Any:
        if isinstance(value, dict):
            pairs = ((name, each(inner, key)) for name, inner in value.items())
            return {name: inner for name, inner in pairs if inner is not None}
        return restate(value, key)

    found = _decoder.decode(text)
    return _encoder.encode({key: each(value, key) for key, value in found.items()}).decode()


_decoder, _encoder = msgspec.json.Decoder(float_hook=Decimal), msgspec.json.Encoder(decimal_format="number")


def rounded(numbers: Sequence[int]) -> str:
    """Decimals as doubles, as deltalake has them; longs beyond the doubles are longs there, and cut off."""

    def restate(value: Any, key: str) -> Any:
        if isinstance(value, Decimal):
            return float(value)
        return max(min(value, 2**63 - 1), -(2**63)) if isinstance(value, int) else value

    return _restated(exact(numbers), restate)


def cut(numbers: Sequence[int]) -> str:
    """Texts cut off, the upper bound followed by a character that is above every other, as Delta Lake does.

    A text that goes on with this character is not cut.
    """

    def restate(value: Any, key: str) -> Any:
        if not isinstance(value, str) or value[:4].isdecimal() or len(value) < 2:
            return value
        low, high = value[:1], f"{value[:1]}\U0010ffff"
        return low if key != "maxValues" else max(high, value)

    return _restated(exact(numbers), restate)


def sparse(numbers: Sequence[int]) -> str:
    """Some bounds and counts are missing."""
    random = Random(numbers[0])
    return _restated(exact(numbers), lambda value, key: value if key == "numRecords" or random.random() < 0.6 else None)


FORMS = {each.__name__: each for each in (exact, by_footers, rounded, cut, sparse)}
"""What different writers say of a file."""


def _add(path: str, values: dict[str, str | None], stats: str | None) -> Add:
    return Add(path=path, partition_values=values, size=1, modification_time=1, data_change=True, stats=stats)


def _files(adds: Sequence[Add]) -> pa.Table:
    return pa.Table.from_batches([from_adds(adds)])


@cache
def delta_files(form: str) -> pa.Table:
    return _files([_add(str(at), {}, FORMS[form](numbers)) for at, numbers in enumerate(SPLIT)])


@cache
def delta_partitions(column: str) -> tuple[pa.Table, tuple[frozenset[int], ...]]:
    """A file for each value of a column, without statistics, and the rows of each."""
    texts: dict[str | None, list[int]] = {}
    for number, value in enumerate(ROWS[column].to_pylist()):
        texts.setdefault(_partition_text(value), []).append(number)
    adds = [_add(str(at), {column: text}, '{"numRecords":1}') for at, text in enumerate(texts)]
    return _files(adds), tuple(map(frozenset, texts.values()))


def _partition_text(value: Any) -> str | None:
    """The text of a value in the log, as Spark writes it; an empty text is null."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime):
        return f"{value.replace(tzinfo=None).isoformat(' ')}{'Z' if value.tzinfo else ''}"
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    return f"{value:f}" if isinstance(value, Decimal) else None if value is None else str(value)


def _named(predicate: Predicate) -> list[str]:
    """Return the columns of a condition that partitions can be made of."""
    return sorted({each.path[0] for each in column_conditions(predicate)} - {"r"})


def ensure_delta_keeps(found: Sequence[Found], forms: Sequence[str]) -> int:
    """Check every condition, and return how many files were skipped."""
    skipped = 0
    for text, matching in found:
        predicate = bind_condition(text, SCHEMA)
        for form in forms:
            kept = _kept(delta_files(form), predicate)
            assert {at for at, numbers in enumerate(SPLIT) if matching & {*numbers}} <= kept, (text, form)
            skipped += len(SPLIT) - len(kept)
        for column in _named(predicate):
            files, groups = delta_partitions(column)
            kept = _kept(files, predicate, column)
            # The empty text is in the partition of null, which no row of a table has.
            needed = {at for at, numbers in enumerate(groups) if matching & {*_without_empty(numbers, column)}}
            assert needed <= kept, (text, column)
            skipped += len(groups) - len(kept)
    return skipped


def _without_empty(numbers: Sequence[int] | frozenset[int], column: str) -> list[int]:
    return [number for number in numbers if ROWS[column][number].as_py() != ""]


def _kept(files: pa.Table, predicate: Predicate, *partition_by: str) -> set[int]:
    selection = FileSelection(predicate, SCHEMA, "none", partition_by)
    return {int(path) for path in filter_files(files, selection)["path"].to_pylist()}


@pytest.mark.parametrize("form", FORMS)
def test_delta_files_keep_the_rows_that_are_found_here(form: str) -> None:
    found = found_here()
    assert ensure_delta_keeps(found if IS_FULL else found[: SOME // 2], [form]) > SOME


# ---- Iceberg ----------------------------------------------------------------------------------------

NARROW = {"y": pa.int32(), "h": pa.int32()}
"""Iceberg has no integers of 8 and 16 bits."""
MODES = ["full", "truncate(16)", "truncate(1)", "counts"]
PARTITIONS = [
    *(f"identity:{name}" for name in ("y", "i", "l", "f", "d", "p", "w", "q", "s", "b", "day", "z", "n")),
    *("bucket[3]:i", "bucket[3]:l", "bucket[3]:s", "bucket[3]:p", "bucket[3]:day", "bucket[3]:z"),
    *("truncate[10]:i", "truncate[1000]:l", "truncate[1]:s", "truncate[50]:p", "truncate[7]:q"),
    *("year:day", "month:day", "day:day", "year:n", "month:z", "day:n", "day:z", "hour:z", "hour:n"),
]


@cache
def iceberg_rows() -> pa.Table:
    columns = {name: ROWS[name].cast(NARROW.get(name, ROWS[name].type)) for name in ROWS.column_names}
    return pa.table({**columns, "id": pa.array(range(len(ROWS)), pa.int32())})


def iceberg_schema(folder: Path) -> Schema:
    made: Schema = embedded_catalog(folder).create_table("ns.plain", iceberg_rows().schema).schema()
    return made


@pytest.mark.parametrize("mode", MODES)
def test_iceberg_metrics_keep_the_rows_that_are_found_here(tmp_path: Path, mode: str) -> None:
    assert ensure_metrics_keep(tmp_path, mode, found_here() if IS_FULL else found_here()[: SOME // 2]) > SOME // 4


def ensure_metrics_keep(folder: Path, mode: str, found: Sequence[Found]) -> int:
    """Check every condition, and return how many files were skipped."""
    schema = iceberg_schema(folder)
    files = [(numbers, _write_metrics(folder, schema, mode, numbers)) for numbers in SPLIT]
    skipped, model = 0, to_model(schema)
    for text, matching in found:
        row_filter = to_row_filter(bind_condition(text, model), schema)
        evaluator = _InclusiveMetricsEvaluator(schema, row_filter)
        for numbers, file in files:
            is_kept = evaluator.eval(file)
            assert is_kept or not matching & {*numbers}, text
            skipped += not is_kept
    return skipped


def _write_metrics(folder: Path, schema: Schema, mode: str, numbers: Sequence[int]) -> DataFile:
    properties = {"write.metadata.metrics.default": mode}
    metadata = new_table_metadata(
        schema, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER, folder.as_uri(), properties
    )
    model = to_model(metadata.schema())
    arrow, modes = to_arrow_with_ids(model), metrics_modes(model, metadata.properties)
    sink = PartSink(LogStore(str(folder)), "job", "zstd", describe_metrics(model, modes), arrow)
    rows = pa.Table.from_pylist(iceberg_rows().take(list(numbers)).to_pylist(), schema=arrow)
    (written,) = write_task(IcebergLayout(sink), rows.to_batches())
    (file,) = written.to_pylist()
    return to_data_file(IcebergFile(file["path"], file["size_bytes"], file["stats"]), metadata)


_NAN = math.nan


def iceberg_partitions(folder: Path, partition: str) -> tuple[Any, dict[str, set[int]]]:
    """A table with a file for each value of a partition field, without bounds, and the rows of each file."""
    transform, _, column = partition.partition(":")
    schema = iceberg_schema(folder)
    source = schema.find_field(column)
    field = PartitionField(source.field_id, 1000, parse_transform(transform), "part")
    table = embedded_catalog(folder).create_table("ns.t", schema, partition_spec=PartitionSpec(field))
    apply, groups = field.transform.transform(source.field_type), dict[Any, set[int]]()
    for number, value in enumerate(iceberg_rows()[column].to_pylist()):
        stored = None if value is None else _wrapped(apply(_physical(value)), source.field_type)
        # A decimal may have no digit for its truncation; no writer has a file for it.
        if not isinstance(stored, Decimal) or stored.adjusted() < source.field_type.precision - source.field_type.scale:
            groups.setdefault(_NAN if stored != stored else stored, set()).add(number)
    files, adds = {}, []
    for at, (stored, numbers) in enumerate(groups.items()):
        (folder / f"{at}.parquet").touch()
        values = Record(stored)
        files[f"file://{folder}/{at}.parquet"] = numbers
        adds.append(data_file(folder / f"{at}.parquet", len(numbers), partition=values))
    append(table, *adds)
    return table, files


def _physical(value: Any) -> Any:
    if isinstance(value, datetime):
        return to_micros(value)
    return value.toordinal() - date(1970, 1, 1).toordinal() if isinstance(value, date) else value


def _wrapped(value: Any, kind: Any) -> Any:
    """Return an integer as Java has it, where the truncation of the smallest ones overflows."""
    bits = {"int": 32, "long": 64}.get(str(kind), 0)
    return (value + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1) if bits and type(value) is int else value


@pytest.mark.parametrize("partition", PARTITIONS if TRIES_ALL else PARTITIONS[::5])
def test_iceberg_partitions_keep_the_rows_that_are_found_here(tmp_path: Path, partition: str) -> None:
    ensure_iceberg_keeps(tmp_path, partition, found_here())


def ensure_iceberg_keeps(folder: Path, partition: str, found: Sequence[Found]) -> None:
    table, files = iceberg_partitions(folder, partition)
    schema, skipped = table.schema(), 0
    model, column = to_model(schema), partition.partition(":")[2]
    bound = [(text, bind_condition(text, model), matching) for text, matching in found]
    bound = [each for each in bound if column in _named(each[1])]
    for text, predicate, matching in bound if IS_FULL else bound[:40]:
        point = ReadPoint(table.metadata, table.current_snapshot())
        kept = {each.path for each in plan_scan(point, table.io, predicate).files}
        assert {path for path, numbers in files.items() if matching & numbers} <= kept, text
        skipped += len(files) - len(kept)
    assert skipped


def test_files_keep_the_rows_that_only_spark_finds(tmp_path: Path, found_by_spark: Sequence[Found]) -> None:
    assert ensure_delta_keeps(found_by_spark, ["exact", "rounded", "cut"]) > len(found_by_spark) // 2
    assert ensure_metrics_keep(tmp_path, "truncate(16)", found_by_spark)
