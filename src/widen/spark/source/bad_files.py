"""Files of a source that cannot be read: damaged Parquet, ORC or Avro, compressed texts that are cut off, CSV with a
quote that is not closed, records over the limit, and files that change after they are listed.

A line that is not a record is kept as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from pyspark.sql import DataFrame, SparkSession

from widen.errors import CorruptFile
from widen.observe.file_fields import FileFields
from widen.planning.evolution.plan import BadFile
from widen.routing.native.row_builder import ORIGIN_FIELDS
from widen.spark.source.changed_files import find_changes
from widen.spark.source.source_files import SourceFile, SourceFiles, decode_file_key, file_key
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.typed.typed_records import read_columnar

_COLUMNS = "{} string, {} string, {} bigint, {} string".format(*ORIGIN_FIELDS)


def split_bad_files(
    spark: SparkSession, source: SourceFiles, probe: Callable[[SourceFiles], None] | None = None
) -> tuple[SourceFiles, tuple[BadFile, ...]]:
    """Return the files that can be read, and those that cannot. All files that may be damaged are read once.

    A file that changed since it was listed cannot be read.

    Args:
        probe: Reads all texts of files once, to find those that cannot be read; None for files with types.

    Raises:
        SourceError: the files cannot be used for another reason.
    """
    bad: dict[str, BadFile] = {}
    while True:
        # Spark names only the first file that it cannot read, so the others are read again without it.
        left = [file for file in source.files if file.path not in bad]
        suspects = [file for file in left if file.size_bytes]
        try:
            with translate_spark_errors():
                some = replace(source, files=tuple(suspects))
                if suspects and probe is not None:
                    probe(some)
                for rows in _rows(spark, some) if suspects and probe is None else ():
                    rows.write.format("noop").mode("overwrite").save()
        except CorruptFile as error:
            key = decode_file_key(str(error.fields["path"]))
            file = next((file for file in suspects if file_key(file.path) == key), None)
            if file is None:
                raise
            # A file that is still being written looks damaged as well. That it changed is the true reason.
            bad |= _changed_files(spark, [file]) or {file.path: _bad_file(file, str(error.fields["reason"]))}
            continue
        bad |= _changed_files(spark, left)
        return replace(source, files=tuple(file for file in left if file.path not in bad)), tuple(bad.values())


def _changed_files(spark: SparkSession, files: Sequence[SourceFile]) -> dict[str, BadFile]:
    changes = find_changes(spark, files)
    texts = {path: f"it changed after it was listed: it {change}" for path, change in changes.items()}
    return {file.path: _bad_file(file, texts[file.path]) for file in files if file.path in texts}


def _bad_file(file: SourceFile, reason: str) -> BadFile:
    return BadFile(file.path, reason, file.size_bytes, file.modified_ms, file.content)


def _rows(spark: SparkSession, source: SourceFiles) -> Iterator[DataFrame]:
    for records in read_columnar(spark, source, FileFields(False, None)):
        yield records.frame


def with_bad_files(kept_out: DataFrame | None, spark: SparkSession, files: tuple[BadFile, ...]) -> DataFrame | None:
    """Return what the quarantine gets from a batch: the records that are kept out, and a row for each bad file.

    Args:
        kept_out: The records, with the columns of `ORIGIN_FIELDS`; None if there are none.
        files: The bad files. Their rows have no text.
    """
    if not files:
        return kept_out
    values = [(None, file.path, 0, f"{_PARKED if file.is_parked else _UNREADABLE}: {file.reason}") for file in files]
    rows = spark.createDataFrame(values, _COLUMNS)
    return rows if kept_out is None else kept_out.unionAll(rows)


_UNREADABLE, _PARKED = "the file cannot be read", "the file is parked"
