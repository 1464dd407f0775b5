"""Keyword arguments that several functions take: each is declared once, in a `TypedDict`.

A function that takes ``**options: Unpack[IngestOptions]`` shows them in its signature and help as if it listed them.
"""

from __future__ import annotations

import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, ForwardRef, get_args

from widen.model.value_classes import dataclass

if sys.version_info >= (3, 11):
    from typing import Unpack as Unpack
else:
    from typing_extensions import Unpack as Unpack

_UNPACKED = re.compile(r"Unpack\[(\w+)\]")
_MODULE = re.compile(r"\b(?:[a-z]\w*\.)+(?=\w)")
_WIDTH = 116


@dataclass(frozen=True, slots=True)
class Option:
    """The declaration of an argument.

    Args:
        default: What a function gets without it.
        choices: Its values, where these are few.
        flag: Its name on the command line, where that is not the name of the argument.
        metavar: How the command line describes its value.
        minimum: The smallest value that the command line accepts.
        help: What it does, for the command line; None if that has no such option.
        setting: Which values a TOML file may have, where its type and choices do not say it.
    """

    about: str
    default: Any = None
    choices: tuple[str, ...] = ()
    flag: str = ""
    metavar: str | None = None
    minimum: int | None = None
    help: str | None = None
    setting: str = ""


def declared(options: type) -> dict[str, tuple[Any, Option]]:
    """Return the type and the declaration of each option of a class, in their order."""
    return {name: get_args(each)[:2] for name, each in options.__annotations__.items()}


def with_defaults(options: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a class: the given ones, and the defaults of the others."""
    return {name: given.get(name, option.default) for name, (_, option) in declared(options).items()}


def options_of(function: Callable[..., object]) -> type | None:
    """Return the class of options that a function takes as keyword arguments; None if it takes none."""
    function = inspect.unwrap(function)
    names = [_UNPACKED.fullmatch(str(each)) for each in function.__annotations__.values()]
    return next((function.__globals__[name[1]] for name in names if name), None)


def expand_signature(signature: inspect.Signature, options: type) -> inspect.Signature:
    """Return a signature that lists the options."""
    own = [each for each in signature.parameters.values() if each.kind is not each.VAR_KEYWORD]
    listed = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=option.default, annotation=_type_text(kind))
        for name, (kind, option) in declared(options).items()
    ]
    return signature.replace(parameters=[*own, *listed])


def expand_documentation(text: str, options: type) -> str:
    """Return a docstring that describes the options below the arguments that it describes itself."""
    head, title, rest = inspect.cleandoc(text).partition("\nArgs:\n")
    own, gap, tail = rest.partition("\n\n")
    described = "\n".join(_describe(name, option.about) for name, (_, option) in declared(options).items())
    return f"{head}{title}{own}\n{described}{gap}{tail}"


@cache
def _describe(name: str, about: str) -> str:
    return textwrap.fill(
        f"{name}: {about}", _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False
    )


def _type_text(kind: Any) -> str:
    return kind.__forward_arg__ if isinstance(kind, ForwardRef) else _MODULE.sub("", inspect.formatannotation(kind))
