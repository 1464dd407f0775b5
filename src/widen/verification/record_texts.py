"""Records of typed sources that a table keeps as JSON: in the quarantine, in the rescue column, and in pinned fields.

The proof parses them into the types of the source. A text with a field that the source lacks, or with
a field twice, is not a record of the source.

Source: docs/evolution-rules.md#d10, #d16
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, TypeAlias

import pyarrow as pa

from widen.evolution.policy import Policy
from widen.files.arrow_types import to_arrow
from widen.frames.table_writers import cast_array
from widen.model.column_path import leaves, map_children
from widen.model.types import (
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
)
from widen.model.value_classes import dataclass
from widen.proof.canonical import NON_FINITE, encode_form
from widen.proof.row_reader import RowReader
from widen.verification.arrow_lists import entries_of, nulls_of, replace_entries, replace_items
from widen.verification.restored_values import Contradiction, days_of, micros_of

Parser: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class PinnedText(AtomicType):
    """The type of values that a table keeps as JSON, as `pinned_texts` returns them."""

    name: str = STRING.name
    inner: DataType = STRING


class _Pairs(list[tuple[str, Any]]):
    """A JSON object as key/value pairs, duplicates included."""


def parse_texts(texts: Sequence[str], data_type: DataType, ignored: Collection[str] = ()) -> tuple[pa.Array, list[int]]:
    """Return the values of JSON texts, and the positions of the texts whose values these are.

    Args:
        ignored: Fields at the top whose values do not matter.
    """
    parse = build_parser(data_type)
    kind = to_arrow(data_type)
    rows, known = [], []
    for at, text in enumerate(texts):
        try:
            value = json.loads(text, object_pairs_hook=_Pairs, parse_float=Decimal)
            if ignored and isinstance(value, _Pairs):
                value = _Pairs((key, item) for key, item in value if key not in ignored)
            rows.append(parse(value))
            known.append(at)
        except (Contradiction, ValueError, ArithmeticError, RecursionError):
            continue
    try:
        return pa.array(rows, kind), known
    except (pa.ArrowException, OverflowError):  # Arrow cannot hold some numbers
        is_held = [_is_held(row, kind) for row in rows]
        held = [row for row, is_one in zip(rows, is_held, strict=True) if is_one]
        return pa.array(held, kind), [at for at, is_one in zip(known, is_held, strict=True) if is_one]


def _is_held(row: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([row], kind)
    except (pa.ArrowException, OverflowError):
        return False
    return True


def build_parser(data_type: DataType) -> Parser:
    """Return a function that converts a JSON value for Arrow; it raises `Contradiction` for values of other types."""
    match data_type:
        case StructType(fields):
            return partial(_parse_record, {each.name: build_parser(each.type) for each in fields})
        case ArrayType(element):
            return partial(_parse_list, build_parser(element))
        case MapType(key, value):
            parse_key = _parse_decimal_key if isinstance(key, DecimalType) else _KEY_PARSERS.get(str(key), str)
            return partial(_parse_map, parse_key, build_parser(value))
        case DecimalType():
            return _parse_decimal
    return partial(_parse_scalar, *_PARSERS[str(data_type)])


def _parse_record(fields: Mapping[str, Parser], value: Any) -> Any:
    if value is None:
        return None
    given = dict(value) if isinstance(value, _Pairs) else None
    if given is None or len(given) < len(value) or not given.keys() <= fields.keys():
        raise Contradiction
    return {key: parse(given.get(key)) for key, parse in fields.items()}


def _parse_map(parse_key: Parser, parse: Parser, value: Any) -> Any:
    if value is not None and not isinstance(value, _Pairs):
        raise Contradiction
    return None if value is None else [(parse_key(key), parse(item)) for key, item in value]


def _parse_list(parse: Parser, value: Any) -> Any:
    if value is not None and (isinstance(value, _Pairs) or not isinstance(value, list)):
        raise Contradiction
    return None if value is None else [parse(item) for item in value]


def _parse_decimal(value: Any) -> Any:
    if value is not None and (isinstance(value, bool) or not isinstance(value, (int, Decimal))):
        raise Contradiction
    return None if value is None else Decimal(value)


def _parse_decimal_key(text: str) -> Decimal:
    return Decimal(text)


def _parse_scalar(types: tuple[type, ...], convert: Parser, value: Any) -> Any:
    if value is None:
        return None
    if type(value) not in types:
        raise Contradiction
    return convert(value)


def _parse_double(value: Decimal | str) -> float:
    """Return a double; a number with other digits than its shortest text is the decimal of another source."""
    number = float(value)
    if value not in NON_FINITE if isinstance(value, str) else Decimal(repr(number)) != value:
        raise Contradiction
    return number


def _parse_time(parse: Callable[[str], int], text: str) -> int:
    """Return a timestamp, which JSON of a table always has with six digits of the second."""
    if len(text.removesuffix("Z").rpartition(".")[2]) != 6:
        raise Contradiction
    return parse(text)


_parse_local_time = partial(micros_of, data_type=TIMESTAMP_NTZ)

_KEY_PARSERS: Mapping[str, Parser] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), int),
    **dict.fromkeys(("float", "double"), float),
    "boolean": "true".__eq__,
    "date": days_of,
    "timestamp": micros_of,
    "timestamp_ntz": _parse_local_time,
}

_PARSERS: Mapping[str, tuple[tuple[type, ...], Parser]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), ((int,), int)),
    **dict.fromkeys(("float", "double"), ((Decimal, str), _parse_double)),
    "boolean": ((bool,), bool),
    "string": ((str,), str),
    "binary": ((str,), b64decode),
    "date": ((str,), days_of),
    "timestamp": ((str,), partial(_parse_time, micros_of)),
    "timestamp_ntz": ((str,), partial(_parse_time, _parse_local_time)),
}
"""The JSON type for the values of a type, and the function that converts it for Arrow."""


# ---- fields that a table keeps as JSON -------------------------------------------------------------


def pinned_texts(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return values as texts that only equal values share, in the encoding of the proof."""
    types = StructType((Field("", with_text_keys(data_type)),))
    values = cast_array(keys_as_text(values, data_type), to_arrow(types.fields[0].type))
    rows = pa.StructArray.from_arrays([values], fields=[pa.field("", values.type)])
    forms, is_valid = RowReader(types, Policy()).forms(rows), values.is_valid().to_pylist()
    pairs = zip(forms, is_valid, strict=True)
    texts = [encode_form(form.get("")).decode() if is_one else None for form, is_one in pairs]
    return pa.array(texts, pa.string())


def read_pinned_texts(texts: pa.Array, data_type: DataType) -> pa.Array:
    """Return JSON of a table as `pinned_texts` returns the values.

    Raises:
        Contradiction: a text is not JSON of a value of this type.
    """
    chosen = texts.drop_null()
    values, known = parse_texts(chosen.to_pylist(), data_type)
    if len(known) < len(chosen):
        raise Contradiction
    found = pinned_texts(unpin(values, data_type), data_type)
    place = iter(found.to_pylist())
    return pa.array([next(place) if text is not None else None for text in texts.to_pylist()], pa.string())


def unpin(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return values that were parsed with the texts of pinned fields inside as `pinned_texts` returns them."""
    if not has_pins(data_type):
        return values
    match data_type:
        case StructType(fields):
            parts = [unpin(part, each.type) for part, each in zip(values.flatten(), fields, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=list(values.type), mask=nulls_of(values))
        case ArrayType(element):
            return replace_items(values, unpin(values.flatten(), element))
        case MapType(_, value):
            keys, items = entries_of(values)
            return replace_entries(values, keys, unpin(items, value))
    assert isinstance(data_type, PinnedText)
    return read_pinned_texts(values, data_type.inner)


def has_pins(data_type: DataType) -> bool:
    """Return whether a table keeps values inside a type as JSON."""
    return any(isinstance(leaf, PinnedText) for _, leaf in leaves(data_type))


# ---- keys of maps, which are digested as texts -----------------------------------------------------


def with_text_keys(data_type: DataType) -> DataType:
    """Return a type whose maps have texts as keys."""
    if isinstance(data_type, MapType):
        return MapType(STRING, with_text_keys(data_type.value))
    return map_children(data_type, lambda _, child: with_text_keys(child))


def keys_as_text(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return values with texts as the keys of maps."""
    if with_text_keys(data_type) == data_type:
        return values
    match data_type:
        case StructType(fields):
            parts = [keys_as_text(part, each.type) for part, each in zip(values.flatten(), fields, strict=True)]
            names = [each.name for each in fields]
            return pa.StructArray.from_arrays(parts, names=names, mask=nulls_of(values))
        case ArrayType(element):
            return replace_items(values, keys_as_text(values.flatten(), element))
        case MapType(key, value):
            keys, items = entries_of(values)
            if key in (TIMESTAMP, TIMESTAMP_NTZ):  # Arrow would look up the zone
                keys = keys.cast(pa.int64())
            return replace_entries(values, cast_array(keys, pa.string()), keys_as_text(items, value))
    return values
