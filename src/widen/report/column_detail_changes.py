"""What a commit changed of columns that stay, apart from their types: comments, nullability, defaults, places."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from widen.model.column_path import Path
from widen.model.types import Field
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table.field_position import AfterField, StructEnd
from widen.protocol.column_metadata import HIGH_WATER_MARK, TEXT_LIMIT, find_default
from widen.report.report_model import CHANGED, MOVED, ColumnChange


def detail_changes(path: Path, old: Field, new: Field) -> Iterator[ColumnChange]:
    """Yield what changed of a field besides its type, its name and its place, each with how it was and how it is."""
    before, after = _details(old), _details(new)
    for key, text in after.items():
        if before[key] != text:
            yield ColumnChange(CHANGED, path, before[key], text)


def _details(field: Field) -> Mapping[str, str]:
    comment, default = field.metadata.get(COMMENT), find_default(field)
    return {
        "comment": "no comment" if comment is None else f"comment {str(comment)!r}",
        "nullable": "nullable" if field.nullable else "not null",
        "default": "no default" if default is None else f"default {default}",
        "limit": str(field.metadata.get(TEXT_LIMIT, "text of any length")),
        "mark": f"going on from {field.metadata.get(HIGH_WATER_MARK, 'its start')}",
    }


def moves(found: Iterable[tuple[Path, int]]) -> Iterator[ColumnChange]:
    """Yield the fields that stand at another place among those of their struct that were there before.

    As few as can be are said to have moved: the others stand in their old order.

    Args:
        found: The path of every field that was there before, in the order of the new schema, with its number in the
            order of the old one.
    """
    structs: dict[Path, list[tuple[Path, int]]] = {}
    for path, number in found:
        structs.setdefault(path[:-1], []).append((path, number))
    for fields in structs.values():
        numbers = [number for _, number in fields]
        kept = set(numbers if numbers == sorted(numbers) else _longest_ordered(numbers))
        for at, (path, number) in enumerate(fields):
            if number not in kept:
                place = AfterField(fields[at - 1][0][-1]) if at else StructEnd.FIRST
                yield ColumnChange(MOVED, path, new=str(place))


def _longest_ordered(numbers: Sequence[int]) -> list[int]:
    """Return the longest part of different numbers that is in order.

    Example:
        >>> _longest_ordered([3, 1, 2, 4])
        [1, 2, 4]
    """
    ends: list[int] = []
    chains: list[list[int]] = []
    for number in numbers:
        at = bisect_left(ends, number)
        chain = [*(chains[at - 1] if at else []), number]
        ends[at : at + 1], chains[at : at + 1] = [number], [chain]
    return chains[-1] if chains else []
