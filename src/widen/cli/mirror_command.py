"""The command that mirrors a Delta table as an Iceberg table: ``mirror``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options
from widen.cli.follow import stop_requested
from widen.cli.output import note, show, show_json

if TYPE_CHECKING:
    from widen.iceberg.mirror import Mirrored


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
