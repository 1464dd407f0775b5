"""The commands ``handover`` and ``mirror``: make a table readable for other clients, and prove that they read it right.

Source: docs/guide/hand-over.md
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer
from rich.text import Text

from widen.cli import lazy_imports, maintenance_commands, shared_options, spark_session
from widen.cli.follow import stop_requested
from widen.cli.output import note, show, show_json
from widen.cli.step_display import progress
from widen.errors import HandoverUnproven, ProtectedVersionsRemain, RetentionNotExpired

ICEBERG = "iceberg"
"""The client that gets a mirror of the table."""

if TYPE_CHECKING:
    from widen.iceberg.mirror import Mirrored
    from widen.planning.alter.handover import HandoverPlan
    from widen.proof.column_digests import TableDigest
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
    with lazy_imports.several_commits():
        plan, pending = (plan, "") if dry_run else _drop(opened, plan)
        asked = {"location": opened.location, "settings": settings, "version": opened.version}
        proof = None if dry_run else _prove(opened, to, asked)
    facts: dict[str, Any] = {"client": to, "drops": plan.drops, "losses": plan.losses, "unwritable": plan.unwritable}
    if json:
        done = {"version": opened.version, "dryRun": dry_run, "pending": pending or None}
        show_json({**facts, **done, **_proof_facts(proof)})
        return
    show(Text(line) for line in _lines(plan, is_done=not dry_run))
    if pending:
        note(pending)
    if proof is not None:
        show([Text.assemble(("✓ ", "bold green"), f"{to} reads version {opened.version}: {_proof_text(proof)}")])
    elif not dry_run:
        note(f"{to} is not installed here. To check: {_CHECKS[to].format(repr(opened.location))}")


def _proof_facts(proof: tuple[int, list[str]] | None) -> dict[str, Any]:
    return {"rows": proof and proof[0], "readers": proof and proof[1]}


def _proof_text(proof: tuple[int, list[str]]) -> str:
    rows, readers = proof
    return f"{lazy_imports.text_format.count_noun(rows, 'row')}, all values equal ({', '.join(readers)})"


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
                is_mapping = name == lazy_imports.COLUMN_MAPPING
                session = maintenance_commands.session_for(table, update, all_files=is_mapping)
                table.drop_feature(name, truncate_history=truncates, spark=session)
            except (RetentionNotExpired, ProtectedVersionsRemain) as error:
                return plan.until(name), f"{error.message} Run the same command again then."
    return plan, ""


def _prove(table: Table, client: str, asked: Mapping[str, object]) -> tuple[int, list[str]] | None:
    """Compare the values that the client reads with those of the table, with every reader of the client.

    Return the number of rows and the readers, or None if the client is not installed.

    Args:
        asked: What the client needs to know to open the table.

    Raises:
        HandoverUnproven: a reader fails, or returns something else.
    """
    if find_spec(client) is None:
        return None
    with progress("comparing values") as update:
        try:
            expected = lazy_imports.digest_locally(table.snapshot)
        except lazy_imports.NotLocal:
            spark = update.watch(spark_session.spark_session())
            expected = lazy_imports.digest_with_spark(spark, table.snapshot)
    readers = lazy_imports.find_readers(client, expected.rows)
    for reader in readers:
        found = _read({**asked, "client": client, "reader": reader})
        difference = f"fails: {found}" if isinstance(found, str) else lazy_imports.describe_difference(expected, found)
        if difference is not None:
            raise HandoverUnproven(
                client=client,
                version=table.version,
                location=table.location,
                reader=reader,
                difference=difference.rstrip("."),
            )
    return expected.rows, readers


def _read(asked: Mapping[str, object]) -> TableDigest | str:
    """Return the digest of what one reader of a client returns, in a separate process, or why it fails."""
    program = f"import sys; sys.path[:] = {sys.path!r}; from widen.proof import client_readers; client_readers.main()"
    question = msgspec.json.encode(asked).decode()
    done = subprocess.run([sys.executable, "-c", program], input=question, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return lazy_imports.TableDigest.from_json(done.stdout.strip().rpartition("\n")[2])
    lines = done.stderr.strip().split("\n")
    return next((line for line in reversed(lines) if _RAISED.match(line)), lines[-1])


_RAISED = re.compile(r"[\w.]*(Error|Exception|Panic\w*):? ")
"""The line of a traceback that says what was raised; some messages go on for lines."""


def _hand_to_iceberg(
    table: Table, catalog: str | None, identifier: str | None, *, appends: bool, is_dry: bool, json: bool
) -> None:
    """Mirror a table as an Iceberg table, and prove that PyIceberg reads every file of it."""
    if catalog is None or identifier is None:
        raise typer.BadParameter("--to iceberg needs --catalog and --identifier.")
    if appends:
        raise typer.BadParameter("--append does not apply: writers of the Iceberg table do not change the Delta table.")
    proof = None
    if is_dry:
        lazy_imports.ensure_mirrorable(table.snapshot)
    else:
        with lazy_imports.several_commits():
            table.mirror(catalog=catalog, identifier=identifier)
            opened = lazy_imports.to_catalog(catalog).open()
            asked = {"name": opened.name, "properties": opened.properties, "identifier": identifier}
            proof = _prove(table, "pyiceberg", asked)
    if json:
        facts = {"client": ICEBERG, "identifier": identifier, "version": table.version, "dryRun": is_dry}
        show_json({**facts, **_proof_facts(proof)})
    elif proof is None:
        show([Text(f"would mirror version {table.version} as {identifier}")])
    else:
        read = f"PyIceberg reads version {table.version} as {identifier}: {_proof_text(proof)}"
        show([Text.assemble(("✓ ", "bold green"), read)])
        note("Run `widen mirror --follow` to keep it up to date.")


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
