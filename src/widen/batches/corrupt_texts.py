"""Texts of typed records that are not UTF-8: which records have one, and these records as texts.

Arrow and Spark take the bytes of a text in Parquet and Avro as they are, and write them on.

Source: docs/evolution-rules.md#d11, #d16; the Parquet format (STRING is UTF-8)
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import partial, reduce
from operator import and_
from typing import Any

import pyarrow as pa

from widen.errors import CorruptFile
from widen.files.arrow_types import to_utc
from widen.json.document import not_a_record
from widen.model.types import STRING, ArrayType, DataType, MapType, StructType
from widen.sources.file_ranges import RefusedTexts, fields_of
from widen.spark.errors import RESTORE_FILE
from widen.spark.spark_types import Column, F

NOT_UTF8 = "a text of a record is not UTF-8"
"""The reason of `CorruptFile` for a text that is not UTF-8. Its record is then set apart."""


def not_utf8(kind: str) -> str:
    """Return why a typed record with such a text is corrupt."""
    return not_a_record(kind, "a text is not UTF-8")


# ---- with Arrow ------------------------------------------------------------------------------------


def ensure_utf8(columns: Iterable[pa.Array], uri: str) -> None:
    """Check that all texts are UTF-8.

    Raises:
        CorruptFile: one is not; its reason is `NOT_UTF8`.
    """
    if any(map(_has_invalid, columns)):
        raise CorruptFile(path=uri, reason=NOT_UTF8, fix=RESTORE_FILE)


def _has_invalid(values: pa.Array) -> bool:
    if not _has_texts(values.type):
        return False
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return True
    return False


def _has_texts(found: pa.DataType) -> bool:
    if pa.types.is_struct(found):
        return any(_has_texts(each.type) for each in found)
    if pa.types.is_map(found):
        return _has_texts(found.key_type) or _has_texts(found.item_type)
    if pa.types.is_nested(found) or pa.types.is_dictionary(found):
        return _has_texts(found.value_type)
    return bool(pa.types.is_string(found) or pa.types.is_large_string(found) or pa.types.is_string_view(found))


def find_corrupt_rows(columns: Sequence[pa.Array], names: Sequence[str]) -> list[tuple[int, bytes]]:
    """Return the rows with a text that is not UTF-8: their indexes, and the records as JSON with these bytes."""
    if not any(map(_has_invalid, columns)):
        return []
    values = [_to_bytes(column).to_pylist() for column in columns]
    kinds = [column.type for column in columns]
    found = []
    for at, row in enumerate(zip(*values, strict=True)):
        record = {name: _plain(value, kind) for name, value, kind in zip(names, row, kinds, strict=True)}
        text = json.dumps(record, ensure_ascii=False).encode(errors="surrogateescape")
        try:
            text.decode()
        except UnicodeDecodeError:
            found.append((at, text))
    return found


def _to_bytes(values: pa.Array) -> pa.Array:
    """Return values with bytes instead of texts, because Python strings cannot hold invalid UTF-8."""
    wanted = _bytes_type(values.type)
    return values if wanted == values.type else values.cast(wanted)


def _bytes_type(found: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(found):
        return pa.struct([each.with_type(_bytes_type(each.type)) for each in found])
    if pa.types.is_map(found):
        return pa.map_(_bytes_type(found.key_type), _bytes_type(found.item_type))
    if pa.types.is_list(found):
        return pa.list_(found.value_field.with_type(_bytes_type(found.value_type)))
    return pa.binary() if pa.types.is_string(found) else found


def _plain(value: Any, found: pa.DataType) -> Any:
    """Return an Arrow value as JSON has it; bytes of a text that are not UTF-8 become surrogates."""
    if value is None:
        return None
    if pa.types.is_struct(found):
        return {each.name: _plain(value[each.name], each.type) for each in found if value[each.name] is not None}
    if pa.types.is_map(found):
        return {str(_plain(key, found.key_type)): _plain(item, found.item_type) for key, item in value}
    if pa.types.is_list(found):
        return [_plain(item, found.value_type) for item in value]
    if pa.types.is_string(found):
        return value.decode(errors="surrogateescape")
    match value:
        case bytes():
            return b64encode(value).decode()
        case bool() | int() | float():
            return value
        case datetime():
            return value.isoformat()
        case date() | Decimal():
            return str(value)
    return str(value)


# ---- with Spark ------------------------------------------------------------------------------------


def is_utf8_record(columns: Iterable[Column], schema: StructType) -> Column | None:
    """Return whether all texts of a record are UTF-8; None if records have no texts."""
    checks = [check for values, each in zip(columns, schema, strict=True) for check in _checks(values, each.type)]
    return reduce(and_, checks) if checks else None


def _checks(values: Column, data_type: DataType) -> Iterator[Column]:
    match data_type:
        case StructType():
            for field, inner in fields_of(values, data_type).values():
                yield from _checks(field, inner)
        case ArrayType(element):
            for number, _ in enumerate(_checks(F.lit(None), element)):
                yield F.coalesce(F.forall(values, partial(_nth_check, element, number)), F.lit(True))
        case MapType(key, value):
            yield from _checks(F.map_keys(values), ArrayType(key))
            yield from _checks(F.map_values(values), ArrayType(value))
        case _ if data_type == STRING:
            yield F.coalesce(F.is_valid_utf8(values), F.lit(True))


def _nth_check(data_type: DataType, number: int, values: Column) -> Column:
    return list(_checks(values, data_type))[number]


def to_refused_texts(kind: str, names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield records as texts that are not records.

    Args:
        batches: A column with the fields, then the file and the number of the record.
    """
    for batch in batches:
        record, files, numbers = batch.columns
        columns = [to_utc(each) for each in record.flatten()]
        places = list(zip(files.to_pylist(), numbers.to_pylist(), strict=True))
        for at, text in find_corrupt_rows(columns, names):
            file, number = places[at]
            yield RefusedTexts(0, [text], [number or 0], [not_utf8(kind)]).to_raw(file or "")
