"""Damaged footers of Parquet files: PyArrow is never asked what would end the process."""

from __future__ import annotations

import io
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from widen.log.parquet_footers import ensure_chunks_readable, find_damaged_footers

# Every bit of the footer is flipped in a process of its own, which must come to its end.
ASK = """
import io, resource, sys
import pyarrow as pa, pyarrow.parquet as pq
from widen.log.parquet_footers import ensure_chunks_readable, read_statistics

resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
sink = io.BytesIO()
rows = pa.table({"n": [1, None], "s": ["a", "b"], "l": [[1, None], None]})
pq.write_table(rows, sink, write_page_index=False)
good = sink.getvalue()
size = int.from_bytes(good[-8:-4], "little")
damaged = 0
for at in range(len(good) - 8 - size, len(good) - 8):
    for bit in range(8):
        data = bytearray(good)
        data[at] ^= 1 << bit
        try:
            footer = pq.read_metadata(io.BytesIO(data))
            ensure_chunks_readable(footer)
            for group in range(footer.num_row_groups):
                for index in range(footer.num_columns):
                    footer.row_group(group).column(index).total_compressed_size
                    read_statistics(footer, group, index)
        except (pa.ArrowException, OSError, ValueError, MemoryError, UnicodeDecodeError):
            damaged += 1
print(damaged)
"""


def test_no_damaged_footer_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", ASK], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 100


def footer(*names: str) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(pa.table({name: [1] for name in names}), sink)
    return pq.read_metadata(sink)


def test_footers_of_several_schemas_are_checked_together() -> None:
    footers = [footer("a"), footer("a"), footer("b", "c"), footer(), footer("a")]
    assert find_damaged_footers(footers) == {}
    assert [each.num_row_groups for each in footers] == [1, 1, 1, 1, 1]
    for each in footers:
        ensure_chunks_readable(each)
