"""The commands for Iceberg tables that differ from those for Delta tables; see `widen.cli.app`."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import typer
from rich.text import Text

from widen.cli import output, shared_options
from widen.cli.alter_commands import ensure_one_change, parse_operations, requested_changes, wrong_facts
from widen.cli.maintenance_commands import RestChoice, files_text, print_view, run_fold, show_compaction, show_forgotten
from widen.cli.output import ensure_output_writable, note, progress, show_json, show_line
from widen.cli.output import show as show_parts
from widen.cli.reader_commands import to_names
from widen.cli.row_output import RowForm, show_query, show_rows, to_row_form
from widen.cli.shared_options import ContractForm
from widen.cli.show_commands import (
    acknowledge_decisions,
    note_left_out,
    query_iceberg_table,
    scan_rows,
    select_rows,
    show_contract,
    show_diff,
    show_loads,
    show_report,
    split_selected,
)
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from widen.model.types import StructType
    from widen.table import IcebergTable
    from widen.table.results import TableChange

text_format = import_lazily("widen.report.text_format")

RequiredCatalog: TypeAlias = Annotated[
    str,
    typer.Option(
        "--catalog",
        metavar="NAME|FILE.db",
        help="A catalog of PyIceberg's configuration, or a file for an embedded one.",
    ),
]


def show_iceberg(table: str, catalog: str, version: int | None = None, json: bool = False) -> None:
    """Show the columns, the files and the properties of an Iceberg table."""
    from widen.iceberg.snapshots import SnapshotReference, find_read_point
    from widen.report import terminal
    from widen.schema.source_metadata import shared_source_keys
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    schema = opened.schema if version is None else opened.schema_at(version)
    note_left_out(find_read_point(opened.table.metadata, SnapshotReference(version)))
    files = opened.files()
    size_bytes, rows = sum(files["size_bytes"].to_pylist()), sum(files["rows"].to_pylist())
    if json:
        columns = [
            {"name": f.name, "type": f.type.sql, "nullable": f.nullable, **_doc(f.metadata)}
            | ({"sources": list(keys)} if (keys := shared_source_keys(f)) else {})
            for f in schema
        ]
        facts = {"files": files.num_rows, "sizeBytes": size_bytes, "rows": rows, "properties": opened.properties}
        show_json({"location": opened.location, "version": version or opened.version, "columns": columns, **facts})
        return
    noun = text_format.count_noun
    counted = (noun(files.num_rows, "file"), text_format.size_text(size_bytes), noun(rows, "row"))
    parts = [Text(opened.name, "bold"), Text(text_format.printable(opened.location), "dim")]
    shown = version or opened.version
    point = "no snapshot" if shown is None else f"snapshot {shown}"
    show_parts([*parts, terminal.facts_line(point, *counted), _columns_table(schema)])
    if opened.properties:
        show_parts([terminal.heading_part("Properties"), terminal.pairs_table(sorted(opened.properties.items()))])


def _doc(metadata: Any) -> dict[str, str]:
    return {"comment": metadata["comment"]} if "comment" in metadata else {}


def _columns_table(schema: StructType) -> Any:
    from widen.report import terminal
    from widen.schema.source_metadata import shared_source_keys

    printable = text_format.printable
    sources = [", ".join(shared_source_keys(field)) for field in schema]
    table = terminal.table_of("column", "type", "null", *([terminal.FIELDS] if any(sources) else []), "comment")
    for field, source in zip(schema, sources, strict=True):
        comment = printable(_doc(field.metadata).get("comment", ""))
        kind = Text(printable(field.type.sql), "cyan")
        cells = [Text(printable(source))] if any(sources) else []
        nullable = Text("yes" if field.nullable else "no", "dim")
        table.add_row(printable(field.name), kind, nullable, *cells, Text(comment, "dim"))
    return table


def history_iceberg(
    table: str,
    catalog: str,
    limit: int | None = None,
    samples: shared_options.Samples = shared_options.Shown.MASKED,
    json: bool = False,
) -> None:
    """Show the snapshots of an Iceberg table, newest first. Also shows what each one changed."""
    from widen.report import terminal
    from widen.report.iceberg_report import read_iceberg_history
    from widen.report.text_format import changes_text, masked_parameters, shown_intervals
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    entries = opened.history(limit)
    intervals = shown_intervals(read_iceberg_history(opened.table, opened.name, limit), samples.value)
    by_snapshot = {interval.moment.version: interval for interval in intervals}
    if json:
        show_json(
            [
                {"version": each.version, "time": each.timestamp.isoformat(), "operation": each.operation}
                | {"parameters": masked_parameters(each.parameters, samples.value), "metrics": each.metrics}
                | {"changes": [change.to_value() for change in by_snapshot[each.version].changes]}
                for each in entries
            ]
        )
        return
    printable = text_format.printable
    parts = terminal.table_of("version", "time (UTC)", "operation", "changes")
    for each in entries:
        counts = [f"{key} {each.metrics[key]}" for key in _SHOWN_COUNTS if each.metrics.get(key, "0") != "0"]
        moment = Text(f"{each.timestamp:%Y-%m-%d %H:%M:%S}", "dim")
        interval = by_snapshot[each.version]
        lines = [printable(", ".join(counts)), *changes_text(interval.changes, is_first=interval.is_first)]
        parts.add_row(Text(str(each.version), "bold"), moment, each.operation, Text("\n").join(map(Text, lines)))
    show_parts([Text(opened.name, "bold"), parts])


_SHOWN_COUNTS = ("added-records", "deleted-records", "added-data-files", "deleted-data-files", "added-delete-files")


def report_iceberg(
    table: str,
    catalog: str,
    json: bool = False,
    html: Path | None = None,
    samples: shared_options.Samples = shared_options.Shown.MASKED,
    scan: bool = False,
    acknowledge: shared_options.Acknowledge = None,
    readers: shared_options.OtherReaders = None,
) -> None:
    """Show the data in each column of an Iceberg table, and how the schema changed."""
    from widen.iceberg.properties import read_sources
    from widen.iceberg.schema_conversion import to_readable
    from widen.iceberg.snapshots import SnapshotReference, find_read_point
    from widen.report.iceberg_report import build_iceberg_report
    from widen.table import IcebergTable

    ensure_output_writable(html)
    opened = IcebergTable(table, catalog)
    if acknowledge:
        acknowledge_decisions(build_iceberg_report(opened.table, opened.name), opened, acknowledge)
    columns = to_readable(opened.table.schema(), read_sources(opened.properties, opened.name))
    built = build_iceberg_report(opened.table, opened.name, f"--catalog {shlex.quote(catalog)}")
    if scan:
        built = scan_rows(built, columns, lambda spark: opened.read(spark=spark))
    note_left_out(find_read_point(opened.table.metadata, SnapshotReference()))
    predicted = [] if readers is None else opened.readers(*to_names(readers))
    show_report(replace(built, readers=tuple(predicted)), samples, html, json=json)


def properties_iceberg(
    table: str, catalog: str, set: list[str] | None = None, unset: list[str] | None = None, json: bool = False
) -> None:
    """Show, set or remove the properties of an Iceberg table."""
    from widen.report import terminal
    from widen.table import IcebergTable

    given = shared_options.pairs(set, "--set")
    if given and unset:
        raise typer.BadParameter("--set and --unset need a commit each. Run one command for each.")
    opened = IcebergTable(table, catalog)
    before = dict(opened.properties)
    if given:
        opened.set_properties(given)
    if unset:
        opened.unset_properties(unset)
    if json:
        changed = opened.properties != before
        show_json({"version": opened.version, "changed": changed} if given or unset else opened.properties)
    elif given or unset:
        show_line(f"{opened.name}: {'set' if given else 'removed'} {', '.join(given or unset or ())}")
    else:
        show_parts([terminal.pairs_table(sorted(opened.properties.items()))])


def restore_iceberg(
    table: str, catalog: str, version: int | None = None, timestamp: str | None = None, json: bool = False
) -> None:
    """Make an earlier snapshot of an Iceberg table the current one."""
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    before, left = opened.version, _paths(opened)
    done = opened.restore(version, timestamp=timestamp)
    back, changed = _paths(opened), done.version != before
    facts = {"restoredFiles": len(back - left), "removedFiles": len(left - back)}
    if json:
        show_json({"version": done.version, "changed": changed, "changes": [], **facts})
    else:
        files = ", ".join(f"{key}: {count}" for key, count in facts.items())
        show_line(f"{opened.name}: restored snapshot {done.version}; {files}" if changed else UNCHANGED)


UNCHANGED = "nothing to change"


def _paths(table: IcebergTable) -> set[str]:
    """Return the data files of the current snapshot."""
    return {*table.files()["path"].to_pylist()}


def contract_iceberg(
    table: str, catalog: str, version: int | None = None, format: ContractForm = ContractForm.JSON_SCHEMA
) -> None:
    """Write what an Iceberg table has learned as a contract."""
    from widen.table import IcebergTable

    found = IcebergTable(table, catalog)
    show_contract(found.contract(version), table, found.version if version is None else version, format)


def diff_iceberg(table: str, catalog: str, old: int, new: int | None = None, json: bool = False) -> None:
    """Show how the schema of an Iceberg table changed between two snapshots."""
    from widen.table import IcebergTable

    show_diff(IcebergTable(table, catalog).diff(old, new), "snapshot", json=json)


def loads_iceberg(table: str, catalog: str, files: bool = False, json: bool = False) -> None:
    """Show which source files an Iceberg table has loaded."""
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    show_loads(opened.name, opened.loads(), lists_files=files, json=json)


def read_iceberg_table(
    table: str,
    catalog: str,
    version: int | None = None,
    timestamp: str | None = None,
    where: str | None = None,
    select: list[str] | None = None,
    unified: bool = False,
    limit: int | None = None,
    json: bool = False,
    format: RowForm = RowForm.TABLE,
    branch: Annotated[str | None, typer.Option(help="The newest snapshot of a branch of an Iceberg table.")] = None,
    tag: Annotated[str | None, typer.Option(help="The snapshot of a tag.")] = None,
    row_lineage: Annotated[
        bool, typer.Option("--row-lineage", help="Also the row ids of an Iceberg table of format version 3.")
    ] = False,
) -> None:
    """Show rows of an Iceberg table."""
    from widen.iceberg.snapshots import SnapshotReference, find_read_point
    from widen.log.commit_files import to_ms
    from widen.table import IcebergTable

    form = to_row_form(format, json=json)
    with progress("reading"):
        opened = IcebergTable(table, catalog)
    names = split_selected(select)
    how: dict[str, Any] = {"unified": unified, "row_lineage": row_lineage}
    wanted = SnapshotReference(version, None if timestamp is None else to_ms(timestamp), branch, tag)
    note_left_out(find_read_point(opened.table.metadata, wanted), (where, *(names or ())))
    if show_query(partial(query_iceberg_table, opened, wanted, where, names, **how), limit, form):
        return
    point: dict[str, Any] = {"version": version, "timestamp": timestamp, "branch": branch, "tag": tag}
    with progress("reading"):
        frame = select_rows(opened, where, names, **how, **point)
    show_rows(frame, limit, form)


def view_iceberg(
    table: str, catalog: str, name: str | None = None, rows: str | None = None, temporary: bool = False
) -> None:
    """Print the SQL of a view of an Iceberg table with one column per source field."""
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    print_view(opened.view_sql, table.rpartition(".")[2], name, rows, temporary=temporary)


def fold_iceberg(
    table: str,
    catalog: str,
    column: str,
    into: str | None = None,
    rest: RestChoice = RestChoice.REFUSE,
    dry_run: bool = False,
    samples: shared_options.Shown = shared_options.Shown.MASKED,
    json: bool = False,
) -> None:
    """Fold an evolved column of an Iceberg table into another one of its field."""
    from widen.report import terminal
    from widen.report.iceberg_report import build_iceberg_report
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    size_bytes, before = sum(opened.files()["size_bytes"].to_pylist()), opened.version
    if not run_fold(opened, size_bytes, (column, into, rest), samples, is_dry=dry_run, json=json):
        return
    changed = opened.version != before
    intervals = build_iceberg_report(opened.table, opened.name).intervals[-1:] if changed else ()
    if json:
        changes = [change.to_value() for interval in intervals for change in interval.changes]
        show_json({"version": opened.version, "changed": changed, "changes": changes})
    elif intervals:
        show_parts(terminal.commit_parts(opened.name, intervals[0]))
    else:
        note(f"Nothing to change in snapshot {opened.version}.")


def alter_iceberg(
    table: str,
    catalog: str,
    column: str,
    type: str | None = None,
    comment: str | None = None,
    nullable: bool | None = None,
    first: bool = False,
    after: str | None = None,
    default: str | None = None,
    drop_default: bool = False,
    rename: str | None = None,
    source: str | None = None,
    drop_source: str | None = None,
    add: bool = False,
    drop: bool = False,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Change, rename, add or drop a column of an Iceberg table."""
    from widen.table import IcebergTable

    changes = requested_changes(
        type=type,
        comment=comment,
        nullable=nullable,
        first=first,
        after=after,
        default=default,
        drop_default=drop_default,
        source=source,
        drop_source=drop_source,
    )
    ensure_one_change(changes, rename=rename is not None, add=add, drop=drop)
    opened = IcebergTable(table, catalog)
    operations = parse_operations(opened.columns, column, changes, rename, add=add, drop=drop)
    _ = opened.plan_columns(operations) if dry_run else opened.change_columns(operations)
    _show_operations(opened, operations, is_done=not dry_run, json=json)


def _show_operations(opened: IcebergTable, operations: Sequence[Any], *, is_done: bool, json: bool) -> None:
    if json:
        plan = [operation.to_value() for operation in operations]
        facts = wrong_facts(opened.wrong_readers)
        show_json({"version": opened.version, "changed": is_done and bool(plan), "operations": plan, **facts})
    elif not operations:
        note(f"{opened.name} has these columns already.")
    else:
        printable, verb = text_format.printable, "" if is_done else "would "
        show_parts(Text(f"{verb}{printable(str(operation))}") for operation in operations)
        show_parts(Text(f"  {reader}") for reader in opened.wrong_readers)


# Maintenance.


def optimize_iceberg(
    table: str,
    catalog: str,
    where: str | None = None,
    zorder_by: list[str] | None = None,
    target_bytes: int | None = None,
    dry_run: bool = False,
    json: bool = False,
    sort: Annotated[
        bool, typer.Option("--sort", help="Rewrite all files in the sort order of an Iceberg table.")
    ] = False,
) -> None:
    """Write small files of an Iceberg table together into larger ones, without deleted rows."""
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    run = partial(opened.optimize, where, target_bytes=target_bytes, zorder_by=zorder_by or (), sort=sort)
    _compact(opened, run, is_dry=dry_run, json=json)


def rewrite_iceberg(table: str, catalog: str, json: bool = False) -> None:
    """Rewrite the files of an Iceberg table that have old types or an older partition specification."""
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    _compact(opened, opened.rewrite, is_dry=False, json=json)


def _compact(opened: IcebergTable, run: Callable[..., TableChange[Any]], *, is_dry: bool, json: bool) -> None:
    before, change = opened.version, run(dry_run=True)
    if change.metrics and not is_dry:
        with progress("writing"), output.explain_start():
            change = run()
    if json or change.metrics:
        show_compaction(change, changed=opened.version != before, is_dry=is_dry, json=json)
    else:
        show_line(UNCHANGED)


def vacuum_iceberg(
    table: str,
    catalog: str,
    retention_hours: float | None = None,
    dry_run: bool = False,
    force: bool = False,
    json: bool = False,
    keep_last: Annotated[
        int | None, typer.Option(min=1, help="How many snapshots of each branch of an Iceberg table stay.")
    ] = None,
) -> None:
    """Expire old snapshots of an Iceberg table, and delete the files that no other snapshot needs."""
    from widen.table import IcebergTable

    with progress("listing the files"):
        opened = IcebergTable(table, catalog)
        done = opened.vacuum(retention_hours, keep_last=keep_last, dry_run=dry_run, force=force)
    if json:
        facts = {"version": done.version, "dryRun": dry_run, "files": len(done.files), "bytes": done.size_bytes}
        expired = {"keptSince": done.kept_since.isoformat(), "expired": done.expired, "paths": done.files}
        show_json({**facts, **expired})
        return
    verbs = ("would expire", "would delete") if dry_run else ("expired", "deleted")
    snapshots = text_format.count_noun(len(done.expired), "snapshot")
    line = f"{verbs[0]} {snapshots}, {verbs[1]} {files_text(len(done.files), done.size_bytes)}"
    show_parts([Text(line), *(Text(f"  {text_format.printable(path)}") for path in done.files if dry_run)])


def forget_iceberg(
    table: str,
    catalog: str,
    key: list[str] | None = None,
    older_than: str | None = None,
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Forget keys that a load by key has deleted from an Iceberg table."""
    from widen.table import IcebergTable

    show_forgotten(IcebergTable(table, catalog), key, older_than, is_dry=dry_run, json=json)


def branch_command(
    table: Annotated[str, typer.Argument(help="The Iceberg table, e.g. shop.orders.")],
    catalog: RequiredCatalog,
    create: Annotated[str | None, typer.Option(metavar="NAME", help="Create a branch.")] = None,
    tag: Annotated[str | None, typer.Option(metavar="NAME", help="Create a tag.")] = None,
    drop: Annotated[str | None, typer.Option(metavar="NAME", help="Drop a branch or a tag.")] = None,
    fast_forward: Annotated[
        str | None, typer.Option(metavar="NAME", help="Move a branch to the newest snapshot of the branch --to.")
    ] = None,
    to: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --fast-forward: the branch to catch up with.")
    ] = None,
    version: Annotated[int | None, typer.Option(help="The snapshot to name; by default the current one.")] = None,
    keep_hours: Annotated[
        float | None, typer.Option(min=0, help="How long a vacuum keeps the branch or tag; by default forever.")
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """Manage the branches and tags of an Iceberg table."""
    from widen.report import terminal
    from widen.table import IcebergTable

    given = [each for each in (create, tag, drop, fast_forward) if each is not None]
    if len(given) > 1:
        raise typer.BadParameter(
            "--create, --tag, --drop and --fast-forward need a commit each. Run one command for each."
        )
    if (fast_forward is None) != (to is None):
        raise typer.BadParameter("--fast-forward needs --to, and --to needs --fast-forward.")
    if create is None and tag is None and (version is not None or keep_hours is not None):
        raise typer.BadParameter("--version and --keep-hours are for --create and --tag.")
    opened = IcebergTable(table, catalog)
    if create is not None:
        opened.create_branch(create, version, keep_hours=keep_hours)
    elif tag is not None:
        opened.create_tag(tag, version, keep_hours=keep_hours)
    elif fast_forward is not None and to is not None:
        opened.fast_forward(fast_forward, to)
    elif drop is not None:
        is_tag = any(each.name == drop and each.kind == "tag" for each in opened.references)
        _ = opened.drop_tag(drop) if is_tag else opened.drop_branch(drop)
    if json:
        show_json([{"name": each.name, "kind": each.kind, "version": each.version} for each in opened.references])
        return
    parts = terminal.table_of("name", "kind", "version")
    for each in opened.references:
        parts.add_row(Text(text_format.printable(each.name), "bold"), each.kind, str(each.version))
    show_parts([Text(opened.name, "bold"), parts])


def layout_command(
    table: Annotated[str, typer.Argument(help="The Iceberg table, e.g. shop.orders.")],
    catalog: RequiredCatalog,
    add: Annotated[
        list[str] | None, typer.Option(metavar="FIELD", help="Add a partition field, e.g. 'day(placed_at)'.")
    ] = None,
    drop: Annotated[list[str] | None, typer.Option(metavar="FIELD", help="Drop a partition field.")] = None,
    sort_by: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="Sort new files, e.g. by 'id DESC'; can be repeated.")
    ] = None,
    unsorted: Annotated[bool, typer.Option("--unsorted", help="Do not sort new files.")] = False,
    json: shared_options.Json = False,
) -> None:
    """Change the partitioning or sort order of an Iceberg table. Existing files keep theirs."""
    from widen.report import terminal
    from widen.table import IcebergTable

    changes = [bool(add or drop), bool(sort_by), unsorted]
    if sum(changes) > 1:
        raise typer.BadParameter("Partition fields and the sort order need a commit each. Run one command for each.")
    opened = IcebergTable(table, catalog)
    if add or drop:
        opened.change_partitioning(add=add or (), drop=drop or ())
    elif sort_by or unsorted:
        opened.set_sort_order(*(sort_by or ()))
    if json:
        show_json({"partitionBy": opened.partition_by, "sortOrder": opened.sort_order})
        return
    facts = {"partitioned by": opened.partition_by, "sorted by": opened.sort_order}
    pairs = [(name, ", ".join(map(text_format.printable, each)) or "nothing") for name, each in facts.items()]
    show_parts([Text(opened.name, "bold"), terminal.pairs_table(pairs)])
