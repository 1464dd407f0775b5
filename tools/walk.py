"""How far one reads to follow a call: the modules of Widen that it enters, and how often it changes between them.

Functions of this process are counted, not those of tasks; everything is imported before. ``make house`` prints the
numbers; no test fails on them.
"""

from __future__ import annotations

import ast
import pkgutil
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

import widen

PACKAGE = Path(widen.__file__).parent
SMALL = ("rows", "evolution", "proof", "log/commit", "spark/write", "spark/dml")


def walk(call: Callable[[], object]) -> str:
    """Return how often a call changes the module, and how many modules and functions it enters."""
    stays, modules, functions = 0, [""], set()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        nonlocal stays
        path = frame.f_code.co_filename
        if event != "call" or not path.startswith(str(PACKAGE)):
            return
        functions.add((path, frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name))
        if modules[-1] != path:
            modules.append(path)
            stays += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return f"{stays} stays, {len({*modules[1:]})} modules, {len(functions)} functions"


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
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "__init__.py"]
    texts = {path: path.read_text(encoding="utf-8").splitlines() for path in files}
    lines = sorted(len(text) for text in texts.values())
    heads = sum(_head(path) for path in files)
    print(f"{len(files)} modules, {statistics.median(lines):.0f} lines in the median, {sum(lines)} in all", end=", ")
    print(f"{100 * heads / sum(lines):.1f} % imports and docstrings of modules")
    for part in SMALL:
        chosen = [text for path, text in texts.items() if str(path.relative_to(PACKAGE)).startswith(part)]
        count = sum(line.lstrip().startswith("#") for text in chosen for line in text)
        print(f"{part}: {100 * count / sum(map(len, chosen)):.1f} % comments")


def _head(path: Path) -> int:
    """Return how many lines of a module are imports and its docstring."""
    body = ast.parse(path.read_text(encoding="utf-8")).body
    first = [body[0]] if body and isinstance(body[0], ast.Expr) else []
    imports = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in (*first, *imports))


if __name__ == "__main__":
    main()
