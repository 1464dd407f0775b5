"""Names that some reader may take for one: every code point whose lower, upper, title or folded forms meet another."""

from __future__ import annotations

import json
import os
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

NAMES_IN_A_TABLE = 120

_SURROGATES = range(0xD800, 0xE000)


def forms(text: str) -> set[str]:
    """The forms of a text that differ from it in case only."""
    return {text.lower(), text.upper(), text.title(), text.casefold(), text.swapcase()}


@cache
def similar_groups() -> list[list[str]]:
    """Groups of names, each similar to another of its group: all of them, or a part with every kind of oddity."""
    parent: dict[str, str] = {}

    def root(text: str) -> str:
        while parent.setdefault(text, text) != text:
            text = parent[text]
        return text

    for point in range(sys.maxunicode + 1):
        if point not in _SURROGATES:
            char = chr(point)
            for form in forms(char) - {char}:
                parent[root(form)] = root(char)
    parent[root("i")] = root("\u0131")
    groups = defaultdict(list)
    for text in sorted(parent):
        groups[root(text)].append(text)
    found = sorted(groups.values())
    if os.environ.get("WIDEN_TEST_ALL_NAMES"):
        return found
    odd = [group for group in found if len(group) > 2 or any(len(text) > 1 for text in group)]
    return odd[::4] + [group for group in odd if {"i", "ss", "s", "k", "\u03c3", "\ufb01", "\u01f0"} & set(group)]


def batches() -> Iterator[tuple[list[str], list[str]]]:
    """Names for two batches: the first of some groups of similar names, and the rest of these."""
    first: list[str] = []
    rest: list[str] = []
    for group in similar_groups():
        first.append("n" + group[0])
        rest += ["n" + name for name in group[1:]]
        if len(first) + len(rest) >= NAMES_IN_A_TABLE:
            yield first, rest
            first, rest = [], []
    if first:
        yield first, rest


def write_batches(folder: Path) -> Iterator[list[str]]:
    """Write two files for each table, with a field of every name in the record and in a struct; yield their paths."""
    for at, names in enumerate(batches()):
        paths = []
        for part, keys in enumerate(names):
            record = {key: f"{part}-{number}" for number, key in enumerate(keys)}
            paths.append(str(folder / f"{at}-{part}.jsonl"))
            Path(paths[-1]).write_text(json.dumps({**record, "r": record}, ensure_ascii=False) + "\n")
        yield paths


def expected(paths: list[str]) -> list[str]:
    """Every value of the batches, at the top and in the struct."""
    return sorted(value for path in paths for value in json.loads(Path(path).read_text())["r"].values())


def values(rows: Sequence[Any]) -> list[str]:
    """The values at the top, which must be those of the struct."""
    top = sorted(value for row in rows for value in row if isinstance(value, str))
    inner = sorted(value for row in rows for value in (row["r"] or ()) if isinstance(value, str))
    assert top == inner
    return top
