"""Generated JSON texts that drift, at the edges of numbers, names, escapes and shapes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

NUMBERS = (
    *("0", "-0", "-0.0", "0.0", "0e0", "-0e5", "1", "7", "1.0", "1.10", "1e3", "1E3", "1e-3", "-5", "120.0"),
    *("127", "128", "2147483647", "2147483648", "-2147483648", "-2147483649"),
    *("9007199254740991", "9007199254740992", "9007199254740993", "-9007199254740993", "9007199254740993.0"),
    *("9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809"),
    *("1000000000000000000", "1152921504606846976", "18446744073709551615", "18446744073709551616"),
    *("100000000000000000000", "1e19", "1e22", "1e23", "1e300", "1e308", "1e309", "1e400", "1e-400", "4.9e-324"),
    *("0.1", "0.30000000000000004", "1.7976931348623157e308", "123456789.123456789", "12345678901234567.89"),
    *("0.1000000000000000000001", "3.1415926535897932384626433832795028842", "2.50", "1.0000000000000000000"),
    *("9" * 38, "9" * 39, "-" + "9" * 38, "0." + "0" * 37 + "1", "0." + "1" * 39, "9" * 400, "1" + "0" * 400),
    *("1e38", "1e37", "1e999999999", "1e99999999999999999999", "1.5e1", "10.00", "1700000000", "1700000000123"),
    *("0.5" + "0" * 6000, "9" * 5000, "0." + "9" * 6000, "1e2000000", "1e-2000000", "1" + "0" * 30 + "." + "0" * 50),
)
"""Number tokens at the edges of the types, and in spellings that say the same."""

STRINGS = (
    *(
        '""',
        '"x"',
        '"12"',
        '"true"',
        '"null"',
        '"a\\"b"',
        '"a\\\\"',
        '"\\\\\\""',
        '"\\u0022:"',
        '"\\u0000"',
        '"\\n\\t"',
    ),
    *(
        '"{\\"a\\":1}"',
        '"a: b, \\"a\\": 1"',
        '"é😀"',
        '"\\ud83d\\ude00"',
        '"\\u00e9"',
        '"\u2028"',
        '"\\/"',
        '":"',
        '"1e400"',
    ),
    *('"2024-05-01"', '"2024-02-30"', '"0001-01-01"', '"9999-12-31"', '"2024-05-01T10:00:00Z"'),
    *('"2024-05-01T00:00:00Z"', '"1970-01-01T00:00:00.001000Z"', '"2024-05-01T10:00:00.123456Z"'),
    *('"2024-05-01T10:00:00+00:00"', '"2024-05-01T10:00:00.1234567Z"'),
    *('"2024-05-01T10:00:00+02:00"', '"2024-05-01T10:00:00"', '"\\u0032024-05-01"'),
    *('"NaN"', '"' + "y" * 300 + '"', '"\ufeff"', '"\x7f"'),
)
"""Texts that get in the way of those who count quotes."""

KEYS = (
    *("a", "b", "A", "a b", "a_string", "a_long", "a_double", "a_array_string", "a_record", "a_string_2", "a_b", "a.b"),
    *("_rescued", "_corrupt_record", "", "_", 'q"', "back\\", '":', "é", "😀", "\x00", "`", "ß", "SS", "_widen_note"),
)
"""Keys that get into each other's way."""

BAD = (
    *(
        b'{"a":1,"a":2}',
        b'{"a":{"b":1,"b":1}}',
        b'{"a":[{"b":1,"\\u0062":2}]}',
        b'{"a" : 1 , "a"\t: 1}',
        b'{"a":1,"\\u0061":2}',
    ),
    *(
        b'{"a":NaN}',
        b'{"a":Infinity}',
        b'{"a":-Infinity}',
        b'{"a":"\\ud800"}',
        b'{"\\udc00":1}',
        b'{"a":"\xff"}',
        b"\xff\xfe",
    ),
    *(
        b'{"a":1',
        b"nothing",
        b"7",
        b'"x"',
        b"null",
        b"[1,2]",
        b'[{"a":1},2]',
        b'{"a":01}',
        b'{"a":1}x',
        b"{'a':1}",
        b'{"a":1,}',
    ),
    *(b'{"a":"\x01"}', b'{"a":.5}', b'{"a":+1}', b'{"a":1.}', b'{"a":"x","a":"x"}', b'{"x":1,"x":1}'),
    *(b'{"a":1,"a":"\\u003ax"}', b'{"a":1,"a":"\\u0020:"}', b'{"a":":","a":"\\n"}', b'{"a":{"b":1,"b":"\\u003A"}}'),
    *(b'[{"a":1},{"a":1,"a":"\\u003a"}]', b'{"a\\\\":1,"a\\\\":2}', b'{"\\"a\\":":1,"\\"a\\":":1}'),
)
"""Texts that are no record, or none that can be kept exactly."""

_keys = st.sampled_from(KEYS)
_scalars = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(STRINGS),
    st.sampled_from(("true", "false", "null")),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.text(st.characters(codec="utf-8"), max_size=5).map(json.dumps),
)
_spaces = st.sampled_from(("", "", "", " ", "\t "))


@st.composite
def _record_texts(draw: Any, values: st.SearchStrategy[str], keys: st.SearchStrategy[str] = _keys) -> str:
    space = draw(_spaces)
    ascii_too = draw(st.booleans())
    pairs = draw(st.dictionaries(keys, values, max_size=4))
    items = (f"{json.dumps(key, ensure_ascii=ascii_too)}{space}:{space}{value}" for key, value in pairs.items())
    return "{" + f"{space},".join(items) + space + "}"


def _arrays(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")


_values = st.one_of(
    _scalars,
    _arrays(_scalars),
    st.recursive(_scalars, lambda inner: st.one_of(_arrays(inner), _record_texts(inner)), max_leaves=8),
)

records = st.one_of(
    _values.map(lambda value: '{"a":' + value + "}"),
    _values.map(lambda value: '{"a":{"b":' + value + "}}"),
    st.tuples(_values, _values).map(lambda two: '{"a":' + two[0] + ',"a_string":' + two[1] + "}"),
    _record_texts(_values),
).map(str.encode)
"""Records, mostly of fields that meet other types of themselves."""

texts = st.one_of(
    records,
    records,
    records,
    st.lists(records, max_size=3).map(lambda items: b"[" + b",".join(items) + b"]"),
    st.sampled_from(BAD),
)
batches = st.lists(texts, min_size=1, max_size=5)
