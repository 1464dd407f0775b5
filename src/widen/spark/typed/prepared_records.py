"""Typed records prepared for ingestion: with the field rules applied, and without fields of type void.

Source: docs/evolution-rules.md#d7, #d13, #d16
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from widen.model.column_path import format_path
from widen.model.types import VOID, Field, StructType
from widen.observe.observation import FieldObservation, RecordObservation, merge_records
from widen.observe.observe_schema import observe_schema, unknown_types
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.policy_field_rules import build_typed_field_rules
from widen.spark.source.field_names import Typed
from widen.spark.source.source_files import unusable_source
from widen.spark.typed.field_rule_expressions import apply_field_rules, opaque_rule_paths
from widen.spark.typed.typed_records import TypedRecords


@dataclass(frozen=True, slots=True)
class PreparedRecords:
    """Records with the field rules applied."""

    records: TypedRecords
    fields: Mapping[str, Typed]
    pending: tuple[str, ...] = ()

    @property
    def schema(self) -> StructType:
        """The schema of the fields."""
        return StructType(tuple(Field(name, data_type) for name, (_, data_type) in self.fields.items()))

    def without(self, keys: Collection[str]) -> PreparedRecords:
        """Return the records without some of their fields."""
        return replace(self, fields={key: value for key, value in self.fields.items() if key not in keys})

    def observation(self, *, assume_exact: bool = False) -> RecordObservation:
        """Return what the types alone say about the records.

        Args:
            assume_exact: Whether to assume that values are exact where their type leaves it open.
        """
        pending: RecordObservation = {name: FieldObservation(nulls={0: 1}) for name in self.pending}
        return merge_records(pending, observe_schema(self.schema, assume_exact=assume_exact))


def prepare_records(records: TypedRecords, name: str, base: StructType | None, policy: Policy) -> PreparedRecords:
    """Return records with the field rules of a policy applied.

    Args:
        base: The schema of the table; None if the table does not exist yet.

    Raises:
        SourceError: values have an unsupported type, or the policy masks or excludes a field inside a variant.
    """
    columns, rules = records.columns, build_typed_field_rules(base or StructType(), policy)
    opaque = next(opaque_rule_paths(records.schema, rules), None)
    if opaque is not None:
        reason = f"a field inside the variants of {format_path(opaque)} cannot be masked or excluded"
        raise unusable_source(name, reason, "Mask or exclude the whole variant, or cast it to a struct.")
    fields = {field.name: (columns[field.name], field.type) for field in records.schema}
    prepared = PreparedRecords(
        records,
        apply_field_rules(fields, rules),
        tuple(field.name for field in records.schema if field.type == VOID),
    )
    unsupported = next(unknown_types(prepared.schema), None)
    if unsupported is not None:
        path, data_type = unsupported
        fix = "Cast the column, e.g. to string. The keys of a map must be scalars."
        raise unusable_source(name, f"the type {data_type.sql} of {format_path(path)} is not supported", fix)
    return prepared
