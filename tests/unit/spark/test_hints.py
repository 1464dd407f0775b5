"""What is said where Spark's own message misleads: a wrong JAVA_HOME, a store without its package, unquoted dates."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException

from widen.errors import CatalogNotFound, InvalidCondition, SparkUnavailable, StorageError
from widen.iceberg.catalog import to_catalog
from widen.sources.listing import to_source_error
from widen.spark import session
from widen.spark.errors import find_known_failure, ignore_failed_cleanup
from widen.spark.expression import translate_analysis_errors


def test_a_wrong_java_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    with pytest.raises(SparkUnavailable, match="where there is no bin/java"):
        session._start_session()


@pytest.mark.parametrize(
    ("text", "store"),
    [
        ('org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s3"', "s3"),
        ("java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found", "s3a"),
        ("ClassNotFoundException: org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem", "azurebfs"),
    ],
)
def test_a_store_without_its_package_is_named(text: str, store: str) -> None:
    error = to_source_error("s3://b/x", AnalysisException(text), "Check the path.")
    assert f"cannot read from {store}" in error.message
    assert "spark.jars.packages" in error.advice
    assert isinstance(find_known_failure(AnalysisException(text)), StorageError)


@pytest.mark.parametrize(
    ("where", "is_named"),
    [
        ("day > 2024-01-31", True),
        ("day > '2024-01-31'", False),
        ("day > DATE '2024-01-31' AND x", False),
        ("`2024-01-31` > 1", False),
        ("total - 2024 > 1", False),
    ],
)
def test_a_date_without_quotes_is_named(where: str, is_named: bool) -> None:
    with pytest.raises(InvalidCondition) as caught, translate_analysis_errors(where):
        raise AnalysisException("[DATATYPE_MISMATCH] cannot compare.")
    assert ("write DATE '2024-01-31'" in caught.value.message) is is_named


@pytest.mark.parametrize("kind", ["pipe", "folder"])
def test_a_catalog_that_is_no_file_does_not_hang(tmp_path: Path, kind: str) -> None:
    (os.mkfifo if kind == "pipe" else os.mkdir)(tmp_path / "c.db")
    with pytest.raises(CatalogNotFound, match="not a regular file"):
        to_catalog(tmp_path / "c.db")


def test_a_failed_cleanup_keeps_the_first_error() -> None:
    with ignore_failed_cleanup():
        raise ConnectionRefusedError("Java has ended")
    with pytest.raises(ZeroDivisionError), ignore_failed_cleanup():
        raise ZeroDivisionError
