"""Generated files of odd JSON: elements, lines, arrays, documents and damage of every kind, with fixed seeds."""

from __future__ import annotations

import random

GOOD = (
    b'{"a":%d}',
    b'{"a":%d,"b":"x"}',
    b' {"a":%d}',
    b'{"b":{"c":[%d,2]},"a":1}',
    b'{"a":%d,"b":"} , {"}',
    b'{"a":%d,"b":"\\"]"}',
    b'{"a":%d,"b":"[{"}',
    b'{"a": %d, "b": "\xc3\xa9"}',
)
"""Records; each has a number of its own."""

ODD = (
    # RFC 8259 has none of these.
    b'{"a":NaN}',
    b'{"a":-Infinity}',
    b'{"a":Infinity,"b":"x"}',
    b'{"a":[NaN,1],"b":{"c":[NaN]}}',
    b'{"a":NaN,"a":1}',
    b'{"a":NaN,"b":"\\ud800"}',
    b'{"a":NaN,"b":"NaN"}',
    b'{"a":nan}',
    b'{"a":+Infinity}',
    b'{"a":-NaN}',
    b'{"a":"NaN"}',
    b"NaN",
    b"[NaN]",
    b'{"a":NaN} {"a":2}',
    b'{"d":' + b"[" * 60 + b"NaN" + b"]" * 60 + b"}",
    b'{"a":01}',
    b'{"a":+1}',
    b'{"a":.5}',
    b'{"a":1.}',
    b'{"a":0x1F}',
    b'{"a":1,}',
    b"{'a':1}",
    b"{a:1}",
    b'{"a":True}',
    b'{"a":undefined}',
    b'{"a"}',
    b'{"a":}',
    b'{"a":1 "b":2}',
    b'{"a":"\\x41"}',
    b'{"a":"\t"}',
    b'{"a":"\x00"}',
    b'{"a":"line\nline"}',
    b'{/* why */"a":1}',
    b'{"a":1}// why',
    # Valid JSON that a table cannot hold as columns, or that is no record.
    b'{"a":1,"a":2}',
    b'{"a":"\\ud800"}',
    b'{"a":"\\udc00\\ud800"}',
    b'{"\\ud800":1}',
    b'{"a":"\xff"}',
    b'{"a":"\xed\xa0\x80"}',
    b"\xff",
    b"7",
    b'"text"',
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'[{"a":1},{"a":2}]',
    b'[{"a":1},{"a":NaN},3]',
    b"[1,[2]]",
    b'[[{"a":1}]]',
    b'{"a":1e400}',
    b'{"a":%b}' % (b"9" * 60),
    b'{"d":' + b"[" * 60 + b"]" * 60 + b"}",
    b'{"d":' + b"[" * 250 + b"]" * 250 + b"}",
    b'{"d":' + b'{"d":' * 250 + b"1" + b"}" * 251,
    # Brackets and quotes that do not match.
    b'{"a":1',
    b'{"a":1}}',
    b'{"a":[1,2}',
    b'{"a":1]',
    b'{"a":"x}',
    b'{"a:1}',
    b'{"a":{"b":1}',
    b"]",
    b"}",
    b'"',
    b"[",
    b"{",
    # What stands between records.
    b"",
    b" ",
    b",",
    b'\xef\xbb\xbf{"a":1}',
    b"\x0b",
    b"\xc2\xa0",
    b"# comment",
    b"--",
    b'{"a":1} {"a":2}',
    b'{"a":1}{"a":2}',
    b'{"a":1},{"a":2}',
)
"""Elements and lines that are not one record each."""

SEPARATORS = (b",", b",\n", b" ,\n  ", b"\n", b"\r\n", b"\r", b" ", b"", b",,", b"\n\n", b",\r\n")


def odd_file(chance: random.Random) -> bytes:
    """Return the content of a file."""
    count = chance.choice((1, 1, 2, 3, 3, 4, 6, 9))
    oddness = chance.choice((0.0, 0.2, 0.2, 0.5, 1.0))
    items = [
        chance.choice(ODD) if chance.random() < oddness else chance.choice(GOOD) % (10 * number + chance.randrange(10))
        for number in range(count)
    ]
    shape = chance.choice(("array", "array", "array", "lines", "lines", "pretty", "mixed"))
    if shape == "array":
        separator = chance.choice(SEPARATORS[:3]) if chance.random() < 0.8 else chance.choice(SEPARATORS)
        edge = chance.choice((b"", b"", b"\n", b" \n "))
        data = chance.choice((b"[", b"[", b"[", b"[", b"")) + edge + separator.join(items)
        data += edge + chance.choice((b"]", b"]", b"]", b"]", b",]", b"", b"]]", b"]\n[]", b"] x"))
    elif shape == "lines":
        end = chance.choice((b"\n", b"\n", b"\r\n", b"\r"))
        data = end.join(items) + chance.choice((b"", end))
    elif shape == "pretty":
        data = b"\n".join(item.replace(b",", b",\n ").replace(b"{", b"{\n ") for item in items)
        data = b"[\n" + data.replace(b"}\n{", b"},\n{") + b"\n]" if chance.random() < 0.5 else data
    else:
        data = b"".join(item + chance.choice(SEPARATORS) for item in items)
    if chance.random() < 0.1:
        data = data[: chance.randrange(len(data) + 1)]
    if chance.random() < 0.1 and data:
        at = chance.randrange(len(data))
        data = data[:at] + bytes([chance.choice(b'"{}[],\\\n \xff')]) + data[at + chance.randrange(2) :]
    return chance.choice((b"", b"", b"", b"\xef\xbb\xbf", b" \n")) + data
