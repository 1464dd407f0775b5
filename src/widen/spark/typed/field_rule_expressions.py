"""The field rules of the policy, applied to typed values: excluded, masked, as text or as JSON.

Variants become JSON texts here. Strings that are read as dates get a type of their own; the conversions to the types of
columns read them. The rule for objects that are maps does not apply to typed values.

Source: docs/evolution-rules.md#d6, #d13, #d16
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping
from functools import reduce
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.column_path import Path, fold_path
from widen.model.types import (
    BINARY,
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    similarity_key,
)
from widen.observe.field_rules import JSON_BEGIN, MASK, FieldRule, FieldRules
from widen.observe.observe_schema import TemporalString
from widen.spark.source.field_names import Typed, field_steps, fields_of
from widen.spark.typed.json_values import to_document, to_json_text


def apply_field_rules(fields: Mapping[str, Typed], rules: FieldRules) -> dict[str, Typed]:
    """Return the fields of records with the field rules applied, without fields of type void.

    Source: docs/evolution-rules.md#d13, #d16
    """
    prepared = {
        key: _apply_rules(values, data_type, rules.at(key))
        for key, (values, data_type) in fields.items()
        if rules.at(key).take is not FieldRule.LEFT_OUT
    }
    return {key: (values, data_type) for key, (values, data_type) in prepared.items() if not _is_void(data_type)}


def opaque_rule_paths(data_type: DataType, rules: FieldRules, at: Path = ()) -> Iterator[Path]:
    """Yield the paths of variants with a field to exclude or mask, because rules cannot apply inside a variant."""
    if rules.is_hidden:
        return
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from opaque_rule_paths(field.type, rules.at(field.name), (*at, field.name))
        case ArrayType(inner) | MapType(_, inner):
            yield from opaque_rule_paths(inner, rules, at)
        case _ if data_type == VARIANT and rules.hidden:
            yield at


def _apply_rules(values: Column, data_type: DataType, rules: FieldRules) -> Typed:
    is_scalar = not isinstance(data_type, (ArrayType, MapType, StructType))
    if rules.take is FieldRule.MASKED:
        return _mask_values(values), STRING
    if data_type == VARIANT:
        return _apply_nested_rules(values, data_type, rules)
    is_text = rules.take is FieldRule.AS_JSON or (rules.take is FieldRule.AS_TEXT and not is_scalar)
    result, result_type = (
        (values, data_type)
        if is_text and not rules.below and not rules.hidden
        else _apply_nested_rules(values, data_type, rules)
    )
    if not is_text:
        return result, result_type
    return _json_text(to_document(result, result_type), is_scalar=is_scalar), STRING


def _apply_nested_rules(values: Column, data_type: DataType, rules: FieldRules, *, is_entry: bool = False) -> Typed:
    """Apply the field rules inside nested values.

    Args:
        is_entry: Whether they are values of a map, which its key hides already where the policy says so.
    """
    if _is_untouched(data_type, rules):
        return values, data_type
    match data_type:
        case StructType():
            result = apply_field_rules(fields_of(values, data_type), rules)
            inside = StructType(tuple(Field(name, inner) for name, (_, inner) in result.items()))
            columns = [
                column.alias(name) for name, (column, _) in zip(field_steps(inside), result.values(), strict=True)
            ]
            return F.when(values.isNotNull(), F.struct(*columns)), inside
        case ArrayType(element):
            _, inner = _apply_nested_rules(F.lit(None), element, rules, is_entry=is_entry)
            items = F.transform(values, lambda item: _apply_nested_rules(item, element, rules, is_entry=is_entry)[0])
            return items, ArrayType(inner)
        case MapType():
            return _apply_map_rules(values, data_type, rules)
        case _ if data_type == BINARY and rules.hidden:
            return _mask_values(values), STRING
        case _ if data_type == STRING and rules.hidden and not is_entry:
            # A text where the policy expects a record may spell out that record.
            return _mask_values(values), STRING
        case _ if data_type == STRING and rules.hidden:
            return F.when(values.rlike(JSON_BEGIN), F.lit(MASK)).otherwise(values), STRING
        case _ if data_type == STRING and rules.reads_times:
            return values, TemporalString(has_instants=rules.is_dated, has_local_times=rules.has_local_times)
    return (F.to_json(values), STRING) if data_type == VARIANT else (values, data_type)


def _apply_map_rules(values: Column, data_type: MapType, rules: FieldRules) -> Typed:
    """Apply the field rules to the entries of maps, whose keys may be excluded or masked, too."""
    left_out = [key for key, at in rules.hidden.items() if at.take is FieldRule.LEFT_OUT]
    # Where the policy names a field below a key, as if the map were a record, the whole entry is masked.
    masked = [key for key in rules.hidden if key not in left_out]
    _, inner = _apply_nested_rules(F.lit(None), data_type.value, rules, is_entry=True)
    # Other values of the map keep their type, which has no form for a mask.
    mask = F.lit(MASK if str(inner) == str(STRING) else None)

    def value_of(key: Column, value: Column) -> Column:
        result, _ = _apply_nested_rules(value, data_type.value, rules, is_entry=True)
        is_masked = _fold_names(key).isin(list(map(_fold_name, masked))) & value.isNotNull()
        return F.when(is_masked, mask).otherwise(result) if masked else result

    if left_out:
        values = F.map_filter(values, lambda key, _: ~_fold_names(key).isin(list(map(_fold_name, left_out))))
    return F.transform_values(values, value_of), MapType(data_type.key, inner)


def has_map_key(fields: Mapping[str, Column], schema: StructType, path: Path) -> Column | None:
    """Return whether a map in a record has the key that a path names; None if no map is on the path.

    Args:
        path: The path of a masked or excluded field.
    """
    typed = ((fields[field.name], field) for field in schema if similarity_key(field.name) == similarity_key(path[0]))
    return _any_of(_has_key(values, field.type, fold_path(path[1:])) for values, field in typed)


def _has_key(values: Column, data_type: DataType, path: Path) -> Column | None:
    if not path:
        return None
    match data_type:
        case StructType():
            named = (typed for name, typed in fields_of(values, data_type).items() if similarity_key(name) == path[0])
            return _any_of(_has_key(inner, inner_type, path[1:]) for inner, inner_type in named)
        case ArrayType(element):
            if _has_key(F.lit(None), element, path) is None:
                return None
            return F.exists(values, lambda item: cast(Column, _has_key(item, element, path)))
        case MapType(_, value):
            has_key = F.exists(F.map_keys(values), lambda key: _fold_names(key) == _fold_name(path[0]))
            if _has_key(F.lit(None), value, path) is None:
                return has_key
            return has_key | F.exists(F.map_values(values), lambda item: cast(Column, _has_key(item, value, path)))
    return None


def _any_of(conditions: Iterator[Column | None]) -> Column | None:
    known = [condition for condition in conditions if condition is not None]
    return reduce(operator.or_, known) if known else None


def _fold_name(name: str) -> str:
    return name.lower().upper().lower().translate({0x3C2: 0x3C3, 0x307: None})


def _fold_names(keys: Column) -> Column:
    """Return keys in a form that is equal if `similarity_key` is."""
    folded = F.lower(F.upper(F.lower(keys.cast("string"))))
    return F.translate(folded, "\u03c2\u0307", "\u03c3")


def _mask_values(values: Column) -> Column:
    return F.when(values.isNotNull(), F.lit(MASK))


def _json_text(values: Column, *, is_scalar: bool) -> Column:
    if not is_scalar:
        return to_json_text(values)
    # Spark's to_json takes no scalars.
    text = to_json_text(F.array(values))
    return F.when(values.isNotNull(), text.substr(F.lit(2), F.length(text) - F.lit(2)))


def _is_untouched(data_type: DataType, rules: FieldRules) -> bool:
    """Tell whether no field rule applies to values of a type, and they contain no variants and no dates in strings."""
    if rules.hidden:
        return False
    match data_type:
        case StructType(fields):
            return all(_is_as_is(rules.at(f.name)) and _is_untouched(f.type, rules.at(f.name)) for f in fields)
        case ArrayType(element):
            return _is_untouched(element, rules)
        case MapType(_, value):
            return _is_untouched(value, rules)
    return data_type not in (VARIANT, VOID) and not (data_type == STRING and rules.reads_times)


def _is_void(data_type: DataType) -> bool:
    match data_type:
        case ArrayType(inner) | MapType(_, inner):
            return _is_void(inner)
        case StructType(fields):
            return all(_is_void(field.type) for field in fields)
    return data_type == VOID


def _is_as_is(rules: FieldRules) -> bool:
    return rules.take is FieldRule.AS_IS
