"""One name stands for one thing: no two modules, classes or public functions share one."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable

from architecture.source import Function, Module, modules

FACES = {"widen.types"}
"""Modules that only show what others have, under the name under which users look for it."""


def test_no_module_has_the_name_of_another() -> None:
    named = [module for module in modules() if module.path.name != "__init__.py" and module.name not in FACES]
    assert _repeated((module.path.stem, module.name) for module in named) == {}


def test_no_class_has_the_name_of_another() -> None:
    assert _repeated((node.name, where) for node, where in _definitions() if isinstance(node, ast.ClassDef)) == {}


def test_no_public_function_has_the_name_of_another() -> None:
    """Methods may: they belong to the name of their class."""
    functions = ((node.name, where) for node, where in _definitions() if isinstance(node, Function))
    assert _repeated((name, where) for name, where in functions if not name.startswith("_")) == {}


def _definitions() -> Iterable[tuple[ast.stmt, str]]:
    return ((node, module.where(node)) for module in modules() for node in _top_level(module))


def _top_level(module: Module) -> list[ast.stmt]:
    """The statements of a module, those below a condition too; one name may stand in both branches of it."""
    return [inner for node in module.tree.body for inner in (node.body if isinstance(node, ast.If) else [node])]


def _repeated(names: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    places = defaultdict(list)
    for name, where in names:
        places[name].append(where)
    return {name: where for name, where in places.items() if len(where) > 1}
