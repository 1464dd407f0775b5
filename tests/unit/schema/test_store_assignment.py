"""Which values are cast to which types: those of Spark's explicit casts in ANSI mode, for UPDATE and MERGE."""

from __future__ import annotations

import pytest

from widen.model.schema_json import parse_type
from widen.schema.growth import can_cast

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal(4,2)")
OTHERS = ("boolean", "string", "binary", "date", "timestamp", "timestamp_ntz")
ALLOWED: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(NUMBERS, (*NUMBERS, "boolean", "string", "timestamp")),
    "boolean": (*NUMBERS, "string"),
    "string": (*NUMBERS, "boolean", "binary", "date", "timestamp", "timestamp_ntz"),
    "binary": (),
    "date": ("string", "timestamp", "timestamp_ntz"),
    "timestamp": (*NUMBERS, "string", "date", "timestamp_ntz"),
    "timestamp_ntz": ("string", "date", "timestamp"),
    "array<int>": ("string",),
    "map<string,int>": ("string",),
    "struct<a:int>": ("string",),
}


@pytest.mark.parametrize("old", ALLOWED)
def test_casts(old: str) -> None:
    types = (*NUMBERS, *OTHERS, "struct<b:int>", "array<string>", "variant")
    found = [new for new in types if new != old and can_cast(parse_type(old), parse_type(new))]
    assert sorted(found) == sorted(new for new in ALLOWED[old] if new != old)
