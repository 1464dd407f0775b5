"""Refuse an argument of the wrong type before anything happens.

A condition passed as a session, or a text passed as a list of columns, can cost rows. So every public
function checks its arguments against its annotations.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache, wraps
from importlib import import_module
from numbers import Integral, Real
from os import PathLike
from types import NoneType, UnionType
from typing import Any, Literal, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints, is_typeddict

from widen.errors import InvalidOption
from widen.model.display import did_you_mean
from widen.model.keyword_options import expand_documentation, expand_signature, options_of, with_defaults
from widen.model.lazy_module import spark_required

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SURROGATE = re.compile("[\ud800-\udfff]")


def check_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function that refuses arguments of other types than its annotations name.

    Args:
        function: A public function or method with an annotation for each parameter.
    """
    signature, options = inspect.signature(function), options_of(function)
    if options is not None:
        signature = expand_signature(signature, options)
    defaults = {} if options is None else with_defaults(options, {})

    @wraps(function)
    def checked(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            near = "".join(
                did_you_mean(name, signature.parameters) for name in kwargs if name not in signature.parameters
            )
            error.args = (f"{function.__name__}() {error}. {near}".rstrip(" ."),)
            raise
        ensure_argument_types(function, bound.arguments)
        with spark_required():
            return function(*args, **{**defaults, **kwargs})

    if options is not None:
        checked.__signature__ = signature  # type: ignore[attr-defined]
        checked.__doc__ = expand_documentation(function.__doc__ or "", options)
    return checked


def ensure_argument_types(function: Callable[..., object], arguments: Mapping[str, object]) -> None:
    """Check some arguments of a function before it is called.

    Raises:
        InvalidOption: as in `check_arguments`.
    """
    for name, (parameter, expected) in _parameter_types(function).items():
        if name in arguments and not has_type(arguments[name], expected):
            requirement = _requirement(parameter, expected)
            if isinstance(arguments[name], str) and has_type([arguments[name]], expected):
                requirement += f" A list has brackets: {name}={[arguments[name]]}."
            raise InvalidOption(option=name, value=_to_shown(arguments[name]), expected=requirement)
        if name in arguments and not _is_path(expected) and _has_surrogate(arguments[name]):
            raise InvalidOption(option=name, value=arguments[name], expected="Must be Unicode text.")


def _to_shown(value: object) -> object:
    """Return what an error shows of an argument: only its type if it has rows of data."""
    return type(value).__name__ if any(hasattr(value, name) for name in _HAS_ROWS) else value


_HAS_ROWS = ("__arrow_c_stream__", "__arrow_c_array__", "__array__")


@cache
def _parameter_types(function: Callable[..., object]) -> dict[str, tuple[inspect.Parameter, Any]]:
    hints, signature, options = (
        resolve_hints(function),
        inspect.signature(inspect.unwrap(function)),
        options_of(function),
    )
    if options is not None:
        hints, signature = hints | resolve_hints(options), expand_signature(signature, options)
    parameters = signature.parameters
    return {name: (each, _argument_type(each, hints[name])) for name, each in parameters.items() if name in hints}


LATE_TYPES: Mapping[str, str] = {
    "CatalogSource": "widen.iceberg.catalog",
    "Column": "widen.spark.spark_types",
    "DataFrame": "widen.spark.spark_types",
    "Expression": "widen.spark.expression",
    "OnBatch": "widen.flows.flow_step",
    "OnEvent": "widen.ingestion.result",
    "OnInterval": "widen.ingestion.result",
    "Progress": "widen.model.display",
    "SchemaLike": "widen.spark.spark_types",
    "SparkSession": "widen.spark.spark_types",
}
"""The types in annotations that modules import for type checkers only, so that they load fast and without Spark."""


def resolve_hints(function: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations of a function as types. One that needs Spark is `Any` where Spark is not installed."""
    late: dict[str, Any] = {}
    while True:
        try:
            return get_type_hints(function, localns=late)
        except NameError as error:
            name = error.name or ""
            late[name] = _late_type(name)


def _late_type(name: str) -> Any:
    try:
        return getattr(import_module(LATE_TYPES[name]), name) if name in LATE_TYPES else Any
    except ModuleNotFoundError:
        return Any


def ensure_not_negative(**numbers: int | None) -> None:
    """Refuse negative numbers of rows, commits or files.

    Raises:
        InvalidOption: a number is negative.
    """
    for option, number in numbers.items():
        if number is not None and number < 0:
            raise InvalidOption(option=option, value=number, expected="Must be an integer >= 0.")


def _argument_type(parameter: inspect.Parameter, hint: Any) -> Any:
    return tuple[hint, ...] if parameter.kind is parameter.VAR_POSITIONAL else hint


def _requirement(parameter: inspect.Parameter, expected: Any) -> str:
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"Each must be {describe(get_args(expected)[0])}, and an argument of its own: f(a, b), not f([a, b])."
    return f"Must be {describe(expected)}."


def _is_path(expected: Any) -> bool:
    return get_origin(expected) is PathLike or any(map(_is_path, get_args(expected)))


def _has_surrogate(value: object) -> bool:
    if isinstance(value, str):
        return not value.isascii() and _SURROGATE.search(value) is not None
    if isinstance(value, Mapping):
        return any(map(_has_surrogate, value.items()))
    if isinstance(value, (list, tuple, Set)):
        return any(map(_has_surrogate, value))
    if is_dataclass(value) and not isinstance(value, type):
        return any(_has_surrogate(getattr(value, each.name)) for each in fields(value))
    return False


def has_type(value: object, expected: Any) -> bool:
    """Return whether a value has a type; one-shot iterables are not consumed to look at their items."""
    origin, args = get_origin(expected), get_args(expected)
    if origin in (Union, UnionType):
        return any(has_type(value, each) for each in args)
    if origin is Literal:
        return value in args
    if expected is Any:
        return True
    if expected is None or expected is NoneType:
        return value is None
    if is_typeddict(expected):
        return isinstance(value, Mapping) and all(
            has_type(value[name], hint) for name, hint in get_type_hints(expected).items() if name in value
        )
    if isinstance(origin, type):
        return _is_container(value, origin, args)
    return _is_instance(value, expected) if isinstance(expected, type) else True


def _is_container(value: object, kind: type, args: tuple[Any, ...]) -> bool:
    if not issubclass(kind, Iterable):
        return isinstance(value, kind)
    # A text is a sequence of texts for Python, but never the list of columns that a caller means.
    if isinstance(value, (str, bytes)) or not isinstance(value, kind):
        return False
    if isinstance(value, Mapping):
        # Where the items of a collection are expected, the keys are those.
        return all(has_type(each, kind) for item in value.items() for each, kind in zip(item, args, strict=False))
    if not isinstance(value, Collection):
        return _is_iterable(value)
    if kind is not tuple or args[-1:] == (...,):
        return all(has_type(item, args[0]) for item in value)
    return len(value) == len(args) and all(map(has_type, value, args))


def _is_iterable(value: Iterable[object]) -> bool:
    try:
        iter(value)
    except TypeError:  # Spark's columns have the method, and it refuses.
        return False
    return True


def _is_instance(value: object, expected: type) -> bool:
    if expected in (int, float):
        # NumPy's numbers are welcome; True and False are not numbers here.
        return isinstance(value, Integral if expected is int else Real) and not isinstance(value, bool)
    if getattr(expected, "_is_protocol", False) or isinstance(value, expected):
        return True
    # The Spark Connect session has the name of the classic one, but does not inherit from it. A class that stands in
    # for a session where Spark is not needed says so itself.
    if getattr(type(value), "STANDS_FOR", None) == expected.__name__:
        return True
    package = expected.__module__.partition(".")[0]
    return package == "pyspark" and any(
        base.__name__ == expected.__name__ and base.__module__.partition(".")[0] == package
        for base in type(value).__mro__
    )


def describe(expected: Any) -> str:
    """Return a type as a message names it, e.g. ``str, Column or None``."""
    if get_origin(expected) in (Union, UnionType):
        names = [describe(each) for each in get_args(expected)]
        return f"{', '.join(names[:-1])} or {names[-1]}"
    if get_origin(expected) is Literal:
        return ", ".join(map(repr, get_args(expected)))
    if expected is NoneType or expected is None:
        return "None"
    if args := get_args(expected):
        inner = ", ".join("..." if each is ... else describe(each) for each in args if not isinstance(each, list))
        return f"{getattr(get_origin(expected), '__name__', expected)}[{inner}]"
    return getattr(expected, "__name__", str(expected))


_Choice = TypeVar("_Choice", bound=Enum)


def parse_choice(kind: type[_Choice], option: str, text: str) -> _Choice:
    """Return the member of an enumeration that an argument names.

    Raises:
        InvalidOption: it is not one of the choices.
    """
    choices = [str(each.value) for each in kind]
    if text not in choices:
        *most, last = choices
        raise InvalidOption(option=option, value=text, expected=f"Must be {', '.join(most)} or {last}.")
    return kind(text)
