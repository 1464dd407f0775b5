"""The public names are one sorted list that somebody reads."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import widen
import widen.types
from architecture.source import modules
from widen.ingestion.ingest_options import RecordOptions
from widen.model.argument_types import resolve_hints
from widen.model.keyword_options import declared, options_of


def test_the_list_is_sorted_and_has_no_name_twice() -> None:
    names = _listed()
    assert names == sorted(set(names))


def test_the_list_is_what_the_package_imports() -> None:
    assert set(_listed()) == _imported()


def test_the_package_module_holds_nothing_else() -> None:
    """Imports, the list, and the two functions that list and import the public names."""
    kinds = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign, ast.If)
    others = [node for node in _package().body[1:] if not isinstance(node, kinds)]
    assert [node.name if isinstance(node, ast.FunctionDef) else ast.unparse(node) for node in others] in (
        [],
        ["__getattr__", "__dir__"],
    )


def test_every_listed_name_is_there() -> None:
    assert [name for name in widen.__all__ if not hasattr(widen, name)] == []


def test_tab_completion_lists_the_names_before_they_are_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import widen, sys; print(*dir(widen)); print('pyspark' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [" ".join(sorted([*widen.__all__, "__version__"])), "False"]


def test_the_module_runs_as_the_command_line() -> None:
    done = subprocess.run([sys.executable, "-m", "widen", "--help"], capture_output=True, text=True, check=True)
    assert "ingest" in done.stdout


def test_the_version_is_one_of_three_numbers() -> None:
    assert [part.isdigit() for part in widen.__version__.split(".")] == [True] * 3


def test_the_types_are_one_sorted_list() -> None:
    assert widen.types.__all__ == sorted(set(widen.types.__all__))
    assert [name for name in widen.types.__all__ if not hasattr(widen.types, name)] == []


def _callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Every public function, every public method of a public class, with its name."""
    for name in widen.__all__:
        value = getattr(widen, name)
        if not inspect.isclass(value):
            yield name, value
            continue
        for key, member in inspect.getmembers(value):
            function = member.fget if isinstance(member, property) else member
            if (key == "__init__" or not key.startswith("_")) and inspect.isfunction(function):
                yield f"{name}.{key}", function


CALLABLES = dict(_callables())


@pytest.mark.parametrize("name", [*widen.__all__, *CALLABLES])
def test_every_public_name_has_a_docstring(name: str) -> None:
    assert name.endswith(".__init__") or inspect.getdoc(CALLABLES.get(name) or getattr(widen, name))


@pytest.mark.parametrize("name", CALLABLES)
def test_type_hints_resolve(name: str) -> None:
    assert isinstance(resolve_hints(CALLABLES[name]), dict)


@pytest.mark.parametrize("name", CALLABLES)
def test_help_shows_every_argument_and_switches_have_names(name: str) -> None:
    """`WidenError` alone takes any fields, which are those of its message."""
    if name.endswith("Error.__init__"):
        return
    for each in inspect.signature(CALLABLES[name]).parameters.values():
        assert each.kind is not each.VAR_KEYWORD
        assert not isinstance(each.default, bool) or each.kind is each.KEYWORD_ONLY
        assert each.name != "spark" or (each.kind is each.KEYWORD_ONLY and each.default is None)


@pytest.mark.parametrize("name", CALLABLES)
def test_help_describes_every_argument(name: str) -> None:
    documented = inspect.getdoc(CALLABLES[name]) or ""
    if name.endswith(".__init__") or "Args:" not in documented:
        return
    arguments = inspect.signature(CALLABLES[name]).parameters.keys() - {"self"}
    assert [key for key in arguments if f"    {key}: " not in documented and f"    *{key}: " not in documented] == []


def test_options_of_several_functions_are_declared_once() -> None:
    """The same name has the same declaration, unless its meaning differs: a flow has its own batches."""
    own: dict[str, Any] = {}
    for function in (widen.ingest, widen.plan, widen.ingest_stream, widen.replay, widen.check_contract):
        options = options_of(function)
        assert options is not None
        for name, declaration in declared(options).items():
            assert own.setdefault(name, declaration) == declaration
            assert inspect.signature(function).parameters[name].default == declaration[1].default
    assert declared(RecordOptions).keys() <= inspect.signature(widen.plan).parameters.keys()


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
