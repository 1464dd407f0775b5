"""Statistics between their two forms: JSON text in a column, and a struct of columns.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pyarrow as pa

_encoder = msgspec.json.Encoder(decimal_format="number")


def to_json_text(parsed: pa.StructArray, text: pa.Array | None) -> pa.Array:
    """Return statistics as JSON text, made from the struct where there is no text yet.

    Args:
        parsed: A column ``stats_parsed`` of a checkpoint, in the types of its time.
        text: The column ``stats`` beside it, if there is one.

    Source: PROTOCOL.md#checkpoint-schema; Delta Spark for the forms of dates, times and decimals.
    """
    given = text.to_pylist() if text is not None else [None] * len(parsed)
    made = [
        old if old is not None or new is None else _encoder.encode(_value(new)).decode()
        for old, new in zip(given, parsed.to_pylist(), strict=True)
    ]
    return pa.array(made, pa.string())


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items() if item is not None}
    convert = _FORMS.get(type(value))
    return convert(value) if convert else value


def _time(value: dt.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else text + "Z"


_FORMS: Mapping[type, Callable[[Any], Any]] = {
    dt.date: dt.date.isoformat,
    dt.datetime: _time,
    bytes: lambda value: value.decode("utf-8", "replace"),
}
