from __future__ import annotations

import pytest

from widen.sources.json_frames import begins_with_line


@pytest.mark.parametrize(
    ("head", "has_line"),
    [
        (b'{"a":1}\n{"a":', True),
        (b'\xef\xbb\xbf {"a":1}\n', True),
        (b'{"a":1}', False),
        (b'{"a":\n1}\n', False),
        (b'[{"a":1}]\n', False),
        (b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n", False),
    ],
)
def test_a_file_begins_with_a_line_if_it_is_one_value(head: bytes, has_line: bool) -> None:
    assert begins_with_line(head) is has_line
