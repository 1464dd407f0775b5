"""docs/adding-a-type.md names every table that has a row for each type or kind, and what it leaves out."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from widen.json.kinds import KIND_WORDS
from widen.model import types

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "adding-a-type.md").read_text(encoding="utf-8")
TYPES_PART, KINDS_PART = PAGE.split("## What a value of the type is")
ROW = re.compile(r"^\| `(widen\.[\w.]+)\.(\w+)` \|[^|]*\|([^|]*)\|$", re.MULTILINE)

WITHOUT_VALUES = {"void", "variant"}
"""Types whose columns ingestion neither adds nor writes."""
TYPES = {each.name for each in vars(types).values() if isinstance(each, types.AtomicType)} - WITHOUT_VALUES | {
    "decimal"
}
KINDS = set(KIND_WORDS)
TABLES = [
    (module, name, known, set(re.findall(r"\w+", without)))
    for part, known in ((TYPES_PART, TYPES), (KINDS_PART, KINDS))
    for module, name, without in ROW.findall(part)
]


@pytest.mark.parametrize(("module", "name", "known", "without"), TABLES, ids=[row[1] for row in TABLES])
def test_a_table_has_a_row_for_each_type(module: str, name: str, known: set[str], without: set[str]) -> None:
    keys = getattr(import_module(module), name)
    words = {word for key in keys for word in (key if isinstance(key, tuple) else (key,))}
    assert words & known == known - without
    assert without <= known


def test_the_page_names_all_types_and_kinds() -> None:
    for part, known in ((TYPES_PART, TYPES), (KINDS_PART, KINDS)):
        sentence = next(line for line in re.split(r"\n\n", part) if line.startswith(("Types are", "Kinds are")))
        assert set(re.findall(r"`(\w+)`", sentence)) - {"long"} == known - {"long"}


def test_there_are_many_tables() -> None:
    assert len(TABLES) == PAGE.count("| `widen.") >= 17
