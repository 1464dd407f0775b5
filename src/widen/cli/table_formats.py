"""Commands for both table formats: with ``--catalog`` the table is an Iceberg table, else it is a Delta table.

Here, and nowhere else, the command line decides between the two.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from widen.cli import shared_options


def for_both_formats(delta: Callable[..., None], iceberg: Callable[..., None]) -> Callable[..., None]:
    """Return a command for Delta tables with the option ``--catalog``, which then calls a function for Iceberg tables.

    Args:
        iceberg: Has the parameters ``table`` and ``catalog``, those of the options that Iceberg tables have too, and
            with annotations those of the options that only Iceberg tables have.
    """
    before = inspect.signature(delta, eval_str=True).parameters
    after = inspect.signature(iceberg, eval_str=True).parameters
    only = [each for name, each in after.items() if name not in before and name != "catalog"]
    catalog = inspect.Parameter(
        "catalog", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=shared_options.Catalog
    )

    @wraps(delta)
    def wrapper(**given: Any) -> None:
        name = given.pop("catalog")
        if name is None:
            for each in only:
                if given.pop(each.name) != each.default:
                    raise typer.BadParameter(f"{_option(each.name)} is for Iceberg tables; name their --catalog.")
            delta(**given)
            return
        for option, value in given.items():
            if option not in after and value != before[option].default:
                raise typer.BadParameter(f"{_option(option)} does not apply to Iceberg tables.")
        iceberg(catalog=name, **{option: value for option, value in given.items() if option in after})

    every = (*before.values(), *only)
    parameters = [*(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in every), catalog]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {each.name: each.annotation for each in parameters}
    return wrapper


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
