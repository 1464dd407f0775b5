"""The field rules of an ingestion: how to read the values of each field, from the table and the policy.

A choice that a column shows need not be repeated in the policy: objects stay maps if the column is a map, and values
stay strings if the column was created for their text form.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace

from widen.model.column_path import Path, fold_path
from widen.model.types import (
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    similarity_key,
)
from widen.observe.field_rules import PLAIN, FieldRule, FieldRules
from widen.planning.evolution.file_fields import for_file_fields
from widen.planning.evolution.plan import Plan
from widen.planning.evolution.policy import ANY_MAP, Mode, Pin, Policy, TextForm
from widen.planning.evolution.source_metadata import EVOLVED_FROM, FORM, role_of, source_key
from widen.protocol.skipping.file_statistics import HIDDEN_FIELDS, NO_STATS, join_paths, split_paths

_FIELD_RULE: Mapping[TextForm, FieldRule] = {TextForm.TEXT: FieldRule.AS_TEXT, TextForm.JSON: FieldRule.AS_JSON}
_DATED = (DATE, TIMESTAMP)


def build_field_rules(schema: StructType, policy: Policy, *, keeps_forms: bool = False) -> FieldRules:
    """Return the field rules for a table and a policy.

    Args:
        policy: The policy; its rules take precedence.
        keeps_forms: Whether values that the table keeps as text stay values: for the text of a whole record.

    Source: docs/evolution-rules.md#d6, #d10, #d13
    """
    root = _RuleNode()
    for column in schema:
        if role_of(column) is None:
            _add_column_rules(root.at((source_key(column),)), column, keeps_forms=keeps_forms)
    for source, pin in policy.pins.items():
        if isinstance(pin, TextForm):
            root.at(source).take = FieldRule.AS_IS if keeps_forms else _FIELD_RULE[pin]
        elif not isinstance(pin, Mode):
            _add_pin_rules(root.at(source), pin)
    for source in policy.date_fields:
        root.at(source).is_dated = True
    for source in policy.local_time_fields:
        root.at(source).has_local_times = True
    # Masks and exclusions come last: no other rule may bring a hidden value back.
    hidden = _HiddenNode()
    for sources, take in ((policy.masked, FieldRule.MASKED), (policy.excluded, FieldRule.LEFT_OUT)):
        for source in sorted(sources):
            node = hidden.at(source)
            node.take, node.source = take, source
    return root.build(FieldRules(), hidden)


def privacy_properties(policy: Policy, plan: Plan, properties: Mapping[str, str]) -> dict[str, str]:
    """Return the table properties that record which fields are hidden, and which have no statistics.

    A later load knows these fields, also if it does not have them, and later writers write no statistics of them.

    Args:
        plan: The plan of the batch; a field that it does not match is not recorded.
        properties: The properties of the table.
    """
    unmatched = {each.source for each in plan.unmatched}
    hidden = (policy.masked | policy.excluded) - unmatched
    recorded = {}
    for key, sources in ((HIDDEN_FIELDS, hidden), (NO_STATS, policy.no_stats)):
        old = split_paths(properties.get(key, ""))
        known = set(map(fold_path, old))
        new = [source for source in sources if fold_path(source) not in known]
        if new:
            recorded[key] = join_paths((*old, *new))
    return recorded


def unseen_hidden_fields(policy: Policy, schema: StructType) -> frozenset[Path]:
    """Return the masked and excluded fields that no column shows: excluded ones, and those inside of maps and texts."""
    rules = build_field_rules(schema, replace(policy, masked=frozenset(), excluded=frozenset()))
    return policy.excluded | {source for source in policy.masked if _is_inside_closed(rules, source)}


def _is_inside_closed(rules: FieldRules, source: Path) -> bool:
    for key in source[:-1]:
        rules = next(
            (below for name, below in rules.below.items() if similarity_key(name) == similarity_key(key)), PLAIN
        )
        if rules.maps or rules.take is not FieldRule.AS_IS:
            return True
    return False


def with_time_fields(policy: Policy, schema: StructType) -> Policy:
    """Return a policy in which the fields whose main columns are dates or timestamps take ISO 8601 texts.

    Source: docs/evolution-rules.md#d6
    """
    return replace(
        policy,
        date_fields=policy.date_fields | {*_fields_of_types(schema, (DATE, TIMESTAMP), ())},
        local_time_fields=policy.local_time_fields | {*_fields_of_types(schema, (TIMESTAMP_NTZ,), ())},
    )


def _fields_of_types(schema: StructType, types: Collection[DataType] | None, above: Path) -> Iterator[Path]:
    """Yield the source fields whose main columns have one of some types, or any, inside their arrays and maps."""
    for column in schema:
        leaf, source = column.type, (*above, source_key(column))
        while isinstance(leaf, (ArrayType, MapType)):
            leaf = leaf.element if isinstance(leaf, ArrayType) else leaf.value
        if isinstance(leaf, StructType):
            yield from _fields_of_types(leaf, types, source)
        elif (types is None or leaf in types) and EVOLVED_FROM not in column.metadata:
            yield source


def build_typed_field_rules(schema: StructType, policy: Policy) -> FieldRules:
    """Return the field rules for a source with types: strings are read as dates only where a column takes dates.

    Dates are not detected: the type of the source decides about the first column of a field. In a column of numbers a
    date and a timestamp could not be told apart.

    Source: docs/evolution-rules.md#d6, #d16
    """
    fields = {*_fields_of_types(schema, None, ())}
    pins = {source: pin for source, pin in policy.pins.items() if source not in fields or not _is_temporal(pin)}
    declared = replace(policy, date_fields=frozenset(), local_time_fields=frozenset(), pins=pins)
    return build_field_rules(schema, for_file_fields(with_time_fields(declared, schema)))


def _is_temporal(pin: Pin) -> bool:
    return not isinstance(pin, (Mode, TextForm)) and _inside(pin)[0] in (*_DATED, TIMESTAMP_NTZ)


@dataclass(slots=True)
class _RuleNode:
    """A mutable tree of field rules, from which `FieldRules` are built."""

    take: FieldRule = FieldRule.AS_IS
    maps: int = 0
    is_dated: bool = False
    has_local_times: bool = False
    below: dict[str, _RuleNode] = field(default_factory=dict)

    def at(self, source: Path) -> _RuleNode:
        node = self
        for key in source:
            node = node.below.setdefault(key, _RuleNode())
        return node

    def build(self, above: FieldRules, hidden: _HiddenNode) -> FieldRules:
        """Return the rules of the node, given those that it inherits, and what is hidden here and below."""
        is_dated, has_local_times = self.is_dated or above.is_dated, self.has_local_times or above.has_local_times
        inherited = FieldRules(is_dated=is_dated, has_local_times=has_local_times)
        hidden_below = {name: _RuleNode().build(inherited, each) for name, each in hidden.below.items()}
        below = {
            key: node.build(inherited, hidden.below.get(similarity_key(key), _NOTHING_HIDDEN))
            for key, node in self.below.items()
        }
        kept = {key: each for key, each in below.items() if each != hidden_below.get(similarity_key(key), inherited)}
        take = hidden.take or self.take
        rules = FieldRules(take, self.maps, is_dated, has_local_times, kept, hidden_below, hidden.source)
        return PLAIN if rules.is_plain else rules


@dataclass(slots=True)
class _HiddenNode:
    """A tree of the masked and excluded fields, by folded names.

    Args:
        source: The field as the policy spells it.
    """

    take: FieldRule | None = None
    source: Path = ()
    below: dict[str, _HiddenNode] = field(default_factory=dict)

    def at(self, source: Path) -> _HiddenNode:
        node = self
        for key in source:
            node = node.below.setdefault(similarity_key(key), _HiddenNode())
        return node


_NOTHING_HIDDEN = _HiddenNode()


def _add_column_rules(node: _RuleNode, column: Field, *, keeps_forms: bool) -> None:
    form = column.metadata.get(FORM)
    if form is not None and not keeps_forms:
        node.take = _FIELD_RULE[TextForm(form)]
    leaf, maps = _inside(column.type)
    node.maps = max(node.maps, maps)
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_column_rules(node.at((source_key(item),)), item, keeps_forms=keeps_forms)


def _add_pin_rules(node: _RuleNode, data_type: DataType) -> None:
    leaf, maps = _inside(data_type)
    # The pin "map" says nothing of the values, so nested maps that the column already has stay maps.
    node.maps = max(node.maps, maps) if data_type == ANY_MAP else maps
    node.is_dated, node.has_local_times = leaf in _DATED, leaf == TIMESTAMP_NTZ
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
