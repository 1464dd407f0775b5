"""The law of the history of types: whatever is done to columns, each field has exactly the changes of its own leaves.

The model below knows nothing of schemas: it is a tree in which every field carries its history about with it.

Source: PROTOCOL.md#type-change-metadata
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.state import MAPPED, WIDE, after, state
from widen.model.schema_json import parse_type
from widen.schema.alter import (
    parse_column_changes,
    parse_drops,
    parse_new_columns,
    parse_rename,
    parse_replacement,
    plan_alter,
)
from widen.schema.growth import grow_schema, schema_change_options
from widen.schema.operations import Operation
from widen.schema.source_metadata import AutomaticWidening
from widen.schema.table_state import TableState

PROPERTIES = {**MAPPED, **WIDE, "delta.feature.timestampNtz": "supported"}
START = (
    "key tinyint, s struct<element: smallint, value: array<map<tinyint, float>>>, "
    "m map<struct<k: date>, array<struct<x: decimal(5,2), y: int>>>, a array<array<tinyint>>"
)
WIDER = {
    "byte": "short",
    "short": "integer",
    "integer": "long",
    "long": "decimal(20,0)",
    "decimal(20,0)": "decimal(22,1)",
    "decimal(5,2)": "decimal(8,4)",
    "float": "double",
    "date": "timestamp_ntz",
}
NEW = ["tinyint", "array<date>", "struct<key: smallint, x: map<tinyint, struct<x: float>>>"]
NAMES = ["key", "value", "element", "x", "a", "b.c", "Ä"]


@dataclass
class Node:
    """A leaf by its type, a struct by its fields, or an array or a map by its items."""

    type: str
    members: list[Member] = field(default_factory=list)
    items: dict[str, Node] = field(default_factory=dict)


@dataclass
class Member:
    """A field, with the history that goes where it goes."""

    name: str
    node: Node
    history: list[dict[str, Any]] = field(default_factory=list)


def grown(value: Any) -> Node:
    """The tree of a type in schema JSON."""
    if isinstance(value, str):
        return Node(value)
    members = [Member(each["name"], grown(each["type"])) for each in value.get("fields", ())]
    keys = {"element": "elementType", "key": "keyType", "value": "valueType"}
    return Node(value["type"], members, {step: grown(value[key]) for step, key in keys.items() if key in value})


def said(node: Node) -> Any:
    """What a schema says of a tree."""
    if node.type == "struct":
        return [(member.name, said(member.node), member.history) for member in node.members]
    return {step: said(item) for step, item in node.items.items()} or node.type


def shown(value: Any) -> Any:
    """The same of a type in schema JSON."""
    if isinstance(value, str):
        return value
    if "fields" in value:
        return [(f["name"], shown(f["type"]), f["metadata"].get("delta.typeChanges", [])) for f in value["fields"]]
    keys = {"element": "elementType", "key": "keyType", "value": "valueType"}
    return {step: shown(value[key]) for step, key in keys.items() if key in value}


def leaves(
    node: Node, at: tuple[str, ...] = (), owner: Member | None = None, inside: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Node, Member, tuple[str, ...]]]:
    """Every leaf with its path, the field nearest to it, and the steps from there."""
    for member in node.members:
        yield from leaves(member.node, (*at, member.name), member, ())
    for step, item in node.items.items():
        yield from leaves(item, (*at, step), owner, (*inside, step))
    if owner is not None and not node.members and not node.items:
        yield at, node, owner, inside


def structs(node: Node, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Node]]:
    """Every struct with its path."""
    if node.type == "struct":
        yield at, node
    for step, inner in [*((member.name, member.node) for member in node.members), *node.items.items()]:
        yield from structs(inner, (*at, step))


def free_name(struct: Node, pick: int) -> str | None:
    taken = {member.name.casefold() for member in struct.members}
    free = [name for name in NAMES if name.casefold() not in taken]
    return free[pick % len(free)] if free else None


def widen(root: Node, table: TableState, picks: tuple[int, int, int], version: int | None) -> TableState:
    able = [found for found in leaves(root) if found[1].type in WIDER]
    if not able:
        return table
    path, leaf, owner, steps = able[picks[0] % len(able)]
    entry: dict[str, Any] = {"fromType": leaf.type, "toType": WIDER[leaf.type]}
    entry |= {"fieldPath": ".".join(steps)} if steps else {}
    owner.history.append(entry | ({} if version is None else {"tableVersion": version}))
    leaf.type = WIDER[leaf.type]
    way = picks[1] % 3
    if way == 0:
        return changed(table, parse_column_changes(table.schema, {path: {"type": parse_type(leaf.type)}}))
    if way == 1:
        return grown_by_a_write(table, root)
    return changed(table, parse_replacement(parse_type(f"struct<{sql(root)}>")))  # type: ignore[arg-type]


def changed(table: TableState, operations: tuple[Operation, ...]) -> TableState:
    change = plan_alter(table, operations)
    return table if change is None else after(table, change)


def grown_by_a_write(table: TableState, root: Node) -> TableState:
    options = schema_change_options(table, merge_schema=True, widening=AutomaticWidening.ALWAYS, cast=False)
    metadata = grow_schema(table, parse_type(f"struct<{sql(root)}>"), options).metadata  # type: ignore[arg-type]
    return replace(table, version=table.version + 1, metadata=metadata)


def sql(node: Node) -> str:
    return ", ".join(f"`{member.name}`: {sql_type(member.node)}" for member in node.members)


def sql_type(node: Node) -> str:
    if node.type == "struct":
        return f"struct<{sql(node)}>"
    items = ", ".join(map(sql_type, node.items.values()))
    return f"{node.type}<{items}>" if items else node.type


def rename(root: Node, table: TableState, picks: tuple[int, int, int], _: int | None) -> TableState:
    at, struct, member = chosen(root, picks)
    name = free_name(struct, picks[2])
    if name is None:
        return table
    old, member.name = member.name, name
    return changed(table, parse_rename(table.schema, (*at, old), name))


def move(root: Node, table: TableState, picks: tuple[int, int, int], _: int | None) -> TableState:
    at, struct, member = chosen(root, picks)
    struct.members.remove(member)
    place = picks[2] % (len(struct.members) + 1)
    wanted: dict[str, Any] = {"after": struct.members[place - 1].name} if place else {"first": True}
    struct.members.insert(place, member)
    return changed(table, parse_column_changes(table.schema, {(*at, member.name): wanted}))  # type: ignore[dict-item]


def drop(root: Node, table: TableState, picks: tuple[int, int, int], _: int | None) -> TableState:
    at, struct, member = chosen(root, picks)
    if len(struct.members) == 1:
        return table
    struct.members.remove(member)
    return changed(table, parse_drops(table.schema, [(*at, member.name)], if_exists=False))


def add(root: Node, table: TableState, picks: tuple[int, int, int], _: int | None) -> TableState:
    at, struct, _member = chosen(root, picks)
    name, kind = free_name(struct, picks[1]), NEW[picks[2] % len(NEW)]
    if name is None:
        return table
    struct.members.append(Member(name, grown(json.loads(json_of(kind)))))
    return changed(table, parse_new_columns(table.schema, {(*at, name): kind}))


def json_of(kind: str) -> str:
    """The schema JSON of one of `NEW`, as the table that is made of it says it."""
    (only,) = json.loads(state(f"a {kind}").metadata.schema_string)["fields"]
    return json.dumps(only["type"])


def chosen(root: Node, picks: tuple[int, int, int]) -> tuple[tuple[str, ...], Node, Member]:
    found = list(structs(root))
    at, struct = found[picks[0] % len(found)]
    return at, struct, struct.members[picks[1] % len(struct.members)]


KINDS = (widen, widen, rename, move, drop, add)
picks = st.integers(0, 99)
steps = st.lists(st.tuples(st.sampled_from(KINDS), st.tuples(picks, picks, picks)), max_size=12)


@given(steps, st.booleans())
def test_each_field_has_the_history_of_its_own_leaves(chain: list[Any], is_preview: bool) -> None:
    preview = {"delta.feature.typeWidening-preview": "supported"} if is_preview else {}
    table = state(START, {**PROPERTIES, **preview})
    root = grown(json.loads(table.metadata.schema_string))
    for kind, drawn in chain:
        table = kind(root, table, drawn, table.version + 1 if is_preview else None)
        assert shown(json.loads(table.metadata.schema_string)) == said(root)
