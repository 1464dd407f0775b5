"""Typed values as they are taken in: without what is left out, masked where so said, as texts where so said.

Variants are texts of JSON from here on. What of a reading is about texts that are dates, and about objects that are
maps, does not concern values that have a type.

Source: docs/evolution-rules.md#d13, #d16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.column_path import Path
from widen.model.types import STRING, VARIANT, VOID, ArrayType, DataType, Field, MapType, StructType
from widen.observe.field_rules import MASK, FieldRule, FieldRules
from widen.spark.source.field_names import Typed, field_steps, fields_of
from widen.spark.typed.json_values import to_document, to_json_text


def apply_field_rules(fields: Mapping[str, Typed], reading: FieldRules) -> dict[str, Typed]:
    """Return the fields of records as they are taken; of what has no type nothing can be taken.

    Args:
        fields: What stands at each key, with its type.
        reading: How the records are taken.

    Source: docs/evolution-rules.md#d13, #d16
    """
    taken = {
        key: _apply_rules(values, data_type, reading.at(key))
        for key, (values, data_type) in fields.items()
        if reading.at(key).take is not FieldRule.LEFT_OUT
    }
    return {key: (values, data_type) for key, (values, data_type) in taken.items() if not _is_void(data_type)}


def opaque_rule_paths(data_type: DataType, reading: FieldRules, at: Path = ()) -> Iterator[Path]:
    """Yield the paths of variants in which something is to be left out or masked: nobody looks into them."""
    if reading.take in _HIDDEN:
        return
    match data_type:
        case StructType(fields):
            for field in fields:
                yield from opaque_rule_paths(field.type, reading.at(field.name), (*at, field.name))
        case ArrayType(inner) | MapType(_, inner):
            yield from opaque_rule_paths(inner, reading, at)
        case _ if data_type == VARIANT and _redacts(reading):
            yield at


_HIDDEN = (FieldRule.MASKED, FieldRule.LEFT_OUT)


def _redacts(reading: FieldRules) -> bool:
    return any(below.take in _HIDDEN or _redacts(below) for below in reading.below.values())


def _apply_rules(values: Column, data_type: DataType, reading: FieldRules) -> Typed:
    is_scalar = not isinstance(data_type, (ArrayType, MapType, StructType))
    if reading.take is FieldRule.MASKED:
        return _mask_values(values), STRING
    if data_type == VARIANT:
        return _apply_nested_rules(values, data_type, reading)
    is_text = reading.take is FieldRule.AS_JSON or (reading.take is FieldRule.AS_TEXT and not is_scalar)
    found, kind = (
        (values, data_type) if is_text and not reading.below else _apply_nested_rules(values, data_type, reading)
    )
    return (_json_text(to_document(found, kind), is_scalar=is_scalar), STRING) if is_text else (found, kind)


def _apply_nested_rules(values: Column, data_type: DataType, reading: FieldRules) -> Typed:
    """Return values with what is in them as it is taken."""
    if _is_untouched(data_type, reading):
        return values, data_type
    match data_type:
        case StructType():
            found = apply_field_rules(fields_of(values, data_type), reading)
            inside = StructType(tuple(Field(name, inner) for name, (_, inner) in found.items()))
            columns = [
                column.alias(name) for name, (column, _) in zip(field_steps(inside), found.values(), strict=True)
            ]
            return F.when(values.isNotNull(), F.struct(*columns)), inside
        case ArrayType(element):
            _, inner = _apply_nested_rules(F.lit(None), element, reading)
            return F.transform(values, lambda item: _apply_nested_rules(item, element, reading)[0]), ArrayType(inner)
        case MapType():
            return _apply_map_rules(values, data_type, reading)
    return (F.to_json(values), STRING) if data_type == VARIANT else (values, data_type)


def _apply_map_rules(values: Column, data_type: MapType, reading: FieldRules) -> Typed:
    """Return maps with what is at their keys as it is taken; keys that are to be left out or masked are, too."""
    left_out, masked = (
        [k for k, at in reading.below.items() if at.take is t] for t in (FieldRule.LEFT_OUT, FieldRule.MASKED)
    )
    _, inner = _apply_nested_rules(F.lit(None), data_type.value, reading)
    mask = F.lit(MASK if inner == STRING else None)

    def value_of(key: Column, value: Column) -> Column:
        found, _ = _apply_nested_rules(value, data_type.value, reading)
        is_masked = key.cast("string").isin(masked) & value.isNotNull()
        return F.when(is_masked, mask).otherwise(found) if masked else found

    if left_out:
        values = F.map_filter(values, lambda key, _: ~key.cast("string").isin(left_out))
    return F.transform_values(values, value_of), MapType(data_type.key, inner)


def _mask_values(values: Column) -> Column:
    return F.when(values.isNotNull(), F.lit(MASK))


def _json_text(values: Column, *, is_scalar: bool) -> Column:
    if not is_scalar:
        return to_json_text(values)
    text = to_json_text(F.array(values))
    return F.when(values.isNotNull(), text.substr(F.lit(2), F.length(text) - F.lit(2)))


def _is_untouched(data_type: DataType, reading: FieldRules) -> bool:
    """Tell whether nothing of a reading concerns values of a type, and no variant is in them."""
    match data_type:
        case StructType(fields):
            return all(_is_as_is(reading.at(f.name)) and _is_untouched(f.type, reading.at(f.name)) for f in fields)
        case ArrayType(element):
            return _is_untouched(element, reading)
        case MapType(_, value):
            return _is_untouched(value, reading) and all(map(_is_as_is, reading.below.values()))
    return data_type not in (VARIANT, VOID)


def _is_void(data_type: DataType) -> bool:
    match data_type:
        case ArrayType(inner) | MapType(_, inner):
            return _is_void(inner)
        case StructType(fields):
            return all(_is_void(field.type) for field in fields)
    return data_type == VOID


def _is_as_is(reading: FieldRules) -> bool:
    return reading.take is FieldRule.AS_IS
