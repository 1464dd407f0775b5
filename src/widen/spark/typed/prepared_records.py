"""Typed records as they are taken in: treated as the policy says, and without what has no type.

Source: docs/evolution-rules.md#d7, #d13, #d16
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from widen.model.column_path import format_path
from widen.model.types import VOID, Field, StructType
from widen.observe.observation import FieldObservation, RecordObservation, merge_records
from widen.observe.observe_schema import observe_schema, unknown_types
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.policy_field_rules import build_field_rules
from widen.spark.source.field_names import Typed
from widen.spark.source.source_files import unusable_source
from widen.spark.typed.field_rule_expressions import apply_field_rules, opaque_rule_paths
from widen.spark.typed.typed_records import TypedRecords


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """Records as they are taken in.

    Args:
        records: As they come.
        fields: What stands at each key, with its type.
        pending: The fields that have no type.
    """

    records: TypedRecords
    fields: Mapping[str, Typed]
    pending: tuple[str, ...] = ()

    @property
    def schema(self) -> StructType:
        """The schema of the fields."""
        return StructType(tuple(Field(name, data_type) for name, (_, data_type) in self.fields.items()))

    def seen(self, *, is_hopeful: bool = False) -> RecordObservation:
        """Return what the types tell.

        Args:
            is_hopeful: Whether values are exact where their type does not tell.
        """
        waiting: RecordObservation = {name: FieldObservation(nulls={0: 1}) for name in self.pending}
        return merge_records(waiting, observe_schema(self.schema, is_hopeful=is_hopeful))


def prepare_records(records: TypedRecords, name: str, base: StructType | None, policy: Policy) -> PreparedRecords:
    """Return records as they are taken in.

    Args:
        records: As they come.
        name: What errors call them.
        base: The schema of the table; None if there is none yet.
        policy: What may be done.

    Raises:
        SourceError: values are of a type that no table can take in, or nobody can hide what is to be hidden in them.
    """
    columns, reading = records.columns, build_field_rules(base or StructType(), policy)
    closed = next(opaque_rule_paths(records.schema, reading), None)
    if closed is not None:
        reason = f"nobody looks into the variants of {format_path(closed)}, where a field is to be hidden"
        raise unusable_source(name, reason, "Mask or leave out all of it, or cast it to a type that has fields.")
    fields = {field.name: (columns[field.name], field.type) for field in records.schema}
    found = PreparedRecords(
        records,
        apply_field_rules(fields, reading),
        tuple(field.name for field in records.schema if field.type == VOID),
    )
    strange = next(unknown_types(found.schema), None)
    if strange is not None:
        at, data_type = strange
        fix = "Cast the column, e.g. to string; the keys of a map must be scalars."
        raise unusable_source(name, f"the values of {format_path(at)} are of the type {data_type.sql}", fix)
    return found
