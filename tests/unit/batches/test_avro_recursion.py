"""Which record of an Avro schema contains itself, and where."""

from __future__ import annotations

import json
from typing import Any

import pytest

from widen.batches.typed_frames import find_recursion
from widen.model.column_path import Path


def record(name: str, *fields: tuple[str, Any], space: str | None = None) -> dict[str, Any]:
    own = {} if space is None else {"namespace": space}
    return {"type": "record", "name": name, **own, "fields": [{"name": each, "type": of} for each, of in fields]}


LINE = record("Line", ("n", "long"), ("of", ["null", "shop.Order"]))


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        (record("r", ("n", "long"), ("r", ["null", "r"])), ("r", ("r",))),
        (record("Order", ("n", "long"), ("next", ["null", "Order"]), space="shop"), ("shop.Order", ("next",))),
        (
            record("Order", ("lines", {"type": "array", "items": LINE}), space="shop"),
            ("shop.Order", ("lines", "element", "of")),
        ),
        (record("a.Order", ("m", {"type": "map", "values": "Order"})), ("a.Order", ("m", "value"))),
        (record("o", ("x", record("i", ("y", {"type": ["null", "i"]})))), ("i", ("y",))),
        ([record("o", ("x", "long")), "null"], None),
        # The same name in another namespace, and a record that is used twice, are no recursion.
        (record("o", ("x", record("o", ("n", "long"), space="b")), space="a"), None),
        (record("o", ("x", record("i", ("n", "long"))), ("y", "i")), None),
        (
            record(
                "o",
                ("x", {"type": "enum", "name": "e", "symbols": ["A"]}),
                ("y", {"type": "fixed", "name": "f", "size": 2}),
            ),
            None,
        ),
        ("long", None),
    ],
)
def test_the_record_and_its_field_are_found(schema: Any, found: tuple[str, Path] | None) -> None:
    assert find_recursion(json.loads(json.dumps(schema))) == found
