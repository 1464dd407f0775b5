"""How the tasks of the proof share files: each line and each whole file is read once, wherever the bytes are cut."""

from __future__ import annotations

from io import BytesIO

import pytest

from widen.proof.proof_files import ProofFile, find_parts, read_proof_blocks

LINES = [b'{"n":%d}' % number + b" " * (number % 7) for number in range(40)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("last", [b"", b"\n"])
@pytest.mark.parametrize("block_bytes", [1, 7, 64, 4096])
def test_every_line_is_read_once(end: bytes, last: bytes, block_bytes: int) -> None:
    data = end.join(LINES) + last
    for tasks in (1, 2, 3, 17, len(data) + 5):
        found: list[bytes] = []
        for task in range(tasks):
            for part in find_parts([ProofFile("lines", len(data), False)], task, tasks):
                blocks = read_proof_blocks(BytesIO(data), part.start, part.end, block_bytes)
                found += [line for block in blocks for line in block.splitlines()]
        assert found == LINES


def test_every_whole_file_is_read_once_and_only_what_was_listed_of_files_with_lines() -> None:
    files = [ProofFile(str(number), size, True) for number, size in enumerate((5, 1, 0, 90, 3))]
    for tasks in (1, 2, 7, 200):
        parts = [part for task in range(tasks) for part in find_parts(files, task, tasks)]
        assert [part.file.uri for part in parts] == ["0", "1", "3", "4"]
    assert list(read_proof_blocks(BytesIO(b"1\n2\n3\n"), 0, 4)) == [b"1\n2\n"]
    assert list(read_proof_blocks(BytesIO(b"1\n"), 0, 4)) == [b"1\n"]
