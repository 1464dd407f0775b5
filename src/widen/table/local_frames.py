"""Rows of small tables as Arrow tables, pandas and polars frames."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from widen.errors import InvalidOption, PackageMissing
from widen.model.argument_types import check_arguments, ensure_not_negative
from widen.model.lazy_module import import_lazily
from widen.spark.arrow_types import to_arrow_schema
from widen.spark.expression import Expression
from widen.spark.read.scan import read_snapshot
from widen.spark.session import find_session
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import SparkSession
from widen.table.table_version import TableVersion

if TYPE_CHECKING:
    from widen.spark.read import local_rows
else:
    local_rows = import_lazily("widen.spark.read.local_rows")

MAX_ROWS = 1_000_000
_LARGEST_LIMIT = 2**31 - 1  # of Spark


class LocalFramesMixin(TableVersion):
    """Methods that bring the rows of small tables and samples into this process."""

    @check_arguments
    def to_arrow(
        self,
        where: Expression | None = None,
        *,
        limit: int | None = None,
        max_rows: int = MAX_ROWS,
        spark: SparkSession | None = None,
    ) -> pa.Table:
        """Return the rows as an Arrow table in the current types of the columns.

        Without a condition the files are read in this process, if that is exact; otherwise Spark reads them.

        Args:
            where: The condition on the rows; for it Spark reads the table.
            limit: The maximum number of rows to return: any of them.
            max_rows: The number of rows above which the call is refused, so that no large table comes by accident.
            spark: The session; by default the active one, else a local one, and only if it is needed.

        Raises:
            InvalidOption: there are more than ``max_rows`` rows, or a number is negative.
            UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
            CorruptFile: a file or a deletion vector cannot be read.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#reader-requirements-for-type-widening
        """
        ensure_not_negative(limit=limit, max_rows=max_rows)
        row_limit = max_rows + 1 if limit is None else min(limit, max_rows + 1)
        rows = self._local_rows(where, row_limit, spark)
        if rows.num_rows > max_rows:
            expected = "There are more rows. Give a limit, a condition or a larger number."
            raise InvalidOption(option="max_rows", value=max_rows, expected=expected)
        return rows

    def _local_rows(self, where: Expression | None, row_limit: int, spark: SparkSession | None) -> pa.Table:
        if where is None:
            try:
                return local_rows.read_locally(self._snapshot, row_limit)
            except local_rows.NotLocal:
                pass  # Spark reads what Arrow cannot read exactly
        rows = read_snapshot(find_session(spark), self._store, self._snapshot, where)
        with translate_spark_errors():
            found = (rows if row_limit > _LARGEST_LIMIT else rows.limit(row_limit)).toArrow()
        try:
            # Spark names list items differently, and has times in the time zone of the session.
            return found.cast(to_arrow_schema(self._snapshot.schema))
        except InvalidOption:
            return found  # a type that only Spark reads

    @check_arguments
    def to_pandas(
        self,
        where: Expression | None = None,
        *,
        limit: int | None = None,
        max_rows: int = MAX_ROWS,
        spark: SparkSession | None = None,
    ) -> Any:
        """Return the rows as a pandas DataFrame; see `to_arrow`.

        Raises:
            PackageMissing: pandas is not installed.
            InvalidOption: there are more than ``max_rows`` rows, or a number is negative.
            CorruptFile: a file or a deletion vector cannot be read.
            StorageError: the storage returned an error.
        """
        _ensure_installed("pandas")
        return self.to_arrow(where, limit=limit, max_rows=max_rows, spark=spark).to_pandas()

    @check_arguments
    def to_polars(
        self,
        where: Expression | None = None,
        *,
        limit: int | None = None,
        max_rows: int = MAX_ROWS,
        spark: SparkSession | None = None,
    ) -> Any:
        """Return the rows as a polars DataFrame; see `to_arrow`.

        Raises:
            PackageMissing: polars is not installed.
            InvalidOption: there are more than ``max_rows`` rows, or a number is negative.
            CorruptFile: a file or a deletion vector cannot be read.
            StorageError: the storage returned an error.
        """
        module = _ensure_installed("polars")
        return module.from_arrow(self.to_arrow(where, limit=limit, max_rows=max_rows, spark=spark))


def _ensure_installed(package: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError as error:
        raise PackageMissing(package=package) from error
