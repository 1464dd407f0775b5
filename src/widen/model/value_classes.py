"""Dataclasses that cost little at import: their methods are made when a class is first used.

The standard library compiles six functions for each frozen dataclass. A load of one record imports some 270 of them and
uses a third. This decorator compiles `__init__` only, for the first instance; the other methods are shared.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, fields
from functools import partial
from operator import attrgetter, ge, gt, le, lt
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls: Any = None, /, **options: Any) -> Any:
        """Make a class a dataclass whose `__init__` is compiled for its first instance."""
        return partial(_to_dataclass, **options) if cls is None else _to_dataclass(cls)


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()


def _to_dataclass(
    cls: Any, *, frozen: bool = False, slots: bool = False, eq: bool = True, order: bool = False, kw_only: bool = False
) -> Any:
    cls.__doc__ = cls.__doc__ or cls.__name__  # else the standard library asks for the signature, which is slow
    own = {name for name, value in vars(cls).items() if (name, value) != ("__hash__", None)}
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)(cls)
    methods: dict[str, Any] = {"__repr__": _repr, "__init__": _LateInit(made)}
    if eq:
        methods |= _comparison(made, frozen=frozen, order=order)
    if frozen:
        methods |= {"__setattr__": _refuse_assignment, "__delattr__": _refuse_assignment}
    if frozen and slots:
        methods |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, method in methods.items():
        if name not in own:
            setattr(made, name, method)
    return made


class _LateInit:
    """Stands for `__init__`, and replaces itself with the compiled one when it is first used or looked at."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __get__(self, instance: object, owner: Any) -> Any:
        if vars(self._cls)["__init__"] is self:
            _compile_init(self._cls)
        return vars(self._cls)["__init__"].__get__(instance, owner)


def _compile_init(cls: Any) -> None:
    names: dict[str, Any] = {"_set": object.__setattr__, "_FACTORY": _FACTORY}
    every = [each for each in fields(cls) if each.init]
    keywords = [_parameter(each, names) for each in every if each.kw_only]
    parameters = ["self", *(_parameter(each, names) for each in every if not each.kw_only)]
    parameters += ["*", *keywords] if keywords else []
    frozen = cls.__setattr__ is _refuse_assignment
    body = [line for each in fields(cls) if (line := _assignment(each, names, frozen=frozen))]
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    text = f" def __init__({', '.join(parameters)}):\n  " + "\n  ".join(body or ["pass"])
    made: dict[str, Any] = {}
    # In the module of the class, so that the hints of its parameters resolve.
    exec(f"def make({', '.join(names)}):\n{text}\n return __init__", vars(sys.modules[cls.__module__]), made)
    init = made["make"](**names)
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {each.name: each.type for each in every} | {"return": None}
    cls.__init__ = init


def _parameter(field: Any, names: dict[str, Any]) -> str:
    if field.default is not MISSING:
        names[f"_default_{field.name}"] = field.default
        return f"{field.name}=_default_{field.name}"
    return f"{field.name}=_FACTORY" if field.default_factory is not MISSING else str(field.name)


def _assignment(field: Any, names: dict[str, Any], *, frozen: bool) -> str | None:
    name = field.name
    value = name if field.init else f"_default_{name}"
    if field.default_factory is not MISSING:
        names[f"_make_{name}"] = field.default_factory
        value = f"_make_{name}() if {name} is _FACTORY else {name}" if field.init else f"_make_{name}()"
    elif not field.init:
        if field.default is MISSING:
            return None
        names[value] = field.default
    return f"_set(self, '{name}', {value})" if frozen else f"self.{name} = {value}"


def _comparison(cls: Any, *, frozen: bool, order: bool) -> dict[str, Any]:
    compared = [each for each in fields(cls) if each.compare]
    values = _values([each.name for each in compared])
    hashed = _values([each.name for each in compared if each.hash is not False])

    def __eq__(self: Any, other: Any) -> Any:
        if self is other:
            return True
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(hashed(self))

    def compare(operation: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
        def method(self: Any, other: Any) -> Any:
            return operation(values(self), values(other)) if other.__class__ is self.__class__ else NotImplemented

        return method

    methods = {f"__{each.__name__}__": compare(each) for each in ((lt, le, gt, ge) if order else ())}
    return methods | {"__eq__": __eq__, "__hash__": __hash__ if frozen else None}


def _values(names: list[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) == 1:
        get = attrgetter(names[0])
        return lambda each: (get(each),)
    return attrgetter(*names) if names else lambda each: ()


@recursive_repr()
def _repr(self: Any) -> str:
    shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self) if each.repr)
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _refuse_assignment(self: Any, name: str, value: object = None) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _get_state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)
