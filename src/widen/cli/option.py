"""Arguments and options that several commands share.

Source: house rule: one word, one meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, TypeAlias

import typer

Table: TypeAlias = Annotated[str, typer.Argument(help="A local path or a URL of an object store.", show_default=False)]
Sources: TypeAlias = Annotated[
    list[str], typer.Argument(metavar="SOURCE...", help="Files, directories or patterns of JSON.", show_default=False)
]
Into: TypeAlias = Annotated[str, typer.Option("--into", metavar="TABLE", help="The table.", show_default=False)]
Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Write JSON to stdout.")]
Version: TypeAlias = Annotated[
    int | None, typer.Option("--version", min=0, help="The version; the newest by default.", show_default=False)
]
Limit: TypeAlias = Annotated[
    int | None, typer.Option("--limit", min=1, help="How many at most; all by default.", show_default=False)
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
