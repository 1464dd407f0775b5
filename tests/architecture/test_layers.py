"""Who may import whom: the core knows no engine, and equal layers never see each other."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import CycleError, TopologicalSorter

import pytest

from architecture.source import PACKAGE, Function, imports, modules

# A plan is made from observations, so it stands above them, and the command line prints what the other faces make;
# nothing else of one stage sees another.
LAYERS = {
    "errors": 0,
    "limits": 0,
    "model": 1,
    "protocol": 2,
    "json": 3,
    "log": 3,
    "schema": 4,
    "evolution": 5,
    "rows": 6,
    "proof": 6,
    "iceberg": 6,
    "spark": 7,
    "sources": 8,
    "streams": 9,
    "files": 9,
    "frames": 10,
    "verification": 11,
    "batches": 12,
    "changes": 13,
    "report": 13,
    "targets": 15,
    "table": 15,
    "ingestion": 16,
    "sql_commands": 16,
    "data_source": 17,
    "flows": 17,
    "cli": 18,
    "types": 19,
    "__init__": 19,
    "__main__": 19,
}

FOREIGN = {
    "errors": set(),
    "limits": set(),
    "model": {"msgspec", "typing_extensions"},
    "protocol": {"msgspec"},
    "json": {"msgspec", "open_data_contract_standard", "yaml"},
    "schema": {"msgspec", "sqlglot"},
    "evolution": {"msgspec"},
    "rows": {"msgspec"},
    "proof": {"msgspec", "pyarrow"},
    "iceberg": {"msgspec", "obstore", "pyarrow", "pyiceberg", "pyroaring", "sqlalchemy", "sqlglot"},
    "log": {"msgspec", "obstore", "pyarrow", "pyroaring"},
    "spark": {"py4j", "pyarrow", "pyspark"},
    "sources": {"boto3", "botocore", "fastavro", "msgspec", "pyarrow", "python_calamine"},
    "streams": {"msgspec", "pyspark"},
    "files": {"msgspec", "pyarrow", "pyiceberg", "pyroaring", "pyspark", "sqlglot"},
    "frames": {"msgspec", "pyarrow", "pyiceberg", "pyroaring"},
    "verification": {"msgspec", "pyarrow"},
    "batches": {"msgspec", "pyarrow", "pyspark"},
    "changes": {"msgspec", "pyarrow", "pyiceberg", "pyroaring"},
    "data_source": {"msgspec", "pyarrow", "pyspark"},
    "targets": {"msgspec"},
    "table": {"msgspec", "pyarrow", "typing_extensions"},
    "ingestion": {"attr", "msgspec", "openlineage", "typing_extensions"},
    "flows": {"msgspec"},
    "sql_commands": {"lark", "pyarrow", "sqlglot"},
    "cli": {"jinja2", "msgspec", "pyarrow", "rich", "typer"},
    "report": {"jinja2", "msgspec", "pyarrow", "rich"},
    "types": {"msgspec", "sqlglot"},
    "__init__": set(),
    "__main__": set(),
}

PURE = ["model", "protocol", "json", "schema", "evolution", "rows"]
WITHOUT_SPARK = [*PURE, "log", "iceberg"]


def test_every_room_has_a_layer() -> None:
    assert {module.room for module in modules()} <= LAYERS.keys()
    assert LAYERS.keys() == FOREIGN.keys()


def test_imports_point_downwards() -> None:
    upwards = [
        f"{module.where(each.node)} imports {each.target}"
        for module in modules()
        for each in imports(module)
        if each.target.split(".")[0] == "widen"
        and _room(each.target) != module.room
        and LAYERS[_room(each.target)] >= LAYERS[module.room]
    ]
    assert upwards == []


def test_modules_form_no_cycle() -> None:
    names = {module.name for module in modules()}
    graph = {module.name: {each.target for each in imports(module)} & names - {module.name} for module in modules()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_foreign_packages_stay_in_their_rooms() -> None:
    strangers = [
        f"{module.where(each.node)} imports {each.target}"
        for module in modules()
        for each in imports(module)
        if (top := each.target.split(".")[0]) != "widen"
        and top not in sys.stdlib_module_names
        and top not in FOREIGN[module.room]
    ]
    assert strangers == []


@pytest.mark.parametrize("room", WITHOUT_SPARK)
def test_imports_where_other_packages_are_not_installed(room: str) -> None:
    names = [module.name for module in modules() if module.room == room]
    allowed = sorted(FOREIGN[room] - {"pyiceberg", "sqlalchemy"})  # an extra
    done = subprocess.run(
        [sys.executable, "-S", "-c", BLOCKED.format(paths=_paths(), allowed=allowed, names=names)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == names


BLOCKED = """
import importlib, sys
from importlib.abc import MetaPathFinder

sys.path[:0] = {paths}

class OnlyAllowed(MetaPathFinder):
    refused = {{"pyspark", "py4j", "pyarrow", "pandas", "numpy", "obstore", "pyroaring", "pyiceberg", "deltalake",
                "sqlglot", "lark", "typer", "rich", "jinja2", "msgspec"}} - set({allowed})
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.refused:
            raise ModuleNotFoundError("not installed here: " + name)

sys.meta_path.insert(0, OnlyAllowed())
for name in {names}:
    importlib.import_module(name)
    print(name)
"""


def _paths() -> list[str]:
    return [str(PACKAGE.parent), *(path for path in sys.path if path.endswith("-packages"))]


def _room(target: str) -> str:
    parts = target.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


def test_the_tools_see_what_they_should() -> None:
    """The checks above are worth nothing if the reader of the source is blind."""
    seen = {module.room for module in modules()}
    assert {"errors", "model", "protocol"} <= seen
    assert any(isinstance(node, Function) for module in modules() for node in ast.walk(module.tree))
    assert any(each.target == "widen.errors" for module in modules() for each in imports(module))


def test_an_ingestion_knows_no_format() -> None:
    """An ingestion asks a table only what `widen.targets.table_format` lists, so a format is a module and not an if."""
    targets = {"widen.targets", "widen.targets.table_format"}
    details = [
        f"{module.where(each.node)} imports {each.target}"
        for module in modules()
        if module.room == "ingestion"
        for each in imports(module)
        if _room(each.target) in {"log", "protocol"} or (_room(each.target) == "targets" and each.target not in targets)
    ]
    assert details == []
