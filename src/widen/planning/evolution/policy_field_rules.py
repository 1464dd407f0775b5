"""How the values of each field are taken: as the table has shown, and as the policy says.

What a column shows needs not be said again: objects are maps where a column is a map, and values are texts where a
column was made for them as texts.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from widen.model.column_path import Path
from widen.model.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, ArrayType, DataType, MapType, StructType
from widen.observe.field_rules import PLAIN, FieldRule, FieldRules
from widen.planning.evolution.policy import Mode, Policy, TextForm
from widen.planning.evolution.source_metadata import FORM, role_of, source_key

_FIELD_RULE: Mapping[TextForm, FieldRule] = MappingProxyType(
    {TextForm.TEXT: FieldRule.AS_TEXT, TextForm.JSON: FieldRule.AS_JSON}
)
_DATED = (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def build_field_rules(schema: StructType, policy: Policy) -> FieldRules:
    """Return how the values of the records for a table are taken.

    Args:
        schema: Of the table, with the metadata of its columns.
        policy: What else was said.

    Source: docs/evolution-rules.md#d6, #d10, #d13
    """
    root = _RuleNode()
    for column in schema:
        if role_of(column) is None:
            _see_column(root.at((source_key(column),)), column.type, column.metadata.get(FORM))
    for source, pin in policy.pins.items():
        if isinstance(pin, TextForm):
            root.at(source).take = _FIELD_RULE[pin]
        elif not isinstance(pin, Mode):
            _see_pin(root.at(source), pin)
    for source in policy.dated:
        root.at(source).is_dated = True
    for sources, take in ((policy.masked, FieldRule.MASKED), (policy.left_out, FieldRule.LEFT_OUT)):
        for source in sources:
            root.at(source).take = take
    return root.reading(is_dated=False)


@dataclass(slots=True)
class _RuleNode:
    """A `FieldRules` that is being made."""

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
        found = FieldRules(self.take, self.maps, is_dated, kept)
        return PLAIN if found.is_plain else found


def _see_column(node: _RuleNode, data_type: DataType, form: object = None) -> None:
    if form is not None:
        node.take = _FIELD_RULE[TextForm(form)]
    leaf, maps = _inside(data_type)
    node.maps = max(node.maps, maps)
    for item in leaf if isinstance(leaf, StructType) else ():
        _see_column(node.at((source_key(item),)), item.type, item.metadata.get(FORM))


def _see_pin(node: _RuleNode, data_type: DataType) -> None:
    leaf, node.maps = _inside(data_type)
    node.is_dated = leaf in _DATED
    for item in leaf if isinstance(leaf, StructType) else ():
        _see_pin(node.at((item.name,)), item.type)


def _inside(data_type: DataType) -> tuple[DataType, int]:
    """Return what stands in the arrays and maps of a type, and how many maps there are; a record may be a key's."""
    match data_type:
        case ArrayType(element):
            return _inside(element)
        case MapType(key, value) if key == STRING:
            leaf, maps = _inside(value)
            return leaf, maps + 1
    return data_type, 0
