"""Whether a quarantined record has a reason to be there: the proof's own reading of the rules of a table.

A record without any of these reasons belongs to the table. What the proof cannot judge counts as a reason.

Source: docs/evolution-rules.md#d11, #d12
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from widen.evolution.policy import FixedColumn, Policy
from widen.json.field_rules import VERSION_FIELDS
from widen.model.column_path import leaves
from widen.model.types import StructType
from widen.proof.canonical import Form
from widen.proof.conditions import Condition, Undecided, UnsupportedCondition, build_condition
from widen.proof.expected_values import NOT_STORED, ExpectedRecord, expected_value
from widen.proof.json_reader import Json, NumberToken, read_records
from widen.proof.rules import RECORD, SourceColumn
from widen.protocol.column_metadata import is_computed, text_limits
from widen.schema.source_metadata import source_key

_MAX_TEXT = 2**20
"""A longer text may be over a limit of the load."""

_NULL_PARTITIONS = ("", "__HIVE_DEFAULT_PARTITION__")


class QuarantineReasons:
    """Judges the quarantined records of a load that came as texts. Picklable.

    Args:
        policy: The policy, which names the columns that take all values of their fields or none.
        conditions: The conditions on every row, in Spark SQL.
        has_key: Returns whether a record and the form of its row have a key and an order; None for a load that only
            adds rows.
    """

    def __init__(
        self,
        schema: StructType,
        policy: Policy,
        conditions: Sequence[str] = (),
        has_key: Callable[[Mapping[str, Json], Form], bool] | None = None,
    ) -> None:
        self._policy, self._has_key = policy, has_key
        self._expectation = ExpectedRecord(schema, policy)
        self._computed = [source_key(field) for field in schema if is_computed(field)]
        self._limits = [(source_key(field), limit) for field in schema for limit in text_limits(field).items()]
        self._fixed = [(path, guard) for path, guard in policy.fixed_columns.items()]
        self._keys = {field.name: source_key(field) for field in schema}
        self._conditions = _build_conditions(conditions, schema)
        # Of a document, an event, or a record without its hidden fields, the quarantine does not have all.
        is_whole = not (policy.envelope or policy.record_path or policy.dialect or policy.hides)
        is_flat = all(len(path) == 1 for path, _ in self._fixed) and all(not path for _, (path, _) in self._limits)
        self.can_judge = is_whole and is_flat and self._conditions is not None and not _has_maps(self._fixed, schema)

    def may_refuse(self, text: str) -> bool:
        """Return whether a record may be in the quarantine."""
        records = read_records(text.encode(), allows_nan=self._policy.allows_nan) if len(text) <= _MAX_TEXT else None
        if not self.can_judge or not records or len(records) != 1:
            return True
        form, _ = self._expectation.expect(records[0])
        record, given = self._expectation.apply_rules(records[0]), self._expectation.rename(records[0])
        return (
            (bool(self._policy.history) and not records[0].keys().isdisjoint(VERSION_FIELDS))
            or any(given.get(key) is not None for key in self._computed)
            or any(self._is_long(record.get(key), length) for key, (_, length) in self._limits)
            or any(self._is_unfit(path[0], guard, record) for path, guard in self._fixed)
            or any(not _holds(condition, form) for condition in self._conditions or ())
            or (self._has_key is not None and not self._has_key(record, form))
        )

    def _is_long(self, value: Json, length: int) -> bool:
        return value is not None and (not isinstance(value, (str, bool)) or len(str(value)) > length)

    def _is_unfit(self, name: str, guard: FixedColumn, record: Mapping[str, Json]) -> bool:
        """Return whether a fixed column may not hold the value of its field."""
        key = self._keys.get(name, name)
        value = record.get(key)
        if value is None:
            return guard.is_required and (key in record or not guard.is_filled)
        column = next((each for each in self._expectation.fields.get(key, ()) if each.name == name), None)
        if column is None or not guard.takes_values or isinstance(value, (dict, list)):
            return True
        is_text = isinstance(value, str) and (value in _NULL_PARTITIONS or "\0" in value)
        return is_text or not _fits(column, value)


def _fits(column: SourceColumn, value: Json) -> bool:
    if column.dim or column.type_name == RECORD or column.value is not None:
        return False
    # A timestamp alone does not say which integer it was.
    is_epoch = isinstance(value, NumberToken) and column.type_name == "timestamp" and not column.has_epochs
    return not is_epoch and expected_value(column, value) is not NOT_STORED


def _holds(condition: Condition, form: Form) -> bool:
    try:
        return condition(form) is True
    except Undecided:
        return False


def _build_conditions(texts: Sequence[str], schema: StructType) -> list[Condition] | None:
    """Return conditions; None if the proof does not evaluate one of them."""
    try:
        return [build_condition(text, schema) for text in texts]
    except UnsupportedCondition:
        return None


def _has_maps(fixed: Sequence[tuple[Any, FixedColumn]], schema: StructType) -> bool:
    names = {path[0] for path, _ in fixed}
    return any(len(path) > 1 for path, _ in leaves(schema) if path[0] in names)
