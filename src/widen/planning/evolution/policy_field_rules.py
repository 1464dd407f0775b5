"""The field rules of an ingestion: how to read the values of each field, from the table and the policy.

A choice that a column shows need not be repeated in the policy: objects stay maps if the column is a map, and values
stay strings if the column was created for their text form.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from widen.model.column_path import Path
from widen.model.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, ArrayType, DataType, MapType, StructType
from widen.observe.field_rules import PLAIN, FieldRule, FieldRules
from widen.planning.evolution.policy import ANY_MAP, Mode, Policy, TextForm
from widen.planning.evolution.source_metadata import FORM, role_of, source_key

_FIELD_RULE: Mapping[TextForm, FieldRule] = MappingProxyType(
    {TextForm.TEXT: FieldRule.AS_TEXT, TextForm.JSON: FieldRule.AS_JSON}
)
_DATED = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def build_field_rules(schema: StructType, policy: Policy) -> FieldRules:
    """Return the field rules for a table and a policy.

    Args:
        schema: The schema of the table, with the metadata of its columns.
        policy: The policy; its rules take precedence.

    Source: docs/evolution-rules.md#d6, #d10, #d13
    """
    root = _RuleNode()
    for column in schema:
        if role_of(column) is None:
            _add_column_rules(root.at((source_key(column),)), column.type, column.metadata.get(FORM))
    for source, pin in policy.pins.items():
        if isinstance(pin, TextForm):
            root.at(source).take = _FIELD_RULE[pin]
        elif not isinstance(pin, Mode):
            _add_pin_rules(root.at(source), pin)
    for source in policy.date_fields:
        root.at(source).is_dated = True
    for sources, take in ((policy.masked, FieldRule.MASKED), (policy.excluded, FieldRule.LEFT_OUT)):
        for source in sources:
            root.at(source).take = take
    return root.reading(is_dated=False)


@dataclass(slots=True)
class _RuleNode:
    """A mutable tree of field rules, from which `FieldRules` are built."""

    take: FieldRule = FieldRule.AS_IS
    maps: int = 0
    is_dated: bool = False
    below: dict[str, _RuleNode] = field(default_factory=dict)

    def at(self, source: Path) -> _RuleNode:
        node = self
        for key in source:
            node = node.below.setdefault(key, _RuleNode())
        return node

    def reading(self, *, is_dated: bool) -> FieldRules:
        is_dated = is_dated or self.is_dated
        below = {key: node.reading(is_dated=is_dated) for key, node in self.below.items()}
        kept = {key: each for key, each in below.items() if each != FieldRules(is_dated=is_dated)}
        rules = FieldRules(self.take, self.maps, is_dated, kept)
        return PLAIN if rules.is_plain else rules


def _add_column_rules(node: _RuleNode, data_type: DataType, form: object = None) -> None:
    if form is not None:
        node.take = _FIELD_RULE[TextForm(form)]
    leaf, maps = _inside(data_type)
    node.maps = max(node.maps, maps)
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_column_rules(node.at((source_key(item),)), item.type, item.metadata.get(FORM))


def _add_pin_rules(node: _RuleNode, data_type: DataType) -> None:
    leaf, maps = _inside(data_type)
    node.maps = max(node.maps, maps) if data_type == ANY_MAP else maps
    node.is_dated = leaf in _DATED
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_pin_rules(node.at((item.name,)), item.type)


def _inside(data_type: DataType) -> tuple[DataType, int]:
    """Return the type inside the arrays and maps of a type, and the number of maps with string keys."""
    match data_type:
        case ArrayType(element):
            return _inside(element)
        case MapType(key, value) if key == STRING:
            leaf, maps = _inside(value)
            return leaf, maps + 1
    return data_type, 0
