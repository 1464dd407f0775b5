"""Literals of Spark SQL and the texts that they stand for."""

from __future__ import annotations

LITERALS = [
    (r"'a''b'", "a'b"),
    (r"'a\'b'", "a'b"),
    ('"a""b"', 'a"b'),
    ("\"a''b\"", "a''b"),
    ("'a\"\"b'", 'a""b'),
    (r"r'a\nb'", r"a\nb"),
    (r'R"a\"', "a\\"),
    (r"'\u00e4'", "ä"),
    (r"'\U0001F600'", "😀"),
    (r"'\ud83d\ude00'", "😀"),
    (r"'\101'", "A"),
    (r"'\%x\_'", r"\%x\_"),
    (r"'\q\Z\0'", "q\x1a\0"),
    (r"'\\n\n\t\r\b'", "\\n\n\t\r\b"),
    ("'line\nbreak'", "line\nbreak"),
]
