"""Create and open tables."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING

from widen.errors import TableAlreadyExists
from widen.log.commit import StagedFiles, commit, write_metrics
from widen.log.commit_files import current_ms
from widen.log.log_segment import list_log
from widen.log.log_store import LogStore
from widen.model.argument_types import check_arguments
from widen.model.column_path import as_nullable
from widen.protocol.actions import Action
from widen.protocol.column_metadata import has_expressions
from widen.protocol.table_properties import canonical_properties
from widen.schema.table_definition import plan_create_table
from widen.table.maintenance import MaintenanceMixin, MirrorMixin, VacuumMixin
from widen.table.open_table import to_table_schema
from widen.table.read_and_append import LocalFramesMixin, ReadAndAppendMixin
from widen.table.row_changes import DeltaFoldMixin

if TYPE_CHECKING:
    from widen.spark.types import DataFrame, SchemaLike, SparkSession


@check_arguments
def create_table(
    location: str | PathLike[str],
    schema: SchemaLike,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    description: str | None = None,
    spark: SparkSession | None = None,
) -> Table:
    """Create an empty table and return it.

    Args:
        location: A local path or a URL of an object store.
        schema: Its columns.
        partition_by: The partition columns.
        properties: Its properties, e.g. ``{"delta.enableTypeWidening": "true"}``. They override the session
            defaults: ``spark.databricks.delta.properties.defaults.*``.
        storage_options: Settings and credentials of the store.
        description: The description of the table.
        spark: The session that checks defaults and generated columns, if it has any; by default the active one, else a
            local one.

    Raises:
        TableAlreadyExists: there is already a table at this location.
        InvalidOption: a name, a partition column or a property cannot be used.
        InvalidType: the schema string cannot be parsed.
        InvalidDefault: the default of a column cannot be used.
        InvalidGeneration: the expression of a generated column cannot be used.
        IcebergIncompatible: a property enables Iceberg compatibility, and the table would not be compatible.
        UnsupportedFeatureForWrite: a property requires a feature that this version does not support for writing.
        StorageError: the storage returned an error.

    Source: PROTOCOL.md#change-metadata
    """
    store, wanted = LogStore(location, storage_options), to_table_schema(schema)
    now_ms = current_ms()
    if has_expressions(wanted):
        from widen.spark.row_checks import ensure_expressions_valid
        from widen.spark.session import find_session

        ensure_expressions_valid(find_session(spark), wanted)
    wished = {**_default_properties(spark), **canonical_properties(properties or {})}
    change = plan_create_table(wanted, tuple(partition_by), wished, now_ms, description)
    return Table._of(commit(store, None, change.actions, change.operation, change.parameters).or_raise())


def create_table_as(
    location: str,
    rows: DataFrame,
    *,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
    description: str | None = None,
) -> Table:
    """Create a table with rows in one commit, and return it.

    Args:
        location: A local path or a URL of an object store.
        rows: The rows; their columns become those of the table.
        partition_by: As for `create_table`.
        properties: As for `create_table`.

    Raises:
        TableAlreadyExists: there is already a table at this location; nothing is written.
        InvalidOption: a name, a partition column or a property cannot be used.
        UnsupportedFeatureForWrite: a property requires a feature that this version does not support for writing.
        JobFailed: the Spark job failed; nothing is visible.
        StorageError: the storage returned an error; nothing is visible.

    Source: Delta Spark's CREATE TABLE AS SELECT
    """
    from widen.spark.settings import default_properties
    from widen.spark.types import from_spark
    from widen.spark.write.parquet_writer import write_parquet

    store = LogStore(location, storage_options)
    if list_log(store).newest >= 0:
        raise TableAlreadyExists(location=store.location)
    wished = {**default_properties(rows.sparkSession), **canonical_properties(properties or {})}
    schema = as_nullable(from_spark(rows.schema))
    change = plan_create_table(schema, tuple(partition_by), wished, current_ms(), description)
    with StagedFiles() as staged:
        adds = write_parquet(rows, store, change.table)
        staged.add_files(store, adds)
        actions: list[Action] = [*change.actions, *adds]
        metrics = write_metrics(adds)
        outcome = commit(store, None, actions, CREATE_AS, change.parameters, metrics=metrics, staged=staged)
    return Table._of(outcome.or_raise())


CREATE_AS = "CREATE TABLE AS SELECT"


def _default_properties(spark: SparkSession | None) -> Mapping[str, str]:
    if spark is None and sys.modules.get("pyspark") is None:
        return {}  # no session can be active
    from widen.spark.settings import default_properties
    from widen.spark.types import SparkSession

    return default_properties(spark or SparkSession.getActiveSession())


class Table(ReadAndAppendMixin, LocalFramesMixin, DeltaFoldMixin, MaintenanceMixin, VacuumMixin, MirrorMixin):
    """A Delta table at one version: the newest when it was opened, and after each change made through it.

    Args:
        location: A local path or a URL of an object store.
        storage_options: Settings and credentials of the store.

    Raises:
        TableNotFound: the table does not exist.
        CorruptLog: its log is damaged.
        UnsupportedFeatureForRead: it requires a feature that this version does not support.
        StorageError: the storage returned an error.
    """
