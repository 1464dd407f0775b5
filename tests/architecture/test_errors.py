"""The error tree: one base, stable codes, and messages whose every placeholder is filled wherever they are raised."""

from __future__ import annotations

import ast
import builtins
import string
from collections import Counter
from collections.abc import Iterator

from architecture.source import PACKAGE, Module, called_name, modules
from widen import errors

CLASSES = {
    name: value
    for name, value in vars(errors).items()
    if isinstance(value, type) and issubclass(value, errors.WidenError)
}
FAMILIES = {errors.RequestError, errors.TableError, errors.ContentionError, errors.InternalError}

# Python itself asks for these: a missing attribute or module, an operator that does not apply, the end of an iteration.
PYTHONS_OWN = {"AttributeError", "ModuleNotFoundError", "NotImplementedError", "StopIteration"}
BUILTIN_ERRORS = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}


def test_every_class_belongs_to_one_family() -> None:
    strays = [
        name
        for name, kind in CLASSES.items()
        if kind is not errors.WidenError and sum(issubclass(kind, family) for family in FAMILIES) != 1
    ]
    assert strays == []


def test_every_class_is_listed_once() -> None:
    defined = [
        node.name
        for module in modules()
        if module.path.parent == PACKAGE / "errors"
        for node in module.walk(ast.ClassDef)
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    ]
    assert sorted(errors.__all__) == sorted(defined)


def test_codes_are_stable_words_and_unique() -> None:
    codes = Counter(kind.code for kind in CLASSES.values() if "code" in vars(kind))
    assert [code for code, times in codes.items() if times > 1] == []
    assert [code for code in codes if not code.replace("_", "").isalnum() or code != code.upper()] == []


def test_the_tree_is_drawn_at_the_top_of_the_module() -> None:
    drawn = set((errors.__doc__ or "").replace("─", " ").split())
    assert [name for name in CLASSES if name not in drawn] == []


def test_what_is_raised_has_a_code_of_its_own() -> None:
    vague = [f"{where} {name}" for where, name, _ in _sites() if "code" not in vars(CLASSES[name])]
    assert vague == []


def test_every_placeholder_is_filled_where_the_error_is_made() -> None:
    wrong = [
        f"{where} {name}: needs {sorted(_placeholders(name))}, gets {sorted(given)}"
        for where, name, given in _sites()
        if given != _placeholders(name)
    ]
    assert wrong == []


def test_fields_are_given_by_name() -> None:
    unnamed = [
        f"{module.where(call)} {name}"
        for module, call, name in _calls()
        if call.args or any(word.arg is None for word in call.keywords)
    ]
    assert unnamed == []


def test_no_error_of_python_is_raised() -> None:
    raised = [
        f"{module.where(node)} {name}"
        for module in modules()
        for node in module.walk(ast.Raise)
        if isinstance(node, ast.Raise)
        and node.exc is not None
        and (name := called_name(node.exc)) in BUILTIN_ERRORS - PYTHONS_OWN
    ]
    assert raised == []


AROUND_COMMITS = {
    "flows/pipelines.py",
    "iceberg/catalog.py",
    "iceberg/table_commit.py",
    "iceberg/metadata_files.py",
    "ingestion/event_sinks.py",
    "log/commit.py",
    "log/commit_outcome.py",
    "spark/engine.py",
    "streams/query.py",
    "cli/app.py",
}
"""Where a commit may be visible: every kind of error must end as an outcome there, none as a failure of the commit.
And where an Iceberg catalog or a client of lineage is called, which may raise errors of any library that it uses; and
where one step of many fails, which must not end the others; and where the error of a task goes to another process or
thread, which raises it again; and where the command line shows an error that nothing has translated."""


def test_no_except_catches_everything_and_keeps_it() -> None:
    """To clean up and raise again is no catching."""
    broad = [
        module.where(node)
        for module in modules()
        if str(module.path.relative_to(PACKAGE)) not in AROUND_COMMITS
        for node in module.walk(ast.ExceptHandler)
        if isinstance(node, ast.ExceptHandler)
        and {"Exception", "BaseException", None} & set(_caught(node))
        and not (isinstance(node.body[-1], ast.Raise) and node.body[-1].exc is None)
    ]
    assert broad == []


def _caught(node: ast.ExceptHandler) -> list[str | None]:
    if isinstance(node.type, ast.Tuple):
        return [called_name(each) for each in node.type.elts]
    return [called_name(node.type) if node.type is not None else None]


def _calls() -> Iterator[tuple[Module, ast.Call, str]]:
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Call) and (name := called_name(node)) in CLASSES:
                yield module, node, str(name)


def _sites() -> Iterator[tuple[str, str, set[str]]]:
    for module, call, name in _calls():
        yield module.where(call), name, {word.arg for word in call.keywords if word.arg is not None}


def _placeholders(name: str) -> set[str]:
    kind = CLASSES[name]
    parsed = (*string.Formatter().parse(kind.template), *string.Formatter().parse(kind.hint))
    return {field.partition(".")[0].partition("[")[0] for _, field, _, _ in parsed if field}
