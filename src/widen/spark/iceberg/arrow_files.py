"""Data files that tasks read with Arrow, because Spark confuses columns whose names differ only in case.

Spark's Parquet reader finds columns by name without regard to case, unless the whole session compares names exactly.

Source: docs/spark-facts.md#names
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from widen.errors import CorruptFile
from widen.errors.foreign import first_line
from widen.iceberg.metadata_files import ensure_regular
from widen.model.column_path import map_fields
from widen.model.types import LONG, STRING, Field, StructType
from widen.protocol.column_mapping import NAME, PHYSICAL_NAME
from widen.spark.arrow_types import to_arrow_schema
from widen.spark.parquet.physical_types import Names
from widen.spark.read.local_rows import NotLocal, convert_column
from widen.spark.spark_types import DataFrame, as_nullable, to_spark, visible_schema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

PLACE, POSITION = "__widen_place", "__widen_position"
"""The columns with the key of the file of a row, and with its position there."""

_PATH, _BATCH_ROWS, _MOST_TASKS = "path", 65_536, 200
_FIX_FILE = "Restore the file from a backup, or check that its store can be reached."
_FIX = "Set spark.sql.caseSensitive to true, so that Spark can read the file."


def open_with_arrow(
    spark: SparkSession, io: FileIO, schema: StructType, names: Names, keys: Mapping[str, str]
) -> DataFrame:
    """Return the rows of files in the names and types of the table, with `PLACE` and `POSITION`.

    Args:
        io: Opens the files; executors get a copy of it.
        names: The names that columns have in the files instead of their own, by path.
        keys: The key of each file by its location.
    """
    in_file, visible = dict(names), as_nullable(visible_schema(schema))
    stored = map_fields(
        visible, lambda at, each: Field(each.name, each.type, metadata={PHYSICAL_NAME: in_file.get(at, each.name)})
    )
    listed = spark.createDataFrame(pa.table({_PATH: list(keys), PLACE: list(keys.values())}))
    spread = listed.repartition(min(len(keys), _MOST_TASKS)) if len(keys) > 1 else listed
    shown = StructType((*visible, Field(PLACE, STRING), Field(POSITION, LONG)))
    return spread.mapInArrow(partial(_read_files, io, stored), to_spark(shown))


def _read_files(io: FileIO, stored: StructType, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, place in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            try:
                yield from _read_file(io, stored, path, place)
            except NotLocal as error:
                raise CorruptFile(path=path, reason=first_line(error), fix=_FIX) from error
            except (pa.ArrowException, OSError) as error:
                reason = "the file does not exist" if isinstance(error, FileNotFoundError) else first_line(error)
                raise CorruptFile(path=path, reason=reason, fix=_FIX_FILE) from error


def _read_file(io: FileIO, stored: StructType, path: str, place: str) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(stored).append(pa.field(PLACE, pa.string())).append(pa.field(POSITION, pa.int64()))
    first = 0
    ensure_regular(path)
    with io.new_input(path).open() as stream:
        file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        for batch in file.iter_batches(_BATCH_ROWS):
            count = batch.num_rows
            columns = convert_column(batch.to_struct_array(), stored, NAME).flatten()
            location = [pa.repeat(pa.scalar(place), count), pa.array(range(first, first + count), pa.int64())]
            yield from pa.Table.from_arrays([*columns, *location], schema=schema).to_batches()
            first += count
