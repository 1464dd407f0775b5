"""The public names are one sorted list that somebody reads."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

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


def test_every_public_name_has_a_docstring() -> None:
    public = {name: getattr(widen, name) for name in widen.__all__} | CALLABLES
    assert [name for name, each in public.items() if not name.endswith(".__init__") and not inspect.getdoc(each)] == []


def test_type_hints_resolve() -> None:
    assert len(CALLABLES) > 100
    for name, each in CALLABLES.items():
        assert isinstance(resolve_hints(each), dict), name


def test_help_shows_every_argument_and_switches_have_names() -> None:
    """`WidenError` alone takes any fields, which are those of its message."""
    for name in CALLABLES:
        if name.endswith("Error.__init__"):
            continue
        for each in inspect.signature(CALLABLES[name]).parameters.values():
            assert each.kind is not each.VAR_KEYWORD, name
            assert not isinstance(each.default, bool) or each.kind is each.KEYWORD_ONLY, (name, each.name)
            assert each.name != "spark" or (each.kind is each.KEYWORD_ONLY and each.default is None), name


def test_help_describes_every_argument() -> None:
    missing = []
    for name, each in CALLABLES.items():
        documented = inspect.getdoc(each) or ""
        if not name.endswith(".__init__") and "Args:" in documented:
            arguments = inspect.signature(each).parameters.keys() - {"self"}
            missing += [(name, key) for key in arguments if not re.search(rf"^ *\*?{key}: ", documented, re.MULTILINE)]
    assert missing == []


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
