"""Groups of files: which directories name the partition, and which files share their values."""

from __future__ import annotations

import pyarrow as pa

from widen.files.scan_groups import LITERAL_PARTITIONS, ScanPlan, group_files
from widen.log.file_list import FILES
from widen.model.types import LONG, STRING, Field, StructType
from widen.protocol.data_skipping import UnknownPredicate

SCHEMA = StructType((Field("a", LONG), Field("p", STRING), Field("q", LONG)))
PLAN = ScanPlan(UnknownPredicate(), SCHEMA, "none", ("p", "q"))
VECTOR = {"storage_type": "u", "path_or_inline_dv": "x", "size_in_bytes": 1, "cardinality": 1}


def files(*rows: tuple[str, str | None, str | None]) -> pa.Table:
    """Each file is in a chunk of its own, like the files of small commits."""
    parts = [{"path": path, "partition_values": [("q", q), ("p", p)]} for path, p, q in rows]
    return pa.concat_tables([pa.Table.from_pylist([part], FILES) for part in parts])


def test_files_whose_directories_name_the_partition_are_one_group() -> None:
    found = list(
        group_files(
            PLAN,
            files(
                ("p=x/q=1/f1", "x", "1"),
                ("p=x/q=2/f2", "x", "2"),
                ("p=x/q=1/f3", "y", "1"),
                ("p=__HIVE_DEFAULT_PARTITION__/q=1/f4", None, "1"),
                ("f5", "x", "1"),
                ("/elsewhere/p=x/q=1/f6", "x", "1"),
                ("f7", "x", None),
                ("p=x/q=1/f8", "x", "1"),
            ),
        )
    )
    assert [(each.files["path"].to_pylist(), each.is_hive, each.values) for each in found] == [
        (["p=x/q=1/f1", "p=x/q=2/f2", "p=__HIVE_DEFAULT_PARTITION__/q=1/f4", "p=x/q=1/f8"], True, None),
        (["p=x/q=1/f3"], False, {"p": "y", "q": "1"}),
        (["f5", "/elsewhere/p=x/q=1/f6"], False, {"p": "x", "q": "1"}),
        (["f7"], False, {"p": "x", "q": None}),
    ]


def test_many_partitions_without_directories_are_joined_and_vectors_apart() -> None:
    rows = files(*((f"f{number}", str(number), None) for number in range(LITERAL_PARTITIONS + 2)))
    vectors = pa.array([VECTOR, *[None] * (LITERAL_PARTITIONS + 1)], FILES.field("deletion_vector").type)
    rows = rows.set_column(FILES.get_field_index("deletion_vector"), "deletion_vector", vectors)
    first, second = group_files(PLAN, rows)
    assert (first.files.num_rows, first.has_vectors, first.values) == (LITERAL_PARTITIONS + 1, False, None)
    assert (second.files["path"].to_pylist(), second.has_vectors, second.values) == (
        ["f0"],
        True,
        {"p": "0", "q": None},
    )
