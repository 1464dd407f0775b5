"""The native readers of the proof: they digest most records and rows, and leave the others to Python.

The module ``widen_kernel.proof`` is a crate of its own with a parser of its own, made from the columns and rules of the
proof. It shares nothing with the decoder of the writer but the distribution that both come with.

Source: docs/kernel.md; docs/evolution-rules.md#proof
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from widen.model.types import DecimalType
from widen.proof.csv_reader import CsvForm
from widen.proof.rules import RECORD, ColumnsByKey, FieldColumns, ProofRule, SourceColumn

KERNEL_VARIABLE = "WIDEN_KERNEL"
"""Environment variable of the process: ``off`` means that it uses no native code."""

_VERSION = 2
"""The version of the interface that this module needs."""


def find_native_readers() -> Any:
    """Return the module ``widen_kernel.proof``; None if this process does not have it, or must not use it."""
    if os.environ.get(KERNEL_VARIABLE, "").lower() == "off":
        return None
    try:
        import widen_kernel
    except ImportError:
        return None
    readers = getattr(widen_kernel, "proof", None)
    return readers if getattr(readers, "VERSION", 0) == _VERSION else None


@dataclass(frozen=True, slots=True)
class ProofColumn:
    """A `SourceColumn` as the native readers take it; see ``kernel/proof/src/plan.rs``.

    Args:
        record: The fields of a record.
        entries: The values of a map, as the only field.
    """

    position: int
    dim: int
    type_name: str
    precision: int
    scale: int
    has_epochs: bool
    has_booleans_as_numbers: bool
    rounds: bool
    record: ProofRecord | None
    entries: Sequence[ProofField]


@dataclass(frozen=True, slots=True)
class ProofField:
    """The columns of a field, and what its `ProofRule` says.

    Args:
        is_refused: Whether only Python knows what becomes of a value.
        refuses_strings: Whether a string may spell out something that the policy hides.
    """

    key: str
    columns: Sequence[ProofColumn]
    is_excluded: bool
    is_masked: bool
    is_map: bool
    is_refused: bool
    refuses_strings: bool
    has_dates: bool
    has_local_times: bool


@dataclass(frozen=True, slots=True)
class ProofRecord:
    """The fields of a record.

    Args:
        refuses_unknown: Whether a key without a field may be one that the policy hides.
    """

    fields: Sequence[ProofField]
    refuses_unknown: bool


@dataclass(frozen=True, slots=True)
class ProofCsv:
    """How the rows of a file are written: the parts of a `CsvForm` for which rows are read natively."""

    names: Sequence[str]
    separator: int
    quote: int | None
    null: str
    values: str


def build_csv_plan(form: CsvForm, names: Sequence[str]) -> ProofCsv | None:
    """Return the plan for the rows of a file; None if Python has to read them."""
    is_plain = len(form.separator) == 1 and len(form.quote) <= 1 and not form.escape
    if not names or not is_plain or bool(form.values) != bool(form.spelling):
        return None
    return ProofCsv(names, form.separator[0], form.quote[0] if form.quote else None, form.null.decode(), form.spelling)


def build_plan(fields: ColumnsByKey, rule: ProofRule) -> ProofRecord:
    """Return the plan for records."""
    keys = fields.keys() | {key for key, below in rule.below.items() if below.is_excluded}
    plans = [_field_plan(key, fields.get(key, ()), rule.rule_of(key), 0) for key in sorted(keys)]
    return ProofRecord(plans, bool(rule.hidden))


def _field_plan(key: str, columns: FieldColumns, rule: ProofRule, maps_above: int) -> ProofField:
    map_levels = rule.map_levels - maps_above
    return ProofField(
        key,
        [_column_plan(column, rule, maps_above) for column in columns],
        is_excluded=rule.is_excluded,
        is_masked=rule.is_masked,
        is_map=map_levels > 0,
        is_refused=rule.text_form is not None or (map_levels > 0 and bool(rule.hidden)),
        refuses_strings=bool(rule.hidden),
        has_dates=rule.has_dates,
        has_local_times=rule.has_local_times,
    )


def _column_plan(column: SourceColumn, rule: ProofRule, maps_above: int) -> ProofColumn:
    precision, scale = (column.type.precision, column.type.scale) if isinstance(column.type, DecimalType) else (0, 0)
    return ProofColumn(
        column.position,
        column.dim,
        column.type_name,
        precision=precision,
        scale=scale,
        has_epochs=column.has_epochs,
        has_booleans_as_numbers=column.has_booleans_as_numbers,
        rounds=bool(column.rounds),
        record=build_plan(column.fields or {}, rule) if column.type_name == RECORD else None,
        entries=[] if column.value is None else [_field_plan("", (column.value,), rule, maps_above + 1)],
    )
