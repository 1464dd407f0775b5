"""How far one reads to follow a call, and the size of the tree; ``make house`` prints it, and no test fails on it.

A reader who follows a call reads each function once, where it is first called. A function inside another one is read
with it. A function that calls only functions of its own module is understood by its name, so its module is not entered
for it. A stay is a run of functions of one module; a return to a module that was left before is another stay.

Widen reads and writes small files without a Spark job, so the functions of tasks are followed too. In a tree in which a
person counted 173 stays in 76 modules for a verified batch, and 81 in 37 for a change of type, this gives 188 in 82,
and 65 in 32. The changes of module at run time are printed beside: some ten times as many.
"""

from __future__ import annotations

import ast
import pkgutil
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

import widen

PACKAGE = Path(widen.__file__).parent
PARTS = ("rows", "evolution", "proof", "log/commit", "files", "changes")
Place: TypeAlias = tuple[str, str]
"""A module and the qualified name of a function."""


def walk(call: Callable[[], object]) -> str:
    """Return the stays of a reader who follows a call, the modules that they are in, and what runs in all."""
    calls, switches = _record(call)
    order = list(dict.fromkeys(called for _, called in calls))
    leads_on = {caller for caller, called in calls if caller[0] != called[0]}
    read = [module for module, name in order if (module, name) in leads_on]
    stays = [module for number, module in enumerate(read) if number == 0 or read[number - 1] != module]
    run = f"{switches} changes between {len({module for module, _ in order})} modules, {len(order)} functions"
    return f"{len(stays)} stays in {len(set(stays))} modules (at run time: {run})"


def _record(call: Callable[[], object]) -> tuple[list[tuple[Place, Place]], int]:
    """Return which function of Widen calls which, in the order of first calls, and how often the module changes.

    What is called from outside of Widen has an empty place as its caller.
    """
    calls: dict[tuple[Place, Place], None] = {}
    stack: list[Place] = [("", "")]
    switches, last = 0, ""

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal switches, last
        path = frame.f_code.co_filename
        if not path.startswith(str(PACKAGE)):
            return
        if event == "return" and len(stack) > 1:
            stack.pop()
        elif event == "call":
            name = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
            place = (path, name.partition(".<locals>")[0])
            calls[stack[-1], place] = None
            stack.append(place)
            switches, last = switches + (path != last), path

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return list(calls), switches


def main() -> None:
    """Print the walks, and the size of the tree."""
    for module in pkgutil.walk_packages(widen.__path__, "widen."):
        with suppress(ImportError):  # of an optional package
            import_module(module.name)
    with tempfile.TemporaryDirectory() as folder:
        table = widen.create_table(f"{folder}/t", "a int", properties={"delta.enableTypeWidening": "true"})
        print("a change of type:", walk(lambda: table.alter_column("a", type="bigint")))
        source = Path(folder, "day.json")
        source.write_text('{"a": 1}\n{"a": "x"}\n')
        widen.ingest(str(source), f"{folder}/warm", verify=True)
        print("a verified batch:", walk(lambda: widen.ingest(str(source), f"{folder}/batch", verify=True)))
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    lines = {path: len(text.splitlines()) for path, text in texts.items() if path.name != "__init__.py"}
    total, heads = sum(lines.values()), sum(_head(trees[path]) for path in lines)
    print(f"{len(lines)} modules, and {len(texts) - len(lines)} __init__.py", end="; ")
    print(f"{statistics.median(lines.values()):.0f} lines in the median, {total} in all", end=", ")
    print(f"{100 * heads / total:.1f} % imports and docstrings of modules")
    leads = [count for tree in trees.values() for count in _leads(tree)]
    print(f"a function leads to {statistics.mean(leads):.2f} other modules")
    print(f"names that stand for several things: {', '.join(_homonyms(trees)) or 'none'}")
    for part in PARTS:
        chosen = [line for path, text in texts.items() if _is_in(path, part) for line in text.splitlines()]
        print(f"{part}: {100 * sum(line.lstrip().startswith('#') for line in chosen) / len(chosen):.1f} % comments")


def _is_in(path: Path, part: str) -> bool:
    return str(path.relative_to(PACKAGE)).startswith(part)


def _head(tree: ast.Module) -> int:
    """Return how many lines of a module are imports and its docstring."""
    first = [tree.body[0]] if tree.body and isinstance(tree.body[0], ast.Expr) else []
    imports = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in (*first, *imports))


def _leads(tree: ast.Module) -> Iterable[int]:
    """Yield for each function how many other modules the names in its body come from."""
    origins: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("widen"):
            origins |= {alias.asname or alias.name: node.module or "" for alias in node.names}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            names = {inner.id for part in node.body for inner in ast.walk(part) if isinstance(inner, ast.Name)}
            yield len({origins[name] for name in names & origins.keys()})


def _homonyms(trees: dict[Path, ast.Module]) -> list[str]:
    """Return the names of several modules, classes or public functions; ``widen.types`` shows what others have."""
    places: dict[tuple[str, str], int] = defaultdict(int)
    for path, tree in trees.items():
        if path.name != "__init__.py" and path != PACKAGE / "types.py":
            places["module", path.stem] += 1
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places["class", node.name] += 1
            elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                places["function", node.name] += 1
    return [f"{kind} {name}" for (kind, name), count in sorted(places.items()) if count > 1]


if __name__ == "__main__":
    main()
