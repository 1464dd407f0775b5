"""The command ``explain``: the rules of evolution by their codes."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.padding import Padding
from rich.text import Text

from widen.cli import lazy_imports, shared_options
from widen.cli.output import show, show_json


def explain(
    code: Annotated[
        list[str] | None,
        typer.Argument(metavar="[CODE]...", help="Rules such as U8, D2 or V5; without one, the list of all rules."),
    ] = None,
    json: shared_options.Json = False,
) -> None:
    """Explain rules of schema evolution by their codes."""
    rules = [lazy_imports.find_rule(each) for each in code or lazy_imports.evolution_rules()]
    if json:
        show_json([msgspec.to_builtins(rule) for rule in rules])
        return
    for rule in rules:
        show([Text.assemble((f"{rule.code}  ", "bold cyan"), (rule.title, "bold"))])
        if code:
            show([Padding(Text(rule.text), (0, 0, 1, 2))])
