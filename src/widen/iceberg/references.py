"""Branches and tags, partition specifications and sort orders of an Iceberg table, each changed in one commit.

Source: Iceberg's table specification, "Snapshot References", "Partition Evolution", "Sorting"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from widen.errors import InvalidOption
from widen.iceberg.catalog import TableName
from widen.iceberg.partitions import (
    PartitionField,
    ensure_transformable,
    parse_partition_by,
    parse_sort_keys,
    read_partition_fields,
    read_sort_keys,
)
from widen.iceberg.properties import branch_prefix, stream_mark
from widen.iceberg.schema_conversion import find_unreadable, to_whole
from widen.iceberg.snapshots import MAIN_BRANCH, SnapshotReference, ancestors, find_read_point, marks_of_branch
from widen.iceberg.table_commit import commit_metadata, reference_ages
from widen.model.column_path import format_path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import is_atomic
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata

snapshot_updates = import_lazily("pyiceberg.table.update.snapshot")
ice_sorting = import_lazily("pyiceberg.table.sorting")
ice_transforms = import_lazily("pyiceberg.transforms")

BRANCH, TAG = "branch", "tag"
_HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Reference:
    """A branch or a tag of a table.

    Args:
        kind: ``branch`` or ``tag``.
        keep_hours: How long the reference itself is kept; None for the default of the table, which is for ever.
    """

    name: str
    kind: str
    version: int
    keep_hours: float | None = None


def list_references(metadata: TableMetadata) -> list[Reference]:
    """Return the branches and tags of a table, the main branch first, the others by their names."""
    found = [
        Reference(
            name,
            str(each.snapshot_ref_type.value),
            each.snapshot_id,
            None if each.max_ref_age_ms is None else each.max_ref_age_ms / _HOUR_MS,
        )
        for name, each in metadata.refs.items()
    ]
    return sorted(found, key=lambda each: (each.name != MAIN_BRANCH, each.name))


def create_reference(
    name: TableName, kind: str, label: str, wanted: SnapshotReference, keep_hours: float | None
) -> Table:
    """Create a branch or a tag, and return the newest version of the table.

    Args:
        label: The name of the branch or the tag.

    Raises:
        InvalidOption: the name is taken or cannot be used, the table has no snapshot, or the time is not positive.
    """
    table = name.load()
    metadata = table.metadata
    taken = metadata.refs.get(label)
    if not label.strip() or taken is not None:
        expected = (
            "Must be a name." if taken is None else f"The table has a {taken.snapshot_ref_type.value} of that name."
        )
        raise InvalidOption(option=kind, value=label, expected=expected)
    if keep_hours is not None and not 0 < keep_hours < float("inf"):
        raise InvalidOption(option="keep_hours", value=keep_hours, expected="Must be a number of hours > 0.")
    snapshot = find_read_point(metadata, wanted).snapshot
    if snapshot is None:
        raise InvalidOption(option=kind, value=label, expected="The table has no snapshot yet. Write rows first.")
    number, age_ms = snapshot.snapshot_id, None if keep_hours is None else max(1, round(keep_hours * _HOUR_MS))

    def change(transaction: Transaction) -> None:
        create = snapshot_updates.ManageSnapshots(transaction)
        (create.create_branch if kind == BRANCH else create.create_tag)(number, label, max_ref_age_ms=age_ms).commit()

    return commit_metadata(name, table, change, lambda new: label in new.refs and new.refs[label].snapshot_id == number)


def drop_reference(name: TableName, kind: str, label: str) -> Table:
    """Drop a branch or a tag, and return the newest version of the table; its snapshots stay until they expire.

    Raises:
        InvalidOption: it is the main branch.
    """
    table = name.load()
    if label == MAIN_BRANCH:
        raise InvalidOption(option=kind, value=label, expected="The main branch of a table cannot be dropped.")
    find_read_point(table.metadata, _named(kind, label))

    own = [key for key in table.properties if key.startswith(branch_prefix(label))] if kind == BRANCH else []

    def change(transaction: Transaction) -> None:
        snapshot_updates.ManageSnapshots(transaction)._remove_ref_snapshot(label).commit()
        if own:  # a branch of the same name begins anew
            transaction.remove_properties(*own)

    return commit_metadata(name, table, change, lambda new: label not in new.refs)


def _named(kind: str, label: str) -> SnapshotReference:
    return SnapshotReference(branch=label) if kind == BRANCH else SnapshotReference(tag=label)


def fast_forward(name: TableName, branch: str, source: str) -> Table:
    """Move a branch to the snapshot of another one that comes after it, and return the newest version of the table.

    Raises:
        InvalidOption: the branch has snapshots that the other one does not have.
    """
    table = name.load()
    metadata = table.metadata
    old, new = (find_read_point(metadata, SnapshotReference(branch=each)).snapshot for each in (branch, source))
    assert old is not None
    assert new is not None
    if old.snapshot_id not in {each.snapshot_id for each in ancestors(metadata, new)}:
        expected = f"It has snapshots that {source} does not have, or they have expired. Write its rows again instead."
        raise InvalidOption(option="branch", value=branch, expected=expected)
    if old.snapshot_id == new.snapshot_id:
        return table
    number, target = new.snapshot_id, None if branch == MAIN_BRANCH else branch
    # What the other branch has loaded, this one has loaded now.
    marks = {} if source == MAIN_BRANCH else marks_of_branch(table, source)
    moved = {key: value for app_id, last in marks.items() for key, value in stream_mark(app_id, last, target).items()}

    def change(transaction: Transaction) -> None:
        transaction._stage(
            *transaction._set_ref_snapshot(
                snapshot_id=number, ref_name=branch, type=BRANCH, **reference_ages(metadata, branch)
            )
        )
        if moved:
            transaction.set_properties(moved)

    return commit_metadata(name, table, change, lambda each: each.refs[branch].snapshot_id == number)


# Partition specifications and sort orders: files that exist keep theirs.


def change_partitioning(name: TableName, add: Sequence[str], drop: Sequence[str]) -> Table:
    """Drop and add partition fields in one commit, and return the newest version of the table.

    Args:
        add: Columns and calls of transforms, e.g. ``day(placed_at)``.
        drop: The same, or the names of partition fields.

    Raises:
        InvalidOption: a text is neither, there is no such field, or the table is partitioned by it already.
    """
    table = name.load()
    metadata = table.metadata
    schema, current = to_whole(metadata.schema()), read_partition_fields(metadata)
    left_out = find_unreadable(metadata.schema())
    wanted = []
    for each in parse_partition_by(add):
        column, data_type = resolve(schema, each.source)
        left_out.ensure_has(column)
        ensure_transformable(each, data_type)
        wanted.append(PartitionField("", column, each.transform, each.size))
    dropped = [_find_field(current, text) for text in drop]
    left = {each.key for each in current if each not in dropped}
    for field in wanted:
        if field.key in left:
            raise InvalidOption(option="add", value=str(field), expected="The table is already partitioned by it.")
        left.add(field.key)

    def change(transaction: Transaction) -> None:
        update = transaction.update_spec()
        try:
            for field in dropped:
                update.remove_field(field.name)
            for field in wanted:
                transform = f"{field.transform}[{field.size}]" if field.size else field.transform
                update.add_field(".".join(field.source), transform)
            update.commit()
        except ValueError as error:  # PyIceberg's rules of names and pairs
            raise InvalidOption(option="add", value=", ".join(add), expected=f"PyIceberg says: {error}.") from error

    goal = {each.key for each in current if each not in dropped} | {each.key for each in wanted}

    def has_changed(new: TableMetadata) -> bool:
        return {each.key for each in read_partition_fields(new) if each.source} == {key for key in goal if key[0]}

    return commit_metadata(name, table, change, has_changed)


def _find_field(current: Iterable[PartitionField], text: str) -> PartitionField:
    fields = [each for each in current if each.source]
    named = next((each for each in fields if each.name == text), None)
    if named is None:
        key = parse_partition_by([text])[0].key
        named = next((each for each in fields if each.key == key), None)
    if named is None:
        listed = ", ".join(f"{each.name} ({each})" for each in fields) or "nothing"
        raise InvalidOption(option="drop", value=text, expected=f"The table is partitioned by {listed}.")
    return named


def replace_sort_order(name: TableName, keys: Sequence[str]) -> Table:
    """Replace the sort order of a table in one commit, and return its newest version.

    Raises:
        InvalidOption: a key cannot be read, or its column has no order.
    """
    table = name.load()
    schema, left_out = to_whole(table.schema()), find_unreadable(table.schema())
    found = []
    for key in parse_sort_keys(keys):
        source, data_type = resolve(schema, key.source)
        left_out.ensure_has(source)
        if not is_atomic(data_type):
            expected = f"The column is {data_type.sql}, which has no order."
            raise InvalidOption(option="sort_by", value=format_path(key.source), expected=expected)
        found.append(replace(key, source=source))
    if tuple(found) == read_sort_keys(table.metadata):
        return table

    def change(transaction: Transaction) -> None:
        update = transaction.update_sort_order()
        for key in found:
            add = update.desc if key.is_descending else update.asc
            nulls = ice_sorting.NullOrder.NULLS_FIRST if key.is_null_first else ice_sorting.NullOrder.NULLS_LAST
            add(".".join(key.source), ice_transforms.IdentityTransform(), nulls)
        update.commit()

    before = table.metadata.default_sort_order_id
    return commit_metadata(name, table, change, lambda new: bool(new.default_sort_order_id != before))
