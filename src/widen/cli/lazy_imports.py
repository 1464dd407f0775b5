"""The functions that commands call, imported on first use, so that help is fast and reading needs no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from widen.table.lazy_spark import load

if TYPE_CHECKING:
    from widen.flows import flow, flow_chain
    from widen.flows.run_flow import check_chain, check_flow
    from widen.formats import find_table
    from widen.iceberg.catalog import to_catalog
    from widen.iceberg.mirror import ensure_mirrorable
    from widen.ingestion import check_contract, ingest, ingest_stream, plan, replay
    from widen.ingestion.batch_limits import parse_limits
    from widen.ingestion.contract_gate import read_contract
    from widen.ingestion.new_files import name_some
    from widen.ingestion.options import check_places, parse_options, to_quarantine
    from widen.ingestion.replay_quarantine import ensure_replayable
    from widen.log.read.loads import read_loads
    from widen.log.read.snapshot import open_snapshot
    from widen.log.store.log_store import LogStore
    from widen.log.write.commit_outcome import several_commits
    from widen.model.sql_literal import to_identifier, to_literal
    from widen.model.types import quote_name
    from widen.planning.alter.alter_request import parse_column_changes, parse_drops, parse_new_columns, parse_rename
    from widen.planning.alter.handover import plan_handover
    from widen.planning.table.table_state import to_table_state
    from widen.planning.unify.contract import build_contract
    from widen.proof.client_readers import find_readers
    from widen.proof.column_digests import TableDigest, describe_difference
    from widen.protocol.column_mapping import MODE, NONE
    from widen.protocol.table_features import COLUMN_MAPPING, PROTECTION, supported_features
    from widen.protocol.type_changes import has_type_changes
    from widen.report import terminal, text_format, widgets
    from widen.report.build_report import build_report
    from widen.report.commit_history import read_history
    from widen.report.evolution_rules import evolution_rules, find_rule
    from widen.report.file_footers import FooterUse
    from widen.report.html_page import render_page
    from widen.report.iceberg_report import build_iceberg_report
    from widen.report.report_summary import find_open_subjects, summarize_report
    from widen.report.row_scan import scan_report
    from widen.report.sample_masking import mask_report, sample_formatter, shown_intervals
    from widen.report.table_summary import summarize_table
    from widen.report.terminal_loads import loads_parts
    from widen.report.terminal_report import report_parts
    from widen.spark.job_progress import watch_jobs
    from widen.spark.maintain.rewrite_files import REWRITE
    from widen.spark.parquet.old_type_files import find_old_files, summarize_old_types
    from widen.spark.read.local_rows import NotLocal, digest_locally
    from widen.spark.read.scan import digest_with_spark, read_snapshot
    from widen.spark.session import find_session, is_driver
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

# Type checkers read the imports above; at run time this table says where each name is. A test compares the two.
_NAMES = {
    "widen.flows": ("flow", "flow_chain"),
    "widen.flows.run_flow": ("check_chain", "check_flow"),
    "widen.formats": ("find_table",),
    "widen.iceberg.catalog": ("to_catalog",),
    "widen.iceberg.mirror": ("ensure_mirrorable",),
    "widen.ingestion": ("check_contract", "ingest", "ingest_stream", "plan", "replay"),
    "widen.ingestion.batch_limits": ("parse_limits",),
    "widen.ingestion.contract_gate": ("read_contract",),
    "widen.ingestion.new_files": ("name_some",),
    "widen.ingestion.replay_quarantine": ("ensure_replayable",),
    "widen.ingestion.options": ("check_places", "parse_options", "to_quarantine"),
    "widen.log.read.loads": ("read_loads",),
    "widen.log.read.snapshot": ("open_snapshot",),
    "widen.log.store.log_store": ("LogStore",),
    "widen.log.write.commit_outcome": ("several_commits",),
    "widen.model.sql_literal": ("to_identifier", "to_literal"),
    "widen.model.types": ("quote_name",),
    "widen.planning.alter.alter_request": ("parse_column_changes", "parse_drops", "parse_new_columns", "parse_rename"),
    "widen.planning.alter.handover": ("plan_handover",),
    "widen.planning.table.table_state": ("to_table_state",),
    "widen.planning.unify.contract": ("build_contract",),
    "widen.proof.client_readers": ("find_readers",),
    "widen.proof.column_digests": ("TableDigest", "describe_difference"),
    "widen.protocol.column_mapping": ("MODE", "NONE"),
    "widen.protocol.table_features": ("COLUMN_MAPPING", "PROTECTION", "supported_features"),
    "widen.protocol.type_changes": ("has_type_changes",),
    "widen.report": ("terminal", "text_format", "widgets"),
    "widen.report.build_report": ("build_report",),
    "widen.report.commit_history": ("read_history",),
    "widen.report.evolution_rules": ("evolution_rules", "find_rule"),
    "widen.report.file_footers": ("FooterUse",),
    "widen.report.html_page": ("render_page",),
    "widen.report.iceberg_report": ("build_iceberg_report",),
    "widen.report.report_summary": ("find_open_subjects", "summarize_report"),
    "widen.report.row_scan": ("scan_report",),
    "widen.report.sample_masking": ("mask_report", "sample_formatter", "shown_intervals"),
    "widen.report.table_summary": ("summarize_table",),
    "widen.report.terminal_loads": ("loads_parts",),
    "widen.report.terminal_report": ("report_parts",),
    "widen.spark.job_progress": ("watch_jobs",),
    "widen.spark.maintain.rewrite_files": ("REWRITE",),
    "widen.spark.parquet.old_type_files": ("find_old_files", "summarize_old_types"),
    "widen.spark.read.local_rows": ("NotLocal", "digest_locally"),
    "widen.spark.read.scan": ("digest_with_spark", "read_snapshot"),
    "widen.spark.session": ("find_session", "is_driver"),
    "widen.spark.spark_errors": ("SPARK_ERRORS", "translate_spark_errors"),
    "widen.sql_commands.execute": ("needs_session", "run_statement"),
    "widen.sql_commands.parser": ("parse_sql",),
    "widen.sql_commands.query_results": ("ChangedTable", "QueryResult"),
    "widen.sql_commands.token_reader": ("split_statements",),
    "widen.table": ("IcebergTable", "Table"),
    "widen.table.column_changes": ("ColumnChangesMixin",),
    "widen.table.mirror": ("MirrorMixin",),
    "widen.table.property_changes": ("PropertyChangesMixin",),
    "widen.table.results": ("Loads",),
    "widen.table.schema_diff": ("diff_versions",),
    "widen.table.vacuum": ("VacuumMixin",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Return a name of the layers below, imported now."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = _MODULES[name]
    return load(f"{module}.{name}") if module == "widen.report" else load(module, name)
