"""Operations from their JSON: what the form says is enough to make the same operation again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, get_args

from widen.model.schema_json import field_from_value, type_from_value
from widen.schema.operations import KIND, AfterField, FieldPosition, Operation, StructEnd


def operation_from_value(value: Mapping[str, Any]) -> Operation:
    """Return the operation that a JSON object holds."""
    kind = _KINDS[value[KIND]]
    return kind(**{item.name: _READERS.get(item.name, _same)(value[_key(item.name)]) for item in fields(kind)})


def _key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(map(str.title, others))


def _place(value: str | dict[str, str]) -> FieldPosition:
    return StructEnd(value) if isinstance(value, str) else AfterField(value["after"])


def _same(value: Any) -> Any:
    return value


_KINDS: Mapping[str, Any] = {kind.__name__: kind for kind in get_args(Operation)}
_READERS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(("schema", "old", "new"), type_from_value),
    **dict.fromkeys(("partition_by", "parent", "path"), tuple),
    "field": field_from_value,
    "place": _place,
}
