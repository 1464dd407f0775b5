"""Column paths: ``a.b.element.`x.y``` as the tuple ``("a", "b", "element", "x.y")``.

The elements of an array are called ``element``, the keys and values of a map ``key`` and ``value``. Whether a part is
such a step or the name of a struct field depends on the type at that level, never on the name.

Source: PROTOCOL.md#column-mapping (path tokens); Spark's ALTER TABLE for the quoting.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from widen.errors import ArrayStepNotFound, ColumnNotFound, InvalidPath, MapStepNotFound, PathNotNested
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, is_atomic, quote_name, similarity_key

Path: TypeAlias = tuple[str, ...]
"""The parts of a column path."""

FieldChange: TypeAlias = Callable[[Path, Field], Field]
"""Returns the new form of the field at a path; `map_fields` calls it for every field."""

ELEMENT, KEY, VALUE = "element", "key", "value"

_PART = re.compile(r"`((?:[^`]|``)+)`|([^.`]+)")


def fold_path(path: Path) -> Path:
    """Return the path with names that are equal for any two that a reader may take for one; see `similarity_key`."""
    return tuple(map(similarity_key, path))


def parse_path(text: str) -> Path:
    """Return the parts of a column path.

    Args:
        text: Parts separated by dots. A part in backticks may contain any character; a backtick in it is doubled.

    Raises:
        InvalidPath: a part is empty, or a backtick is not closed.

    Source: Spark's multipart identifiers.

    Example:
        >>> parse_path("a.`x.y`.element")
        ('a', 'x.y', 'element')
    """
    parts: list[str] = []
    position = 0
    while match := _PART.match(text, position):
        parts.append(match[1].replace("``", "`") if match[1] else match[2])
        position = match.end()
        if position == len(text):
            return tuple(parts)
        if text[position] != ".":
            break
        position += 1
    raise InvalidPath(text=text, reason=f"a name is missing or a backtick is not closed at position {position + 1}")


def format_path(path: Path) -> str:
    """Return the path as text, in the syntax of `parse_path`.

    Example:
        >>> format_path(("a", "x.y"))
        'a.`x.y`'
    """
    return ".".join(quote_name(part) for part in path)


def children(data_type: DataType) -> tuple[tuple[str, DataType], ...]:
    """Return the names and types directly below a type; none for a leaf."""
    match data_type:
        case StructType(fields):
            return tuple((f.name, f.type) for f in fields)
        case ArrayType(element):
            return ((ELEMENT, element),)
        case MapType(key, value):
            return ((KEY, key), (VALUE, value))
    return ()


def map_children(data_type: DataType, change: Callable[[str, DataType], DataType]) -> DataType:
    """Return the type with each of its `children` replaced by ``change(step, child)``; a leaf as it is."""
    match data_type:
        case StructType(items):
            # Wide schemas are mapped often, and few of their fields change: the others are not copied.
            pairs = ((f, change(f.name, f.type)) for f in items)
            return StructType(tuple(f if f.type is new else replace(f, type=new) for f, new in pairs))
        case ArrayType(element):
            return replace(data_type, element=change(ELEMENT, element))
        case MapType(key, value):
            return replace(data_type, key=change(KEY, key), value=change(VALUE, value))
    return data_type


def leaves(data_type: DataType, prefix: Path = ()) -> Iterator[tuple[Path, DataType]]:
    """Yield the path and the type of every leaf, in schema order."""
    nested = children(data_type)
    if not nested:
        yield prefix, data_type
    for step, child in nested:
        yield from leaves(child, (*prefix, step))


def fields(data_type: DataType, prefix: Path = ()) -> Iterator[tuple[Path, Field]]:
    """Yield every struct field with its path, parents first, including those inside arrays and maps."""
    if isinstance(data_type, StructType):
        for item in data_type.fields:
            yield (*prefix, item.name), item
            yield from fields(item.type, (*prefix, item.name))
    else:
        for step, child in children(data_type):
            yield from fields(child, (*prefix, step))


def map_fields(schema: StructType, change: FieldChange) -> StructType:
    """Return the schema with every struct field, at any depth, replaced by ``change(path, field)``.

    Nested fields are changed before their parent, so ``change`` gets a field whose type is already changed.
    """
    result = _map_type(schema, change, ())
    assert isinstance(result, StructType)
    return result


def _map_type(data_type: DataType, change: FieldChange, prefix: Path) -> DataType:
    mapped = map_children(data_type, lambda step, child: _map_type(child, change, (*prefix, step)))
    if isinstance(mapped, StructType):
        return StructType(tuple(change((*prefix, field.name), field) for field in mapped))
    return mapped


def as_nullable(schema: StructType) -> StructType:
    """Return the schema with every field, element and value nullable, at any depth."""
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
    """Return the path in the spelling of the schema, and the type at that path.

    Args:
        path: Names are matched exactly first, then without case.
    """
    spelled: list[str] = []
    current: DataType = schema
    for part in path:
        step = _step(current, part)
        if step is None:
            raise _NOT_FOUND.get(type(current), PathNotNested)(
                column=format_path(path), available=", ".join(quote_name(s) for s, _ in children(current)) or "nothing"
            )
        spelled.append(step[0])
        current = step[1]
    return tuple(spelled), current


_NOT_FOUND: Mapping[type[DataType], type[ColumnNotFound]] = {
    StructType: ColumnNotFound,
    ArrayType: ArrayStepNotFound,
    MapType: MapStepNotFound,
}


def is_struct_path(schema: StructType, path: Path) -> bool:
    """Return whether a path only goes through structs, not through arrays or maps."""
    return all(isinstance(resolve(schema, path[:end])[1], StructType) for end in range(len(path)))


def find_field(schema: StructType, path: Path) -> Field | None:
    """Return the struct field at a path, or None for array elements, map keys and map values."""
    parent = resolve(schema, path[:-1])[1]
    return parent.find(path[-1]) if isinstance(parent, StructType) else None


def nearest_field(schema: StructType, path: Path) -> Field:
    """Return the last struct field on a path: the column itself, or the field that contains the element, key or value.

    Raises:
        ColumnNotFound: the column does not exist.
    """
    for end in range(len(path), 0, -1):
        if (field := find_field(schema, path[:end])) is not None:
            return field
    raise ColumnNotFound(column=format_path(path), available=", ".join(schema.names))


def _step(data_type: DataType, part: str) -> tuple[str, DataType] | None:
    if isinstance(data_type, StructType):
        field = data_type.find(part)
        return (field.name, field.type) if field else None
    return next(((step, child) for step, child in children(data_type) if step == part.lower()), None)


def replace_type(schema: StructType, path: Path, new: DataType) -> StructType:
    """Return the schema with the type at ``path`` replaced; the path must be spelled as in the schema.

    Args:
        path: Relative to ``schema``. If it is empty, ``new`` must be a struct and replaces the whole schema.
    """
    result = _replace(schema, path, new)
    assert isinstance(result, StructType)
    return result


def _replace(data_type: DataType, path: Path, new: DataType) -> DataType:
    if not path:
        return new
    if is_atomic(data_type):
        raise ColumnNotFound(column=format_path(path), available="nothing")
    if isinstance(data_type, StructType):
        # Only the one field is looked at, so that a change of every column of a wide table stays fast.
        names, items = [field.name for field in data_type.fields], data_type.fields
        if path[0] not in names:
            return data_type
        at = names.index(path[0])
        changed = replace(items[at], type=_replace(items[at].type, path[1:], new))
        return StructType((*items[:at], changed, *items[at + 1 :]))
    return map_children(data_type, lambda step, child: _replace(child, path[1:], new) if step == path[0] else child)
