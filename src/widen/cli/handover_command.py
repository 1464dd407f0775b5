"""The commands ``handover`` and ``mirror``: make a table readable for other clients, and prove that they open it.

Source: docs/guide/hand-over.md
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from widen.cli import lazy_imports, maintenance_commands, shared_options
from widen.cli.follow import stop_requested
from widen.cli.output import note, show, show_json
from widen.cli.step_display import progress
from widen.errors import ProtectedVersionsRemain, RetentionNotExpired, StorageError

ICEBERG = "iceberg"
"""The client that gets a mirror of the table."""

if TYPE_CHECKING:
    from widen.iceberg.mirror import Mirrored
    from widen.planning.alter.handover import HandoverPlan
    from widen.table import Table


def _clients() -> list[str]:
    return [*_CHECKS, ICEBERG]


def handover(
    table: shared_options.Table,
    to: Annotated[
        str, typer.Option("--to", metavar="CLIENT", help="deltalake, polars or iceberg.", autocompletion=_clients)
    ],
    append: Annotated[
        bool, typer.Option("--append", help="Let it append too. Deletes older versions, once they have expired.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be lost, and change nothing.")] = False,
    catalog: shared_options.Catalog = None,
    identifier: Annotated[
        str | None,
        typer.Option("--identifier", metavar="NAME", help="With iceberg: the Iceberg table, e.g. shop.orders."),
    ] = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Hand a table over to deltalake, polars or Iceberg. Proves that the client reads it."""
    settings = shared_options.storage(storage_option)
    opened = lazy_imports.Table(table, settings)
    if to == ICEBERG:
        _hand_to_iceberg(opened, catalog, identifier, appends=append, is_dry=dry_run, json=json)
        return
    if catalog is not None or identifier is not None:
        raise typer.BadParameter("--catalog and --identifier are for --to iceberg.")
    plan = lazy_imports.plan_handover(lazy_imports.to_table_state(opened.snapshot), to, appends=append)
    plan, pending = (plan, "") if dry_run else _drop(opened, plan)
    rows = None if dry_run else _prove(opened, to, settings)
    facts: dict[str, Any] = {"client": to, "drops": plan.drops, "losses": plan.losses, "unwritable": plan.unwritable}
    if json:
        show_json({**facts, "version": opened.version, "dryRun": dry_run, "pending": pending or None, "rows": rows})
        return
    show(Text(line) for line in _lines(plan, is_done=not dry_run))
    if pending:
        note(pending)
    if rows is not None:
        count = lazy_imports.text_format.count_noun(rows, "row")
        show([Text.assemble(("✓ ", "bold green"), f"{to} reads version {opened.version}: {count}")])
    elif not dry_run:
        note(f"{to} is not installed here. To check: {_CHECKS[to].format(repr(opened.location))}")


def _lines(plan: HandoverPlan, *, is_done: bool) -> list[str]:
    verb = "dropped" if is_done else "would drop"
    as_it_is = f"{plan.client} can read the table as it is: no feature has to be dropped"
    lines = [f"{verb} {name}" for name in plan.drops] or [as_it_is]
    lines += [f"  lost: {loss}" for loss in plan.losses]
    if plan.unwritable:
        lines.append(f"  {plan.client} reads it, and cannot append: {', '.join(plan.unwritable)}")
    return lines


def _drop(table: Table, plan: HandoverPlan) -> tuple[HandoverPlan, str]:
    """Drop the features; return what was done, and what has to wait for the history to expire, else an empty text."""
    with progress("reading the footers") as update:
        for name in plan.drops:
            truncates = name == lazy_imports.PROTECTION
            try:
                session = maintenance_commands.session_for(table, update)
                table.drop_feature(name, truncate_history=truncates, spark=session)
            except (RetentionNotExpired, ProtectedVersionsRemain) as error:
                return plan.until(name), f"{error.message} Run the same command again then."
    return plan, ""


def _prove(table: Table, client: str, settings: Mapping[str, str]) -> int | None:
    """Return the number of rows that the client reads, in a separate process; None if it is not installed."""
    if find_spec(client) is None:
        return None
    expected = lazy_imports.build_report(table.snapshot, lazy_imports.FooterUse("none")).rows
    return _count(client, table.location, {"location": table.location, "settings": settings}, expected)


def _count(client: str, location: str, asked: Mapping[str, object], expected: int | None) -> int:
    """Return the number of rows that a client reads, in a separate process.

    Args:
        client: A key of `_COUNTS`.
        asked: What the program of the client needs to know.
        expected: The number of rows of the table; None if it is not known.
    """
    command = [sys.executable, "-c", _COUNTS[client]]
    question = msgspec.json.encode(asked).decode()
    done = subprocess.run(command, input=question, capture_output=True, text=True, check=False)
    last = (done.stdout if done.returncode == 0 else done.stderr).strip().rpartition("\n")[2]
    fix = "Report this, with the protocol of the table."
    if done.returncode or not last.isdecimal():
        raise StorageError(location=location, reason=f"{client} does not read it: {last}", fix=fix)
    if expected is not None and int(last) != expected:
        reason = f"{client} reads {last} rows, and the table has {expected}"
        raise StorageError(location=location, reason=reason, fix=fix)
    return int(last)


def _hand_to_iceberg(
    table: Table, catalog: str | None, identifier: str | None, *, appends: bool, is_dry: bool, json: bool
) -> None:
    """Mirror a table as an Iceberg table, and prove that PyIceberg reads every file of it."""
    if catalog is None or identifier is None:
        raise typer.BadParameter("--to iceberg needs --catalog and --identifier.")
    if appends:
        raise typer.BadParameter("--append does not apply: writers of the Iceberg table do not change the Delta table.")
    rows = None
    if is_dry:
        lazy_imports.ensure_mirrorable(table.snapshot)
    else:
        table.mirror(catalog=catalog, identifier=identifier)
        opened = lazy_imports.to_catalog(catalog).open()
        asked = {"name": opened.name, "properties": opened.properties, "identifier": identifier}
        expected = lazy_imports.build_report(table.snapshot, lazy_imports.FooterUse("none")).rows
        rows = _count("pyiceberg", identifier, asked, expected)
    if json:
        show_json(
            {"client": ICEBERG, "identifier": identifier, "version": table.version, "dryRun": is_dry, "rows": rows}
        )
    elif rows is None:
        show([Text(f"would mirror version {table.version} as {identifier}")])
    else:
        count = lazy_imports.text_format.count_noun(rows, "row")
        show([Text.assemble(("✓ ", "bold green"), f"PyIceberg reads version {table.version} as {identifier}: {count}")])
        note("Run `widen mirror --follow` to keep it up to date.")


_QUESTION = "import json, sys; asked = json.load(sys.stdin); "
_COUNTS: Mapping[str, str] = {
    "deltalake": f"{_QUESTION}import deltalake; "
    "table = deltalake.DeltaTable(asked['location'], storage_options=asked['settings']); "
    "query = deltalake.QueryBuilder().register('handed_over', table); "
    "print(query.execute('SELECT count(*) AS n FROM handed_over').read_all()['n'][0].as_py())",
    "polars": f"{_QUESTION}import polars; "
    "rows = polars.scan_delta(asked['location'], storage_options=asked['settings'] or None); "
    "print(rows.select(polars.len()).collect().item())",
    "pyiceberg": f"{_QUESTION}from pyiceberg.catalog import load_catalog; "
    "table = load_catalog(asked['name'], **asked['properties']).load_table(asked['identifier']); "
    "scan = table.scan(selected_fields=(table.schema().fields[0].name,)); "
    "print(sum(rows.num_rows for rows in scan.to_arrow_batch_reader()))",
}
"""A program for each client: it counts the rows of the table that it is asked about."""

_CHECKS: Mapping[str, str] = {
    "deltalake": "deltalake.DeltaTable({}).to_pyarrow_table()",
    "polars": "polars.read_delta({})",
}


def mirror(
    table: shared_options.Table,
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            metavar="NAME|FILE.db",
            help="A catalog of PyIceberg's configuration, or a file for an embedded one.",
        ),
    ],
    identifier: Annotated[
        str, typer.Option("--identifier", metavar="NAME", help="The Iceberg table, e.g. shop.orders.")
    ],
    follow: Annotated[bool, typer.Option("--follow", help="Keep the mirror up to date until interrupted.")] = False,
    every: Annotated[float, typer.Option("--every", min=0, help="With --follow: seconds between two checks.")] = 10,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Make an Iceberg table show a Delta table. It reads the log alone and opens no data file."""
    opened = lazy_imports.MirrorMixin(table, shared_options.storage(storage_option))
    _show(opened.mirror(catalog=catalog, identifier=identifier), json=json)
    if not follow:
        return
    with stop_requested() as stop:
        while not stop.wait(every):
            done = opened.refresh().mirror(catalog=catalog, identifier=identifier)
            if done.snapshot_id is not None:
                _show(done, json=json)
    note("stopped; run it again to continue.")


def _show(done: Mirrored, *, json: bool) -> None:
    if json:
        changed = {"changed": done.snapshot_id is not None, "added": done.added, "removed": done.removed}
        show_json({"identifier": done.name, "version": done.version, "snapshot": done.snapshot_id, **changed})
    elif done.snapshot_id is None:
        show([Text(f"{done.name} shows version {done.version} already")])
    else:
        counted = f"{done.added} added, {done.removed} removed"
        show([Text.assemble(("✓ ", "bold green"), f"{done.name} shows version {done.version}: {counted}")])
