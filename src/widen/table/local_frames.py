"""The rows of small tables and samples in this process, as other libraries take them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from widen.errors import InvalidOption, PackageMissing
from widen.model.argument_types import check_arguments, ensure_not_negative
from widen.model.lazy_module import import_lazily
from widen.model.types import StructType

if TYPE_CHECKING:
    from widen.spark import engine
    from widen.spark.expression import Expression
    from widen.spark.spark_types import DataFrame, SparkSession
else:
    engine = import_lazily("widen.spark.engine")

MAX_ROWS = 1_000_000
_LARGEST_LIMIT = 2**31 - 1  # of Spark


class LocalFramesMixin(ABC):
    """Methods that bring the rows of small tables and samples into this process."""

    @abstractmethod
    def _query_here(self, where: str | None, limit: int, *, unified: bool) -> pa.Table:
        """Return rows in the types of the columns.

        Raises:
            Unsupported: only Spark can read them, or evaluate the condition, exactly.
        """

    @abstractmethod
    def _frame(self, where: Expression | None, spark: SparkSession, *, unified: bool) -> tuple[DataFrame, StructType]:
        """Return rows as a DataFrame, and their columns."""

    @check_arguments
    def to_arrow(
        self,
        where: Expression | None = None,
        *,
        limit: int | None = None,
        max_rows: int = MAX_ROWS,
        unified: bool = False,
        spark: SparkSession | None = None,
    ) -> pa.Table:
        """Return the rows as an Arrow table in the current types of the columns.

        The files are read in this process if that is exact, and up to 128 MB of them if there is a condition; otherwise
        Spark reads them. Variants are JSON text.

        Args:
            where: The condition on the rows; as a string in Spark SQL it also skips files, and needs no Spark if it
                compares columns with constants.
            limit: The maximum number of rows to return: any of them.
            max_rows: The maximum number of rows; above it the call is refused, so that no large table comes by
                accident.
            unified: Whether to return one column for each source field, as in `read`.
            spark: The session; by default the active one, else a local one, and only if it is needed.

        Raises:
            InvalidOption: there are more than ``max_rows`` rows, or a number is negative.
            UnsupportedTypeChange: the schema of a Delta table records a type change that the protocol does not allow.
            CorruptFile: a file or a deletion vector cannot be read.
            JobFailed: a Spark job failed.
            StorageError: the storage returned an error.

        Source: PROTOCOL.md#reader-requirements-for-type-widening; Iceberg's table specification, "Column Projection"
        """
        ensure_not_negative(limit=limit, max_rows=max_rows)
        row_limit = max_rows + 1 if limit is None else min(limit, max_rows + 1)
        try:
            if where is not None and not isinstance(where, str):
                raise engine.Unsupported("the condition is a Column of Spark")
            rows = self._query_here(where, row_limit, unified=unified)
        except engine.Unsupported as error:  # Spark reads what Arrow cannot read exactly
            rows = self._query_on_spark(where, row_limit, engine.find_session(spark, str(error)), unified=unified)
        if rows.num_rows > max_rows:
            expected = "There are more rows. Give a limit, a condition or a larger number."
            raise InvalidOption(option="max_rows", value=max_rows, expected=expected)
        return rows

    def _query_on_spark(self, where: Expression | None, limit: int, spark: SparkSession, *, unified: bool) -> pa.Table:
        from widen.files.arrow_types import to_arrow_schema, variants_to_text
        from widen.spark.errors import translate_spark_errors

        rows, schema = variants_to_text(*self._frame(where, spark, unified=unified))
        with translate_spark_errors():
            found = (rows if limit > _LARGEST_LIMIT else rows.limit(limit)).toArrow()
        try:
            # Spark names list items differently, and has times in the time zone of the session.
            return found.cast(to_arrow_schema(schema))
        except InvalidOption:
            return found  # a type that only Spark reads

    @check_arguments
    def to_pandas(
        self,
        where: Expression | None = None,
        *,
        limit: int | None = None,
        max_rows: int = MAX_ROWS,
        unified: bool = False,
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
        return self.to_arrow(where, limit=limit, max_rows=max_rows, unified=unified, spark=spark).to_pandas()

    @check_arguments
    def to_polars(
        self,
        where: Expression | None = None,
        *,
        limit: int | None = None,
        max_rows: int = MAX_ROWS,
        unified: bool = False,
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
        return module.from_arrow(self.to_arrow(where, limit=limit, max_rows=max_rows, unified=unified, spark=spark))


def _ensure_installed(package: str) -> ModuleType:
    try:
        return import_module(package)
    except ImportError as error:
        raise PackageMissing(package=package) from error
