"""The functions that commands call, imported on first use, so that help is fast and reading needs no Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from widen.table.lazy_spark import load

if TYPE_CHECKING:
    from widen.flows import flow, flow_chain
    from widen.formats import find_table
    from widen.iceberg.catalog import to_catalog
    from widen.iceberg.mirror import ensure_mirrorable
    from widen.ingestion import check_contract, ingest, ingest_stream, plan, replay
    from widen.ingestion.batch_limits import parse_limits
    from widen.ingestion.new_files import name_some
    from widen.ingestion.options import parse_options
    from widen.log.read.loads import read_loads
    from widen.log.read.snapshot import open_snapshot
    from widen.log.store.log_store import LogStore
    from widen.model.sql_literal import to_identifier, to_literal
    from widen.model.types import quote_name
    from widen.planning.alter.alter_request import parse_column_changes, parse_drops, parse_new_columns, parse_rename
    from widen.planning.alter.handover import plan_handover
    from widen.planning.table.table_state import to_table_state
    from widen.planning.unify.contract import build_contract
    from widen.protocol.table_features import PROTECTION, supported_features
    from widen.protocol.type_changes import has_type_changes
    from widen.report import terminal, text_format, widgets
    from widen.report.build_report import build_report
    from widen.report.commit_history import read_history
    from widen.report.contract_lines import contract_parts
    from widen.report.evolution_rules import evolution_rules, find_rule
    from widen.report.file_footers import FooterUse
    from widen.report.html_page import render_page
    from widen.report.iceberg_report import build_iceberg_report
    from widen.report.load_tables import loads_parts
    from widen.report.report_summary import summarize_report
    from widen.report.row_scan import scan_report
    from widen.report.sample_masking import mask_report, sample_formatter, shown_intervals
    from widen.report.table_summary import summarize_table
    from widen.report.terminal_report import report_parts
    from widen.spark.job_progress import watch_jobs
    from widen.spark.maintain.rewrite_files import REWRITE
    from widen.spark.parquet.old_file_search import find_old_files
    from widen.spark.parquet.old_type_files import find_old_files_locally, summarize_old_types
    from widen.spark.session import find_session
    from widen.spark.spark_errors import SPARK_ERRORS, translate_spark_errors
    from widen.sql_commands.execute import needs_session, run_statement
    from widen.sql_commands.parser import parse_sql
    from widen.sql_commands.query_results import ChangedTable, QueryResult
    from widen.sql_commands.token_reader import split_statements
    from widen.table import IcebergTable, Table
    from widen.table.column_changes import ColumnChangesMixin
    from widen.table.mirror import MirrorMixin
    from widen.table.property_changes import PropertyChangesMixin
    from widen.table.results import Loads
    from widen.table.schema_diff import diff_versions
    from widen.table.vacuum import VacuumMixin

__all__ = [
    "PROTECTION",
    "REWRITE",
    "SPARK_ERRORS",
    "ChangedTable",
    "ColumnChangesMixin",
    "FooterUse",
    "IcebergTable",
    "Loads",
    "LogStore",
    "MirrorMixin",
    "PropertyChangesMixin",
    "QueryResult",
    "Table",
    "VacuumMixin",
    "build_contract",
    "build_iceberg_report",
    "build_report",
    "check_contract",
    "contract_parts",
    "diff_versions",
    "ensure_mirrorable",
    "evolution_rules",
    "find_old_files",
    "find_old_files_locally",
    "find_rule",
    "find_session",
    "find_table",
    "flow",
    "flow_chain",
    "has_type_changes",
    "ingest",
    "ingest_stream",
    "loads_parts",
    "mask_report",
    "name_some",
    "needs_session",
    "open_snapshot",
    "parse_column_changes",
    "parse_drops",
    "parse_limits",
    "parse_new_columns",
    "parse_options",
    "parse_rename",
    "parse_sql",
    "plan",
    "plan_handover",
    "quote_name",
    "read_history",
    "read_loads",
    "render_page",
    "replay",
    "report_parts",
    "run_statement",
    "sample_formatter",
    "scan_report",
    "shown_intervals",
    "split_statements",
    "summarize_old_types",
    "summarize_report",
    "summarize_table",
    "supported_features",
    "terminal",
    "text_format",
    "to_catalog",
    "to_identifier",
    "to_literal",
    "to_table_state",
    "translate_spark_errors",
    "watch_jobs",
    "widgets",
]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "widen.planning.unify.contract": ("build_contract",),
    "widen.iceberg.catalog": ("to_catalog",),
    "widen.iceberg.mirror": ("ensure_mirrorable",),
    "widen.flows": ("flow", "flow_chain"),
    "widen.ingestion": ("check_contract", "ingest", "ingest_stream", "plan", "replay"),
    "widen.formats": ("find_table",),
    "widen.ingestion.batch_limits": ("parse_limits",),
    "widen.ingestion.new_files": ("name_some",),
    "widen.ingestion.options": ("parse_options",),
    "widen.log.read.loads": ("read_loads",),
    "widen.log.read.snapshot": ("open_snapshot",),
    "widen.log.store.log_store": ("LogStore",),
    "widen.model.sql_literal": ("to_identifier", "to_literal"),
    "widen.model.types": ("quote_name",),
    "widen.planning.alter.alter_request": ("parse_new_columns", "parse_column_changes", "parse_drops", "parse_rename"),
    "widen.planning.alter.handover": ("plan_handover",),
    "widen.protocol.table_features": ("PROTECTION", "supported_features"),
    "widen.planning.table.table_state": ("to_table_state",),
    "widen.protocol.type_changes": ("has_type_changes",),
    "widen.report.build_report": ("build_report",),
    "widen.report.sample_masking": ("mask_report", "sample_formatter", "shown_intervals"),
    "widen.report.table_summary": ("summarize_table",),
    "widen.report.file_footers": ("FooterUse",),
    "widen.report.contract_lines": ("contract_parts",),
    "widen.report.evolution_rules": ("evolution_rules", "find_rule"),
    "widen.report.iceberg_report": ("build_iceberg_report",),
    "widen.report.html_page": ("render_page",),
    "widen.report.load_tables": ("loads_parts",),
    "widen.report.report_summary": ("summarize_report",),
    "widen.report.terminal_report": ("report_parts",),
    "widen.report.commit_history": ("read_history",),
    "widen.report": ("terminal", "text_format", "widgets"),
    "widen.spark.spark_errors": ("SPARK_ERRORS", "translate_spark_errors"),
    "widen.spark.parquet.old_type_files": ("find_old_files_locally", "summarize_old_types"),
    "widen.report.row_scan": ("scan_report",),
    "widen.spark.maintain.rewrite_files": ("REWRITE",),
    "widen.spark.parquet.old_file_search": ("find_old_files",),
    "widen.spark.job_progress": ("watch_jobs",),
    "widen.spark.session": ("find_session",),
    "widen.sql_commands.query_results": ("ChangedTable", "QueryResult"),
    "widen.sql_commands.parser": ("parse_sql",),
    "widen.sql_commands.execute": ("needs_session", "run_statement"),
    "widen.sql_commands.token_reader": ("split_statements",),
    "widen.table": ("IcebergTable", "Table"),
    "widen.table.column_changes": ("ColumnChangesMixin",),
    "widen.table.mirror": ("MirrorMixin",),
    "widen.table.property_changes": ("PropertyChangesMixin",),
    "widen.table.results": ("Loads",),
    "widen.table.schema_diff": ("diff_versions",),
    "widen.table.vacuum": ("VacuumMixin",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Return a name of the layers below, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    return load(f"{home}.{name}") if home == "widen.report" else load(home, name)
