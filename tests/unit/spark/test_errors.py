"""The failure of a Spark job becomes an error that names the file at fault."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException

from widen.errors import CorruptFile, EvolutionRefused, JobFailed, StorageError
from widen.spark.errors import find_known_failure, is_out_of_memory, to_error_text, translate_spark_errors

MISSING = (
    "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:/lake/orders/day=1/part-0.parquet. "
    "File does not exist. It is possible the underlying files have been updated. SQLSTATE: KD001"
)


def test_an_error_of_a_server_is_the_same_on_the_client() -> None:
    error = EvolutionRefused(policy="fail", plan='add "x"\n} END {x}')
    text = f"Error in foreachBatch:\nRuntimeError: {to_error_text(error)}\n\tat org.apache.spark"
    found = find_known_failure(RuntimeError(text))
    assert isinstance(found, EvolutionRefused)
    assert (found.fields, str(found)) == (error.fields, str(error))
    shortened = find_known_failure(RuntimeError(to_error_text(error)[:40]))
    assert isinstance(shortened, JobFailed)
    assert "EvolutionRefused" in shortened.message


def test_a_missing_data_file() -> None:
    error = find_known_failure(RuntimeError(MISSING))
    assert isinstance(error, CorruptFile)
    assert error.fields["path"] == "file:/lake/orders/day=1/part-0.parquet"
    assert "it does not exist (vacuumed or deleted?)" in error.message


def test_a_damaged_file() -> None:
    error = find_known_failure(
        RuntimeError(MISSING.replace(".FILE_NOT_EXIST", ".NO_HINT").replace("File does", "It does"))
    )
    assert isinstance(error, CorruptFile)
    assert "Spark reports FAILED_READ_FILE.NO_HINT" in error.message


def test_the_cause_of_a_failed_call_is_told() -> None:
    call = (
        "An error occurred while calling o112.start.\n: java.io.IOException: /dev/null is not a folder\n\tat java.Main"
    )
    with pytest.raises(JobFailed, match="failed: IOException: /dev/null is not a folder"), translate_spark_errors():
        raise PySparkException(call)


@pytest.mark.parametrize(
    ("text", "is_it"),
    [
        ("java.lang.OutOfMemoryError: Java heap space", True),
        ("An error occurred while calling o106.collectToPython", True),
        ("An error occurred while calling o106.collectToPython.\n: org.apache.spark.SparkException: no", False),
        ("no", False),
    ],
)
def test_java_without_memory_is_noticed(text: str, is_it: bool) -> None:
    error = RuntimeError("a job failed")
    error.__cause__ = RuntimeError(text)
    assert is_out_of_memory(error) is is_it


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("q=1/p=a\0b", "Partition column p: the store has no folder for one of its values, which has a NUL."),
        (
            f"col={'x y' * 100}/r=2",
            "Partition column col: the store has no folder for one of its values, which makes a",
        ),
        ("p=a b", "file:/t/p=a b: permission to write is missing."),
        (f"{'x' * 300}", f"file:/t/{'x' * 300}: permission to write is missing."),
    ],
)
def test_a_partition_whose_folder_cannot_be_made_is_named(folder: str, told: str) -> None:
    text = f"java.io.IOException: Mkdirs failed to create file:/t/{folder} (exists=false, cwd=file:/)\n\tat x"
    error = find_known_failure(RuntimeError(text))
    assert isinstance(error, StorageError)
    assert told in str(error)
