"""Show functions in the reference with all of their keyword arguments, as `widen.model.keyword_options` lists them.

mkdocstrings reads the code without running it, and sees only ``**options``.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Any

import griffe

KINDS: dict[Any, griffe.ParameterKind] = {
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
}


class DeclaredOptions(griffe.Extension):
    """Replaces the signature and the docstring of a function that takes declared options."""

    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        """Replace those of one function."""
        if not any("Unpack[" in str(each.annotation) for each in func.parameters):
            return
        function = getattr(import_module(func.module.path), func.name)
        if func.docstring is None or "__signature__" not in vars(function):
            return
        parameters = inspect.signature(function).parameters.values()
        func.parameters = griffe.Parameters(*map(_parameter, parameters))
        func.docstring.value = inspect.cleandoc(function.__doc__)


def _parameter(each: inspect.Parameter) -> griffe.Parameter:
    default = None if each.default is each.empty else getattr(each.default, "__name__", repr(each.default))
    return griffe.Parameter(each.name, annotation=str(each.annotation), kind=KINDS[each.kind], default=default)
