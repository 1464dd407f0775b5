"""Which records of a batch delete the rows of their keys, where the condition names fields that the load excludes.

Such a field has no column. A task has its values in the column `EXCLUDED` of the rows that it makes, and nowhere else:
it evaluates the condition, drops the column, and writes the rows that delete to files of their own.

Source: docs/guide/keys.md#deletes
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InvalidCondition, InvalidOption
from widen.evolution.key_rules import KeyRules
from widen.evolution.policy import Policy
from widen.files.arrow_types import one_array, to_arrow
from widen.files.predicates import bind_condition
from widen.files.row_tests import plan_test
from widen.model.column_path import Path, format_path
from widen.model.types import BOOLEAN, DOUBLE, LONG, STRING, DataType, Field, StructType
from widen.rows.row_builder import EXCLUDED
from widen.spark.engine import Unsupported

_NAME = "__widen_excluded_{}"

_Typed: TypeAlias = tuple[DataType | None, Any]
"""The type of a value of a record, None for null, and the value."""


def no_deletes_by(fields: Sequence[Path], reason: str) -> InvalidOption:
    """Return the error for a load that cannot read excluded fields in its condition of deletions."""
    names = ", ".join(map(format_path, fields))
    expected = (
        f"The condition reads {names}, which the load leaves out (exclude, include), and {reason}. Load the field."
    )
    return InvalidOption(option="delete_when", value=names, expected=expected)


def find_deletes(rows: pa.RecordBatch, policy: Policy, schema: StructType) -> pa.Array:
    """Return which rows delete; each value is compared as what its own record says it is.

    So it does not depend on other records of the batch whether a record deletes, as the type of a column does.
    """
    rules = KeyRules((), delete_when=policy.delete_when, excluded=policy.deletes_by)
    texts, count = _full(rows.column(EXCLUDED), len(rules.excluded)), len(rules.excluded)
    columns = [_values(pc.list_element(texts, at)) for at in range(count)]
    is_delete = pa.repeat(pa.scalar(False), rows.num_rows)
    for types, chosen in _by_types(columns):
        some, places = pa.Table.from_batches([rows.filter(chosen)]), chosen.to_pylist()
        fields, names = list(schema.fields), list[str | None]()
        for at, (data_type, values) in enumerate(zip(types, columns, strict=True)):
            names.append(None if data_type is None else _NAME.format(at))
            if data_type is not None:
                found = [value for (_, value), is_chosen in zip(values, places, strict=True) if is_chosen]
                fields.append(Field(_NAME.format(at), data_type))
                some = some.append_column(_NAME.format(at), pa.array(found, to_arrow(data_type)))
        found_here = _evaluate(rules, StructType(tuple(fields)), names, types, some)
        is_delete = pc.replace_with_mask(is_delete, chosen, found_here)
    return is_delete


def _full(texts: pa.Array, size: int) -> pa.Array:
    """Return lists without nulls, which the rows of texts that are not records have."""
    return pc.if_else(texts.is_valid(), texts, pa.scalar([None] * size, texts.type)) if texts.null_count else texts


def _values(texts: pa.Array) -> list[_Typed]:
    """Return the type and the value of each JSON text."""
    known = {text: (None, None) if text is None else _typed(text) for text in pc.unique(texts).to_pylist()}
    return [known[text] for text in texts.to_pylist()]


def _typed(text: str) -> _Typed:
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:  # NaN and Infinity, where the load allows them
        value = float(text)
    if isinstance(value, bool):
        return BOOLEAN, value
    if isinstance(value, int):
        return (LONG, value) if -(2**63) <= value < 2**63 else (DOUBLE, float(value))
    if isinstance(value, float):
        return DOUBLE, value
    return (STRING, value) if isinstance(value, str) else (_NESTED, None)


_NESTED = StructType()
"""Stands for an object or an array, which no condition compares."""


def _by_types(columns: Sequence[Sequence[_Typed]]) -> Iterator[tuple[tuple[DataType | None, ...], pa.Array]]:
    """Yield the types of values, and which rows have values of these types."""
    types = [tuple(data_type for data_type, _ in values) for values in zip(*columns, strict=True)]
    for each in dict.fromkeys(types):
        yield each, pa.array([found == each for found in types], pa.bool_())


def _evaluate(
    rules: KeyRules, schema: StructType, names: Sequence[str | None], types: Sequence[DataType | None], rows: pa.Table
) -> pa.Array:
    predicate = bind_condition(rules.deletes_with(schema, names), schema)
    try:
        if _NESTED in types:
            raise Unsupported("an object or an array is not compared")
        return one_array(pc.fill_null(plan_test(predicate)(rows), False))
    except Unsupported as error:
        said = ", ".join(
            f"{format_path(path)} is {_NESTED_WORDS if each == _NESTED else 'null' if each is None else each.sql}"
            for path, each in zip(rules.excluded, types, strict=True)
        )
        reason = f"{_LIMITS.format(', '.join(map(format_path, rules.excluded)))}; in some records {said}"
        raise InvalidCondition(condition=rules.delete_when or "", reason=reason) from error


_NESTED_WORDS = "an object or an array"
_LIMITS = (
    "the load excludes {}, so tasks evaluate the condition on the records, where it may only compare fields with "
    "constants of their type"
)
