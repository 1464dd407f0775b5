"""The public names are one sorted list that somebody reads."""

from __future__ import annotations

import ast

from architecture.source import modules


def test_the_list_is_sorted_and_has_no_name_twice() -> None:
    names = _listed()
    assert names == sorted(set(names))


def test_the_list_is_what_the_package_imports() -> None:
    assert set(_listed()) == _imported()


def test_the_package_module_holds_nothing_else() -> None:
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    assert [ast.unparse(node) for node in _package().body[1:] if not isinstance(node, kinds) and not _lazy(node)] == []


def _lazy(node: ast.stmt) -> bool:
    """The imports for type checkers, and the function that makes them when a name is first used."""
    by_checker = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    return by_checker or (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")


def _package() -> ast.Module:
    return next(module.tree for module in modules() if module.name == "widen")


def _listed() -> list[str]:
    for node in _package().body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def _imported() -> set[str]:
    assigned = {
        ast.unparse(target)
        for node in _package().body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if not ast.unparse(target).startswith("__")
    }
    return assigned | {
        alias.asname or alias.name
        for block in _package().body
        if _lazy(block)
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
