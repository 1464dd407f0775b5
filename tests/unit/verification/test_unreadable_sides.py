"""A proof in which neither side can be read is not a success."""

from __future__ import annotations

from pathlib import Path

from widen.evolution.policy import Policy
from widen.model.types import STRING, Field, StructType
from widen.proof.record_digests import RowDigester
from widen.proof.row_encoder import RecordLayout
from widen.sources.listing import SourceFile
from widen.verification.records import UNREADABLE, ColumnFiles, TaskShare, _sum_column_files

ALL = 2**32
SCHEMA = StructType((Field("v", STRING),))


def test_a_file_of_the_source_matches_no_file_of_the_table(tmp_path: Path) -> None:
    place = tmp_path / "damaged.parquet"
    place.write_bytes(b"PAR1 damaged")
    file = SourceFile(f"file:{place}", place.stat().st_size, 0, place.as_uri())
    source = _sum_column_files([ColumnFiles((file,), SCHEMA)], TaskShare(0, 1, RecordLayout(), ALL))
    rows = RowDigester(SCHEMA, Policy(), RecordLayout(), ALL)
    rows.add_encoded(UNREADABLE)
    assert (source.records, rows.sum().records) == (1, 1)
    assert source.digest != rows.sum().digest
