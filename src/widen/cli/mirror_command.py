"""The command that mirrors a Delta table as an Iceberg table: ``mirror``."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from widen.cli import lazy_imports, shared_options
from widen.cli.output import show, show_json


def mirror(
    table: shared_options.Table,
    catalog: Annotated[
        str,
        typer.Option(
            "--catalog",
            metavar="NAME|FILE.db",
            help="A catalog of PyIceberg's configuration, or a file for an embedded one.",
            show_default=False,
        ),
    ],
    identifier: Annotated[
        str, typer.Option("--identifier", metavar="NAME", help="The Iceberg table, e.g. shop.orders.")
    ],
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Make an Iceberg table show a Delta table. It reads the log alone and opens no data file."""
    done = lazy_imports.MirrorMixin(table, shared_options.storage(storage_option)).mirror(
        catalog=catalog, identifier=identifier
    )
    if json:
        changed = {"changed": done.snapshot_id is not None, "added": done.added, "removed": done.removed}
        show_json({"identifier": done.name, "version": done.version, "snapshot": done.snapshot_id, **changed})
    elif done.snapshot_id is None:
        show([Text(f"{done.name} shows version {done.version} already")])
    else:
        counted = f"{done.added} added, {done.removed} removed"
        show([Text.assemble(("✓ ", "bold green"), f"{done.name} shows version {done.version}: {counted}")])
