"""What every definition must carry, and how long a function may grow."""

from __future__ import annotations

from architecture.source import body_lines, docstring, modules, public

LONGEST_BODY_LINES = 60
VAGUE_NAMES = {"base", "common", "helper", "helpers", "manager", "misc", "util", "utils"}


def test_no_function_is_too_long() -> None:
    long = [
        f"{module.where(function)} {function.name}: {body_lines(function)}"
        for module in modules()
        for function in module.functions()
        if body_lines(function) > LONGEST_BODY_LINES
    ]
    assert long == []


def test_no_module_has_a_vague_name() -> None:
    assert [module.name for module in modules() if VAGUE_NAMES & set(module.name.split("."))] == []


def test_the_protocols_of_a_table_format_have_docstrings_in_full() -> None:
    """Whoever adds a format implements them from their docstrings; other internal names say what their readers need."""
    protocols = next(module for module in modules() if module.name == "widen.targets.table_format")
    assert [name for name, node in public(protocols) if docstring(name, node) is None] == []


def test_every_return_is_annotated() -> None:
    bare = [
        f"{module.where(function)} {function.name}"
        for module in modules()
        for function in module.functions()
        if function.returns is None
    ]
    assert bare == []
