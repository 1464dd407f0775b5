"""Changes of existing columns other than their types: comment, nullability, default, length limit, position."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence

from widen.model.column_path import Path
from widen.model.types import Field
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table.column_change import CHANGED, MOVED, ColumnChange
from widen.planning.table.field_position import AfterField, StructEnd
from widen.protocol.column_metadata import HIGH_WATER_MARK, TEXT_LIMIT, find_default


def detail_changes(path: Path, old: Field, new: Field) -> Iterator[ColumnChange]:
    """Yield the changes of a field other than its type, name and position, with the old and new values."""
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
        "limit": str(field.metadata.get(TEXT_LIMIT, "string")),
        "mark": f"identity high water mark {field.metadata.get(HIGH_WATER_MARK, 'not set')}",
    }


def moves(positions: Iterable[tuple[Path, int]]) -> Iterator[ColumnChange]:
    """Yield the fields whose position among the existing fields of their struct changed.

    The smallest possible set of fields counts as moved; the others keep their relative order.

    Args:
        positions: The path of every field that existed before, in the order of the new schema, with its index in
            the old schema.
    """
    structs: dict[Path, list[tuple[Path, int]]] = {}
    for path, number in positions:
        structs.setdefault(path[:-1], []).append((path, number))
    for fields in structs.values():
        numbers = [number for _, number in fields]
        kept = set(numbers if numbers == sorted(numbers) else _longest_ordered(numbers))
        for index, (path, number) in enumerate(fields):
            if number not in kept:
                place = AfterField(fields[index - 1][0][-1]) if index else StructEnd.FIRST
                yield ColumnChange(MOVED, path, new=str(place))


def _longest_ordered(numbers: Sequence[int]) -> list[int]:
    """Return the longest increasing subsequence of distinct numbers.

    Example:
        >>> _longest_ordered([3, 1, 2, 4])
        [1, 2, 4]
    """
    ends: list[int] = []
    chains: list[list[int]] = []
    for number in numbers:
        index = bisect_left(ends, number)
        chain = [*(chains[index - 1] if index else []), number]
        ends[index : index + 1], chains[index : index + 1] = [number], [chain]
    return chains[-1] if chains else []
