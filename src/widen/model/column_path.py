"""Column paths: ``a.b.element.`x.y``` as the tuple ``("a", "b", "element", "x.y")``.

An array's items are called ``element``, a map's ``key`` and ``value``. Whether a part is such a step or the name of a
struct field is decided by the type it meets, never by the name.

Source: PROTOCOL.md#column-mapping (path tokens); Spark's ALTER TABLE for the quoting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from widen.errors import ArrayStepNotFound, ColumnNotFound, InvalidPath, MapStepNotFound, PathNotNested
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, quote_name

Path: TypeAlias = tuple[str, ...]
"""The parts of a column path."""

FieldChange: TypeAlias = Callable[[Path, Field], Field]
"""What `map_fields` applies to every field."""

ELEMENT, KEY, VALUE = "element", "key", "value"

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def parse_path(text: str) -> Path:
    """Return the parts of a column path.

    Args:
        text: Parts separated by dots; a part in back-ticks may hold anything, a back-tick doubled.

    Raises:
        InvalidPath: a part is empty or a quote is not closed.

    Source: Spark's multipart identifiers.

    Example:
        >>> parse_path("a.`x.y`.element")
        ('a', 'x.y', 'element')
    """
    parts: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        at = match.end()
        if at == len(text):
            return tuple(parts)
        if text[at] != ".":
            break
        at += 1
    raise InvalidPath(text=text, reason=f"a name is missing or a quote is open at position {at + 1}")


def format_path(path: Path) -> str:
    """Return the path as `parse_path` reads it.

    Example:
        >>> format_path(("a", "x.y"))
        'a.`x.y`'
    """
    return ".".join(quote_name(part) for part in path)


def children(data_type: DataType) -> tuple[tuple[str, DataType], ...]:
    """Return the steps below a type, each with the type it leads to; none below a leaf."""
    match data_type:
        case StructType(fields):
            return tuple((f.name, f.type) for f in fields)
        case ArrayType(element):
            return ((ELEMENT, element),)
        case MapType(key, value):
            return ((KEY, key), (VALUE, value))
    return ()


def leaves(data_type: DataType, at: Path = ()) -> Iterator[tuple[Path, DataType]]:
    """Yield the path and the type of every leaf, in the order of the schema."""
    below = children(data_type)
    if not below:
        yield at, data_type
    for step, child in below:
        yield from leaves(child, (*at, step))


def fields(data_type: DataType, at: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Yield the path of every struct field with the field, parents first; below arrays and maps too."""
    if isinstance(data_type, StructType):
        for item in data_type.fields:
            yield (*at, item.name), item
            yield from fields(item.type, (*at, item.name))
    else:
        for step, child in children(data_type):
            yield from fields(child, (*at, step))


def map_fields(schema: StructType, change: FieldChange) -> StructType:
    """Return the schema with every struct field, at any depth, replaced by what ``change(path, field)`` gives.

    Children are changed before the field that holds them, so ``change`` sees a field whose type is done.
    """
    result = _map_type(schema, change, ())
    assert isinstance(result, StructType)
    return result


def _map_type(data_type: DataType, change: FieldChange, at: Path) -> DataType:
    match data_type:
        case StructType(items):
            return StructType(
                tuple(change((*at, f.name), replace(f, type=_map_type(f.type, change, (*at, f.name)))) for f in items)
            )
        case ArrayType(element):
            return replace(data_type, element=_map_type(element, change, (*at, ELEMENT)))
        case MapType(key, value):
            return replace(
                data_type, key=_map_type(key, change, (*at, KEY)), value=_map_type(value, change, (*at, VALUE))
            )
    return data_type


def as_nullable(schema: StructType) -> StructType:
    """Return the schema with everything in it, at any depth, free to be null."""
    result = _as_nullable(schema)
    assert isinstance(result, StructType)
    return result


def _as_nullable(data_type: DataType) -> DataType:
    match data_type:
        case StructType(items):
            return StructType(tuple(replace(f, type=_as_nullable(f.type), nullable=True) for f in items))
        case ArrayType(element):
            return ArrayType(_as_nullable(element))
        case MapType(key, value):
            return MapType(_as_nullable(key), _as_nullable(value))
    return data_type


def resolve(schema: StructType, path: Path) -> tuple[Path, DataType]:
    """Return the path as the schema spells it, with the type found there.

    Args:
        schema: The schema to look in.
        path: Names are matched exactly first, then without case.

    Raises:
        ColumnNotFound: no such column; the error lists what there is.
    """
    found: list[str] = []
    current: DataType = schema
    for part in path:
        step = _step(current, part)
        if step is None:
            raise _MISSED.get(type(current), PathNotNested)(
                column=format_path(path), available=", ".join(quote_name(s) for s, _ in children(current)) or "nothing"
            )
        found.append(step[0])
        current = step[1]
    return tuple(found), current


_MISSED: Mapping[type[DataType], type[ColumnNotFound]] = {
    StructType: ColumnNotFound,
    ArrayType: ArrayStepNotFound,
    MapType: MapStepNotFound,
}


def is_struct_path(schema: StructType, path: Path) -> bool:
    """Tell whether nothing but structs leads to a place: it stands in no array and in no map.

    Raises:
        ColumnNotFound: the path leads nowhere.
    """
    return all(isinstance(resolve(schema, path[:end])[1], StructType) for end in range(len(path)))


def find_field(schema: StructType, path: Path) -> Field | None:
    """Return the struct field at a path, or None for items of arrays and maps.

    Raises:
        ColumnNotFound: the path to it leads nowhere.
    """
    parent = resolve(schema, path[:-1])[1]
    return parent.find(path[-1]) if isinstance(parent, StructType) else None


def nearest_field(schema: StructType, path: Path) -> Field:
    """Return the last struct field on a path: the column itself, or the one that holds it.

    Raises:
        ColumnNotFound: the path leads nowhere.
    """
    for end in range(len(path), 0, -1):
        if (found := find_field(schema, path[:end])) is not None:
            return found
    raise ColumnNotFound(column=format_path(path), available=", ".join(schema.names))


def _step(data_type: DataType, part: str) -> tuple[str, DataType] | None:
    if isinstance(data_type, StructType):
        found = data_type.find(part)
        return (found.name, found.type) if found else None
    below = children(data_type)
    return next(((step, child) for step, child in below if step == part.lower()), None)


def replace_type(schema: StructType, path: Path, new: DataType) -> StructType:
    """Return the schema with the type at ``path`` replaced; the path must be spelled as in the schema.

    Args:
        schema: The schema, or any struct.
        path: From there; where it is empty, ``new`` is a struct and stands for the whole.
        new: The type that comes in.

    Raises:
        ColumnNotFound: nothing is at the path.
    """
    result = _replace(schema, path, new)
    assert isinstance(result, StructType)
    return result


def _replace(data_type: DataType, path: Path, new: DataType) -> DataType:
    if not path:
        return new
    head, rest = path[0], path[1:]
    match data_type:
        case StructType(items):
            return StructType(
                tuple(replace(f, type=_replace(f.type, rest, new)) if f.name == head else f for f in items)
            )
        case ArrayType(element):
            return replace(data_type, element=_replace(element, rest, new))
        case MapType(key, value) if head == KEY:
            return replace(data_type, key=_replace(key, rest, new))
        case MapType(key, value):
            return replace(data_type, value=_replace(value, rest, new))
    raise ColumnNotFound(column=format_path(path), available="nothing")
