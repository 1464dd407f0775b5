"""Dataclasses with late methods behave as those of the standard library."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from collections.abc import Callable
from dataclasses import KW_ONLY, FrozenInstanceError, field
from functools import cached_property
from itertools import product
from typing import Any, ClassVar

import pytest

from architecture.source import PACKAGE
from widen.model import value_classes

OPTIONS = [
    {"frozen": frozen, "slots": slots, **more}
    for frozen, slots in product((False, True), repeat=2)
    for more in ({}, {"eq": False}, {"kw_only": True}, {"order": True})
]


def make(decorate: Callable[..., Any], options: dict[str, Any]) -> tuple[Any, Any]:
    """Return a class with every kind of field, and a subclass with another field and its own text."""
    decorator = decorate(**options)

    @decorator
    class Base:
        kept: ClassVar[int] = 7
        one: int
        two: str = "b"
        many: list[int] = field(default_factory=list, hash=False)
        hidden: int = field(default=3, repr=False, compare=False)
        late: int = field(default=4, init=False)
        made: list[int] = field(default_factory=list, init=False, compare=False)

        def __post_init__(self) -> None:
            self.made.append(self.one)

    @decorator
    class Derived(Base):
        _: KW_ONLY
        more: int = 5

        def __str__(self) -> str:
            return f"<{self.one}>"

    for each in (Base, Derived):
        each.__qualname__ = f"{each.__name__}{id(each)}"  # pickle finds it by this name
        setattr(sys.modules[__name__], each.__qualname__, each)
    return Base, Derived


def outcome(call: Callable[[], Any]) -> Any:
    try:
        result = call()
    except (TypeError, ValueError, FrozenInstanceError, AttributeError) as error:
        return type(error)
    return repr(result).partition("(")[2] or result


def describe(cls: Any) -> list[Any]:
    """Return what calls on a class and its instances give."""
    first, same, other = cls(one=1), cls(one=1), cls(one=2, two="z", many=[1])
    calls: list[Callable[[], Any]] = [
        lambda: cls(),
        lambda: cls(1, "x", [2], 9),
        lambda: cls(1, late=2),
        lambda: cls(1, more=6),
        lambda: (first == same, first == other, first == 1, first != same),
        lambda: (hash(first) == hash(same), hash(first) == hash(other)),
        lambda: first < other,
        lambda: (sorted([other, first])[0] is first, first >= same),
        lambda: (repr(first), str(other))[0].partition("(")[2],
        lambda: dataclasses.asdict(other),
        lambda: dataclasses.replace(first, two="y"),
        lambda: dataclasses.replace(first, late=1),
        lambda: pickle.loads(pickle.dumps(other)),
        lambda: copy.copy(other),
        lambda: setattr(first, "one", 9),
        lambda: delattr(first, "one"),
        lambda: str(inspect.signature(cls)).replace("'", ""),
        lambda: (cls.__match_args__, cls.kept, [each.name for each in dataclasses.fields(cls)]),
    ]
    return [outcome(call) for call in calls]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: "-".join(options) + str([*options.values()][:2]))
@pytest.mark.parametrize("index", [0, 1])
def test_a_class_behaves_as_a_dataclass(options: dict[str, Any], index: int) -> None:
    mine, theirs = (describe(make(each, options)[index]) for each in (value_classes.dataclass, dataclasses.dataclass))
    assert mine == theirs


def test_a_signature_is_complete_before_the_first_instance() -> None:
    @value_classes.dataclass(frozen=True)
    class Point:
        x: int
        y: int = 1

        @cached_property
        def both(self) -> int:
            return self.x + self.y

    assert [*inspect.signature(Point).parameters] == ["x", "y"]
    assert Point(2).both == 3


def test_every_module_uses_late_methods() -> None:
    users = {path.name for path in PACKAGE.rglob("*.py") if "import dataclass\n" in path.read_text()}
    stdlib = [path for path in PACKAGE.rglob("*.py") if "from dataclasses import dataclass" in path.read_text()]
    assert len(users) > 200
    assert [path.name for path in stdlib] == ["value_classes.py"]
