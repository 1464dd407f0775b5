"""The command ``readers``: which other readers read a table, refuse it, or return something wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from widen.cli import shared_options
from widen.cli.output import note, show, show_json

if TYPE_CHECKING:
    from widen.report.reader_predictions import Prediction

Readers = Annotated[
    str | None,
    typer.Option("--readers", metavar="NAMES", help="The readers, with commas between them; by default all."),
]


def readers_command(
    table: shared_options.Table,
    readers: Readers = None,
    json: shared_options.Json = False,
    storage_option: shared_options.StorageOptions = None,
) -> None:
    """Show which other readers read a table. Also shows which refuse it, and which lose rows or values."""
    from widen.table import Table

    opened = Table(table, shared_options.storage(storage_option))
    _show(opened.location, opened.readers(*to_names(readers)), json=json)


def readers_iceberg(table: str, catalog: str, readers: Readers = None, json: bool = False) -> None:
    """Show which other readers read an Iceberg table, which refuse it, and which return something wrong."""
    from widen.table import IcebergTable

    opened = IcebergTable(table, catalog)
    _show(opened.name, opened.readers(*to_names(readers)), json=json)


def to_names(text: str | None) -> list[str]:
    """Return the names of a list with commas."""
    return [name.strip() for name in (text or "").split(",") if name.strip()]


def _show(location: str, predictions: Sequence[Prediction], *, json: bool) -> None:
    from widen.report.reader_predictions import Outcome
    from widen.report.terminal import predictions_table, title_part

    if json:
        show_json({"table": location, "readers": [each.to_value() for each in predictions]})
        return
    show([title_part(location), predictions_table(predictions)])
    remedies = {
        trait.remedy.replace("T", location, 1): None
        for each in predictions
        if each.outcome is not Outcome.READS
        for trait in each.reasons
        if trait.remedy
    }
    for remedy in remedies:
        note(f"To change that: `{remedy}`")
