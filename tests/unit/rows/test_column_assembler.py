from __future__ import annotations

import msgspec
import pytest

from widen.rows.column_assembler import is_changed, is_encoded
from widen.rows.row_builder import find_key_orders


@pytest.mark.parametrize(
    ("text", "encoded", "changed"),
    [
        ('{"a":1,"b":"x"}', True, False),
        ('{"a": 1, "b": [1, 2.5]}', True, False),
        ('{"a":"é"}', True, False),
        ('{"a":-0.0}', True, False),
        ('{"a":1e19}', True, False),
        ('{"a":"\\u00e9"}', False, False),
        ('{"a":1.10}', False, False),
        ('{"a":1E3}', False, False),
        ('{"a":"1e5","b":1.0000}', False, False),
        ('{"a":-0}', False, True),
        ('{"a": [ -0]}', False, True),
        ('{"a":0.1000000000000000000001}', False, True),
        ('{"a":1,"a":1}', False, True),
        ('{"a":{"b":1,"b":"\\u00e9"}}', False, True),
    ],
)
def test_only_what_the_encoder_would_not_write_is_searched_for_losses(text: str, encoded: bool, changed: bool) -> None:
    decoded = msgspec.json.decode(text)
    assert is_encoded(text.encode(), decoded) is encoded
    assert is_changed(text.encode(), decoded) is changed


def test_keys_have_the_order_of_the_texts_and_a_new_key_follows_the_one_before_it() -> None:
    texts = [b'{"b":1,"a":{"y":1,"x":2}}', b'{"b":1,"c":[{"n":1},{"m":2,"n":3}],"a":{"z":0}}', b"no record", b"\xff"]
    assert find_key_orders(texts) == {
        (): ["b", "c", "a"],
        ("a",): ["z", "y", "x"],
        ("c",): ["m", "n"],
    }
