"""How large things may grow, and what every definition must carry."""

from __future__ import annotations

import ast
from statistics import median

from architecture.source import Function, body_lines, called_name, docstring, modules, public

LONGEST_MODULE_LINES = 400
LONGEST_BODY_LINES = 60
MEDIAN_BODY_LINES = 8
VAGUE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}


def test_no_module_is_too_long() -> None:
    assert [(module.name, module.lines) for module in modules() if module.lines > LONGEST_MODULE_LINES] == []


def test_no_function_is_too_long() -> None:
    long = [
        f"{module.where(function)} {function.name}: {body_lines(function)}"
        for module in modules()
        for function in module.functions()
        if body_lines(function) > LONGEST_BODY_LINES
    ]
    assert long == []


def test_most_functions_are_small() -> None:
    assert median(body_lines(function) for module in modules() for function in module.functions()) <= MEDIAN_BODY_LINES


def test_no_module_has_a_vague_name() -> None:
    assert [module.name for module in modules() if VAGUE_NAMES & set(module.name.split("."))] == []


def test_every_public_name_has_a_docstring() -> None:
    bare = [module.name for module in modules() if ast.get_docstring(module.tree) is None and module.tree.body]
    bare += [
        f"{module.where(node)} {name}"
        for module in modules()
        for name, node in public(module)
        if docstring(name, node) is None
    ]
    assert bare == []


def test_every_return_is_annotated() -> None:
    bare = [
        f"{module.where(function)} {function.name}"
        for module in modules()
        for function in module.functions()
        if function.returns is None
    ]
    assert bare == []


def test_public_docstrings_name_the_errors_that_are_raised_there() -> None:
    """Those of the command line are its help, which speaks to people who see no exceptions."""
    silent = [
        f"{module.where(node)} {name} raises {error}"
        for module in modules()
        if module.room != "cli"
        for name, node in public(module)
        if isinstance(node, Function)
        for error in _raised(node)
        if error not in (docstring(name, node) or "")
    ]
    assert silent == []


def _raised(function: Function) -> list[str]:
    raised = [node.exc for node in ast.walk(function) if isinstance(node, ast.Raise) and node.exc is not None]
    return [name for each in raised if isinstance(each, ast.Call) and (name := called_name(each)) and name[0].isupper()]
