"""Metadata of columns whose values are not texts, as clients write them back that keep metadata as texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from widen.model.schema_json import TYPES_OF_METADATA, from_json, has_metadata_as_text, to_json

VALUES: dict[str, Any] = {
    "delta.columnMapping.id": 7,
    "delta.columnMapping.nested.ids": {"a.element": 8},
    "delta.typeChanges": [{"fromType": "short", "toType": "integer"}],
    "delta.identity.start": -1,
    "delta.identity.step": 3,
    "delta.identity.highWaterMark": 4611686018427387904,
    "delta.identity.allowExplicitInsert": False,
    "__COLLATIONS": {"a": "ICU.de_DE"},
    "parquet.field.id": 7,
    "widen.source": ["a", 'b "c"'],
    "widen.aliases": ["n2"],
}


def schema(**metadata: Any) -> str:
    inner = {"name": "b", "type": "long", "nullable": True, "metadata": metadata}
    listed = {"type": "array", "elementType": {"type": "struct", "fields": [inner]}, "containsNull": True}
    outer = {"name": "a", "type": listed, "nullable": True, "metadata": metadata}
    return json.dumps({"type": "struct", "fields": [outer]})


def test_every_key_has_a_value_here() -> None:
    assert VALUES.keys() == TYPES_OF_METADATA.keys()


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("key", VALUES)
def test_a_value_that_was_written_as_text_is_read_and_written_as_a_value(key: str, times: int) -> None:
    value: Any = VALUES[key]
    for _ in range(times):
        value = json.dumps(value)
    told, right = schema(**{key: value}), schema(**{key: VALUES[key]})
    assert has_metadata_as_text(told)
    assert not has_metadata_as_text(right)
    assert from_json(told) == from_json(right)
    assert json.loads(to_json(from_json(told))) == json.loads(right)


@pytest.mark.parametrize("key", VALUES)
@pytest.mark.parametrize("text", ["", "x", "null", '"', "1.5", '["'])
def test_a_text_of_something_else_is_kept(key: str, text: str) -> None:
    kept = dict(from_json(schema(**{key: text})).fields[0].metadata)
    assert kept == ({} if key.startswith("widen.") else {key: text})


@pytest.mark.parametrize("source", [[], [1], {"a": 1}, 1, None, "a"])
def test_a_source_that_is_not_a_path_is_none(source: Any) -> None:
    assert from_json(schema(**{"widen.source": source})).fields[0].metadata == {}


@pytest.mark.parametrize("key", ["comment", "delta.generationExpression", "CURRENT_DEFAULT", "widen.form", "x.y"])
def test_other_keys_keep_texts(key: str) -> None:
    told = schema(**{key: '["id"]', "comment": '"widen.source":"[]"'})
    assert from_json(told).fields[0].metadata[key] in ('["id"]', '"widen.source":"[]"')
    assert not has_metadata_as_text(told)
