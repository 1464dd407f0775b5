"""Values of rows as errors show them: letters as x, digits as 9, unless the session asks for raw ones.

Source: docs/evolution-rules.md#d24
"""

from __future__ import annotations

import re

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

from widen.model.types import ArrayType, DataType, MapType, StructType
from widen.planning.evolution.samples import Samples, mask

SAMPLES = "spark.widen.samples"
"""How errors show values of rows: ``masked``, the default, or ``raw``."""

_MARKS = ((r"\p{Lu}", "X"), (r"[\p{L}&&[^X]]", "x"), (r"\p{N}", "9"))


def show_values(values: Column, data_type: DataType) -> Column:
    """Return values as errors show them; in masked ones every scalar is a text, and names of fields stay."""
    return values if _shows_raw() else _mask_values(values, data_type)


def show_reason(reason: str) -> str:
    """Return the message of an error of Spark with the values of rows that it quotes as errors show them."""
    return reason if _shows_raw() else _QUOTED.sub(lambda match: mask(match[0]), reason)


_QUOTED = re.compile(
    r"(?<=The value ).*?(?= of the type)"
    r"|(?<=Text ).*?(?= could not be parsed)"
    r"|(?<=\] ).*?(?= cannot be represented as)"
    r"|(?<=Duplicate map key ).*?(?= was found)"
    r"|(?<=Encountered records: ).*?(?=\. Parse)",
    re.DOTALL,
)
"""The values in messages of Spark."""


def _shows_raw() -> bool:
    session = SparkSession.getActiveSession()
    return session is not None and str(session.conf.get(SAMPLES, "")).lower() == Samples.RAW.value


def _mask_values(values: Column, data_type: DataType) -> Column:
    match data_type:
        case StructType():
            fields = [_mask_values(values.getField(field.name), field.type).alias(field.name) for field in data_type]
            return F.when(values.isNotNull(), F.struct(*fields)) if fields else values
        case ArrayType(element):
            return F.transform(values, lambda item: _mask_values(item, element))
        case MapType(key, value):
            # Two keys may have the same mask, so that the result is not a map.
            return F.transform(
                F.map_entries(values),
                lambda pair: F.struct(
                    _mask_values(pair["key"], key).alias("key"), _mask_values(pair["value"], value).alias("value")
                ),
            )
    return mask_text(values.cast("string"))


def mask_text(text: Column) -> Column:
    """Return texts with every letter as x or X and every digit as 9."""
    for pattern, mark in _MARKS:
        text = F.regexp_replace(text, F.lit(pattern), F.lit(mark))
    return text
