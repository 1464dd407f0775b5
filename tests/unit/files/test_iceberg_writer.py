"""What tasks count in the rows that they write to Iceberg tables."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widen.errors import InvalidOption
from widen.files.data_writer import PartFile, PartWriter
from widen.files.iceberg_writer import IcebergLayout, IcebergWriters
from widen.frames.table_writers import IcebergWriter
from widen.iceberg.file_metrics import FileMetrics, leaf_ids
from widen.iceberg.schema_conversion import from_model, to_model
from widen.log.log_store import LogStore
from widen.model.types import DOUBLE, FLOAT, LONG, ArrayType, Field, StructType


def test_files_are_as_the_table_properties_say(tmp_path: Path) -> None:
    schema = to_model(from_model(StructType((Field("n", LONG),))))
    properties = {
        "write.parquet.compression-codec": "gzip",
        "write.parquet.compression-level": "1",
        "write.target-file-size-bytes": "3000",
    }
    rows = pa.table({"n": list(range(1000))})

    def write(**changed: str) -> list[PartFile]:
        sink = IcebergWriter(LogStore(str(tmp_path)), schema, (), properties | changed)._new_sink()
        writer = PartWriter(sink, sink.schema)
        for batch in rows.to_batches(max_chunksize=100) * 4:
            writer.write(batch.cast(sink.schema))
        return writer.close()

    parts = write()
    assert len(parts) > 1
    footers = [pq.read_metadata(tmp_path / part.path) for part in parts]
    assert {footer.row_group(0).column(0).compression for footer in footers} == {"GZIP"}
    assert sum(footer.num_rows for footer in footers) == 4000
    smaller = write(**{"write.parquet.compression-level": "9", "write.target-file-size-bytes": "1000000000"})
    assert len(smaller) == 1
    for name, value in (
        ("write.target-file-size-bytes", "0"),
        ("write.parquet.compression-level", "much"),
        ("write.parquet.compression-codec", "zip"),
        ("write.metadata.metrics.max-inferred-column-defaults", "all"),
        ("write.metadata.metrics.max-inferred-column-defaults", "-1"),
    ):
        with pytest.raises(InvalidOption, match=f"{name} cannot be"):
            write(**{name: value})


def test_nan_is_counted_outside_of_lists(tmp_path: Path) -> None:
    inner = StructType((Field("x", FLOAT),))
    columns = (
        Field("d", DOUBLE),
        Field("n", LONG),
        Field("s", inner),
        Field("l", ArrayType(DOUBLE)),
        Field("e", DOUBLE),
    )
    schema = to_model(from_model(StructType(columns)))
    ids = {".".join(path): number for path, number, _ in leaf_ids(schema)}
    nan = float("nan")
    rows = pa.table(
        {
            "d": [1.5, nan, None, nan],
            "n": [1, 2, 3, 4],
            "s": pa.array([{"x": nan}, None, {"x": None}, {"x": 2.0}], pa.struct([("x", pa.float32())])),
            "l": [[nan], None, [], [1.0]],
            "e": pa.array([None] * 4, pa.float64()),
        }
    )

    def nans(properties: Mapping[str, str]) -> dict[int, int]:
        sink = IcebergWriter(LogStore(str(tmp_path)), schema, (), properties)._new_sink()
        writer = PartWriter(sink, sink.schema)
        for batch in rows.cast(sink.schema).to_batches() * 2:
            writer.write(batch)
            writer._write_group()
        (part,) = writer.close()
        columns = msgspec.json.decode(part.stats, type=FileMetrics).columns
        return {number: each.nans for number, each in columns.items() if each.nans is not None}

    assert nans({}) == {ids["d"]: 4, ids["s.x"]: 2, ids["e"]: 0}
    assert nans({"write.metadata.metrics.column.d": "none"}) == {ids["s.x"]: 2, ids["e"]: 0}


def test_a_file_that_cannot_be_finished_is_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schema = to_model(from_model(StructType((Field("n", LONG),))))
    sink = IcebergWriter(LogStore(str(tmp_path)), schema)._new_sink()
    writers = IcebergWriters(IcebergLayout(sink, ()))

    def refuse(_: PartWriter) -> None:
        raise OSError("no space")

    monkeypatch.setattr(PartWriter, "_finish", refuse)
    writers.write(pa.table({"n": [1]}).cast(sink.schema))
    with pytest.raises(OSError, match="no space"):
        writers.close()
    assert len([*tmp_path.rglob("*.parquet")]) == 1
    writers.discard()
    assert [*tmp_path.rglob("*.parquet")] == []
