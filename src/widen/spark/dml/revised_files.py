"""Files whose deletion vectors mark the rows that a change has updated or deleted.

Source: PROTOCOL.md#deletion-vectors, #add-file-and-remove-file
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from pyspark.sql import DataFrame

from widen.protocol.actions import Add
from widen.protocol.skipping.file_statistics import with_loose_bounds
from widen.spark.dml.change_context import ChangeFiles, count_deleted_rows, ensure_same_count
from widen.spark.write.deletion_vector_writer import write_vectors


def revise_files(files: ChangeFiles, words: DataFrame, lost: Mapping[str, int], rows: Mapping[str, int]) -> list[Add]:
    """Write deletion vectors, and return the files with them; files that lose all rows are left out.

    Args:
        words: The words of the rows that files lose.
        lost: How many rows each file loses, by its key.
        rows: How many rows each file has, including deleted rows.

    Raises:
        JobFailed: the Spark job failed, or the words are not those of so many rows.
    """
    context = files.context
    gone = {key: count + count_deleted_rows(context.adds[key]) for key, count in lost.items()}
    old = {key: context.adds[key] for key, count in gone.items() if count < rows[key]}
    if not old:
        return []
    current = {key: add.deletion_vector for key, add in old.items()}
    vectors = write_vectors(context.spark, context.store, words, current, files.new_folder())
    for key in old:
        ensure_same_count(gone[key], vectors[key].cardinality)
    return [
        msgspec.structs.replace(
            add, deletion_vector=vectors[key], stats=with_loose_bounds(add.stats, rows[key]), data_change=True
        )
        for key, add in old.items()
    ]
