"""Arguments and options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeAlias

import typer


class Shown(str, Enum):
    """How values are shown: the words of `widen.planning.evolution.samples.Samples`."""

    NONE = "none"
    MASKED = "masked"
    RAW = "raw"


Table: TypeAlias = Annotated[str, typer.Argument(help="A local path or a URL of an object store.", show_default=False)]
Sources: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="SOURCE...", help="Files, directories or patterns.", show_default=False)
]
Into: TypeAlias = Annotated[str, typer.Option("--into", metavar="TABLE", help="The table.", show_default=False)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
Version: TypeAlias = Annotated[
    int | None, typer.Option("--version", min=0, help="The version; the newest by default.", show_default=False)
]
Limit: TypeAlias = Annotated[
    int | None, typer.Option("--limit", min=1, help="How many at most; all by default.", show_default=False)
]
PlanHash: TypeAlias = Annotated[
    str | None,
    typer.Option("--plan-hash", metavar="HASH", help="Refuse every plan but this; see plan.", show_default=False),
]
Events: TypeAlias = Annotated[
    Path | None,
    typer.Option("--events", metavar="FILE", help="Add a line of JSON for all that changed.", show_default=False),
]
VerifyShare: TypeAlias = Annotated[
    float | None,
    typer.Option(
        "--verify-share",
        metavar="SHARE",
        min=0,
        max=1,
        help="Verify only that share of the records, e.g. 0.1.",
        show_default=False,
    ),
]
Samples: TypeAlias = Annotated[
    Shown,
    typer.Option("--samples", help="How values of the data are shown; masked: letters as x, digits as 9."),
]
StorageOptions: TypeAlias = Annotated[
    list[str] | None,
    typer.Option(
        "--storage-option",
        metavar="KEY=VALUE",
        help="A setting of the table's object store; may be said again.",
        show_default=False,
    ),
]


def pairs(words: Sequence[str] | None, option: str) -> dict[str, str]:
    """Return words of the form KEY=VALUE as a mapping.

    Raises:
        typer.BadParameter: one has another form.
    """
    found = {}
    for word in words or ():
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{word!r} is not of the form KEY=VALUE.", param_hint=option)
        found[key] = value
    return found


def storage(words: Sequence[str] | None) -> dict[str, str]:
    """Return the settings of a store.

    Raises:
        typer.BadParameter: one is not of the form KEY=VALUE.
    """
    return pairs(words, "--storage-option")
