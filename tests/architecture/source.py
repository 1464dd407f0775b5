"""The source of the package as syntax trees, and the few questions that the tests ask of them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "widen"

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef


@dataclass(frozen=True)
class Module:
    """One file: its dotted name (a package stands for its ``__init__``), its path, its lines and its tree."""

    name: str
    path: Path
    lines: int
    tree: ast.Module

    @property
    def room(self) -> str:
        """The folder or file directly below the package that it belongs to; ``__init__`` for the package itself."""
        return self.name.split(".")[1] if "." in self.name else "__init__"

    def where(self, node: ast.AST) -> str:
        return f"{self.path.relative_to(PACKAGE)}:{getattr(node, 'lineno', 1)}"

    def walk(self, *kinds: type[ast.AST]) -> Iterator[ast.AST]:
        return (node for node in ast.walk(self.tree) if isinstance(node, kinds))

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))


@dataclass(frozen=True)
class Import:
    """One name that a module imports: the module it comes from, as far as it is known, and the line."""

    target: str
    node: ast.stmt


@cache
def modules() -> tuple[Module, ...]:
    return tuple(_read(path) for path in sorted(PACKAGE.rglob("*.py")))


def imports(module: Module) -> Iterator[Import]:
    """Every import of the module, wherever it stands; ``from widen import model`` counts as ``widen.model``."""
    names = {each.name for each in modules()}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            origin = _absolute(module, node)
            for alias in node.names:
                inner = f"{origin}.{alias.name}"
                yield Import(inner if inner in names else origin, node)


def public(module: Module) -> Iterator[tuple[str, Definition]]:
    """Public classes, functions and methods with their qualified names, top-down."""
    yield from _public("", module.tree.body)


def docstring(name: str, node: Definition) -> str | None:
    """The docstring of a public definition; of a method without one, that of the method that it implements."""
    above, _, method = name.rpartition(".")
    return ast.get_docstring(node) or next(_inherited(above, method), None)


def body_lines(function: Function) -> int:
    """Lines from the first statement after the docstring to the last."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return 0 if not body else (body[-1].end_lineno or 0) - body[0].lineno + 1


def called_name(node: ast.expr) -> str | None:
    """``X`` for ``X``, ``X(...)`` and ``module.X(...)``; None for anything else."""
    if isinstance(node, ast.Call):
        return called_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _public(prefix: str, body: list[ast.stmt]) -> Iterator[tuple[str, Definition]]:
    for node in body:
        if isinstance(node, Definition) and not node.name.startswith("_"):
            yield prefix + node.name, node
            if isinstance(node, ast.ClassDef):
                yield from _public(f"{prefix}{node.name}.", node.body)


@cache
def _classes() -> dict[str, ast.ClassDef]:
    """The classes of the package by name; a public name exists once."""
    return {
        node.name: node for module in modules() for node in module.walk(ast.ClassDef) if isinstance(node, ast.ClassDef)
    }


def _inherited(name: str, method: str) -> Iterator[str]:
    """The docstrings of a method in the classes above a class, nearest first."""
    for base in _classes()[name].bases if name in _classes() else ():
        above = called_name(base) or ""
        for node in _classes()[above].body if above in _classes() else ():
            if isinstance(node, Function) and node.name == method and (text := ast.get_docstring(node)):
                yield text
        yield from _inherited(above, method)


def _read(path: Path) -> Module:
    text = path.read_text(encoding="utf-8")
    parts = ("widen", *path.relative_to(PACKAGE).with_suffix("").parts)
    name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
    return Module(name, path, len(text.splitlines()), ast.parse(text, str(path)))


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    package = module.name if module.path.name == "__init__.py" else module.name.rpartition(".")[0]
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])
