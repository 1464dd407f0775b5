"""The public names are one sorted list that somebody reads."""

from __future__ import annotations

import ast

import widen
from architecture.source import modules


def test_the_list_is_sorted_and_has_no_name_twice() -> None:
    names = _listed()
    assert names == sorted(set(names))


def test_the_list_is_what_the_package_imports() -> None:
    assert set(_listed()) == _imported()


def test_the_package_module_holds_nothing_else() -> None:
    """Imports, the list, and the function that imports a public name when it is first used."""
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.If)
    others = [node for node in _package().body[1:] if not isinstance(node, kinds)]
    assert [node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node) for node in others] in (
        [],
        ["__getattr__"],
    )


def test_every_listed_name_is_there() -> None:
    assert [name for name in widen.__all__ if not hasattr(widen, name)] == []


def _package() -> ast.Module:
    return next(module.tree for module in modules() if module.name == "widen")


def _listed() -> list[str]:
    for node in _package().body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _imported() -> set[str]:
    return {
        alias.asname or alias.name
        for node in ast.walk(_package())
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("widen.")
        for alias in node.names
    }
