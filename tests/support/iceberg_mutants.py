"""Mutants of Iceberg tables: damaged metadata, manifests, delete files and catalogs, each read in this process.

Run as a program: ``iceberg_mutants.py FOLDER FIRST_SEED COUNT`` prints what went wrong, as JSON lines.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import sqlite3
import sys
import traceback
import zlib
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, clear_manifest_cache
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DateType, DecimalType, ListType, LongType, MapType, NestedField, StringType, StructType

from support import iceberg_files as files
from support.log_mutants import MEMORY_BYTES, OUTSIDE, SECONDS, TIMERS, _bytes, _json, _parquet, _where, limited_time
from widen.errors import WidenError
from widen.evolution.policy import Policy
from widen.files import iceberg_columns
from widen.files.predicates import bind_condition
from widen.frames import iceberg_scan as deleted_rows
from widen.frames.iceberg_scan import POSITION_DELETES
from widen.iceberg.catalog import to_table_name
from widen.iceberg.column_defaults import initial_defaults
from widen.iceberg.metadata_files import first_row_ids, live_entries
from widen.iceberg.puffin import read_vectors
from widen.iceberg.row_ids import with_row_id_metadata
from widen.iceberg.scan_plan import DeleteKind, plan_scan
from widen.iceberg.schema_conversion import to_model
from widen.iceberg.snapshots import SnapshotReference, find_read_point
from widen.iceberg.table_commit import ensure_table_writable, open_transaction
from widen.log.commit_outcome import StagedFiles
from widen.report.iceberg_report import build_iceberg_report
from widen.table import IcebergTable
from widen.targets.iceberg import IcebergLocation

NAME = "ns.t"
COLUMNS = [
    files.field("id", pa.int64(), 1), files.field("day", pa.date32(), 2), files.field("text", pa.string(), 3),
]  # fmt: skip
SCHEMA = Schema(
    NestedField(1, "id", LongType(), False),
    NestedField(2, "day", DateType(), False, doc="a day"),
    NestedField(3, "text", StringType(), False),
    NestedField(4, "s", StructType(NestedField(5, "x", DecimalType(9, 2), False)), False),
    NestedField(6, "l", ListType(7, StringType(), False), False),
    NestedField(8, "m", MapType(9, StringType(), 10, LongType(), False), False),
)
ROWS = [{"id": number, "day": None, "text": "x" * number} for number in range(5)]


def make_seeds(folder: Path) -> list[Path]:
    """Write one table for each kind of metadata. Their files name this folder, so mutants are made in it."""
    return [_made(folder / kind, kind) for kind in ("v1", "v2", "v2-gzip", "v3")]


def _made(folder: Path, kind: str) -> Path:
    folder.mkdir(parents=True)
    catalog = with_row_id_metadata(files.embedded_catalog(folder))
    by = PartitionSpec(
        PartitionField(2, 1000, DayTransform(), "d"), PartitionField(1, 1001, IdentityTransform(), "i"),
        PartitionField(3, 1002, TruncateTransform(4), "t"),
    )  # fmt: skip
    properties = {"format-version": kind[1], "schema.name-mapping.default": '[{"field-id":1,"names":["id"]}]'}
    if kind.endswith("gzip"):
        properties["write.metadata.compression-codec"] = "gzip"
    mark = {"widen.sources": '{"v":1,"c":{"1":"id","2":"day"}}', "widen.stream.s": "3", "widen.loads": "1"}
    table = catalog.create_table(NAME, SCHEMA, partition_spec=by, properties={**properties, **mark})
    details = {
        "value_counts": {1: 5, 2: 5, 3: 5}, "null_value_counts": {1: 0, 2: 5, 3: 0}, "column_sizes": {1: 9},
        "lower_bounds": {1: bytes(8), 3: b""}, "upper_bounds": {1: b"\x04" + bytes(7), 3: b"xxxx"},
        "partition": Record(0, 0, "xx"),
    }  # fmt: skip
    paths = [files.write_file(table, COLUMNS, ROWS) for _ in range(3)]
    for path in paths:
        if kind == "v3":
            commit(folder / "catalog.db", [files.data_file(path, 5, **details)])
        else:
            files.append(table, files.data_file(path, 5, **details))
    if kind == "v3":
        commit(folder / "catalog.db", [], paths[:1])
        table.refresh()
    if kind == "v2":
        place = {"partition": Record(0, 0, "xx")}
        files.append_deletes(
            table,
            files.position_deletes(table, [(paths[0], 1)], **place),
            files.equality_deletes(table, COLUMNS[:1], [{"id": 2}], [1], **place),
            files.deletion_vector(table, {paths[1]: [3]}, **place),
        )
    with table.update_schema() as update:
        update.add_column("new", LongType())
    return folder


def commit(catalog: Path, added: list[DataFile], removed: Sequence[str] = ()) -> None:
    """Add and remove files of the table as Widen does."""
    name = to_table_name(NAME, str(catalog))
    table = name.load()
    ensure_table_writable(name, table)
    listed = [each.data_file for each in live_entries(table.metadata, table.io, table.current_snapshot())]
    transaction = open_transaction(name, table, ())
    transaction.add_snapshot(added, {}, [file for file in listed if not removed or file.file_path in removed][:1])
    transaction.commit(StagedFiles())


# ---- mutations ----------------------------------------------------------------------------------------


def mutate(chance: random.Random, folder: Path) -> str:
    """Change one file of a table, and tell which and how."""
    found = sorted(path for path in folder.rglob("*") if path.is_file())
    newest = max((path for path in found if ".metadata.json" in path.name), key=lambda path: path.stat().st_mtime_ns)
    rest = [path for path in found if ".metadata.json" not in path.name]
    path = newest if chance.random() < 0.45 else chance.choice(rest)
    how, name = chance.random(), path.relative_to(folder).as_posix()
    if how < 0.02:
        path.unlink()
        return f"{name} deleted"
    if how < 0.03:
        path.unlink()
        path.mkdir()
        return f"{name} is a folder"
    data = path.read_bytes()
    if path.suffix == ".json" and how < 0.85 and data[:1] == b"{":
        path.write_bytes(_json(chance, data))
    elif path.suffix == ".db" and how < 0.6:
        return f"{name} {_catalog(chance, path)}"
    elif path.suffix == ".parquet" and how < 0.6:
        _parquet(chance, path)
        return f"{name} another column"
    elif path.suffix == ".avro" and how < 0.6:
        return f"{name} {_avro(chance, path)}"
    else:
        path.write_bytes(_bytes(chance, data))
        return f"{name} other bytes"
    return f"{name} other values"


def _catalog(chance: random.Random, path: Path) -> str:
    value = chance.choice(
        ["/dev/zero", "/dev/stdin", "", None, "x://y", "%", "file:///etc", "\x00", 7, b"\xff", "9" * 999]
    )
    column = chance.choice(["metadata_location", "table_name", "table_namespace", "catalog_name", "iceberg_type"])
    with sqlite3.connect(path) as connection:
        if chance.random() < 0.2:
            connection.execute(
                f"ALTER TABLE iceberg_tables DROP COLUMN {chance.choice(['metadata_location', 'iceberg_type'])}"
            )
            return "without a column"
        try:
            connection.execute(f"UPDATE iceberg_tables SET {column} = ?", (value,))
        except sqlite3.Error:
            return "unchanged"
    connection.close()
    return f"{column} = {value!r}"


def _avro(chance: random.Random, path: Path) -> str:
    """Change the schema or another entry of the header, or bytes of the block before it is compressed.

    Source: Avro's specification, "Object Container Files"
    """
    stream = BytesIO(path.read_bytes())
    assert stream.read(4) == b"Obj\x01"
    header = {}
    while count := _long(stream):
        for _ in range(count):
            key = stream.read(_long(stream))
            header[key] = stream.read(_long(stream))
    sync, records = stream.read(16), _long(stream)
    block = stream.read(_long(stream))
    block = zlib.decompress(block, -15) if header.get(b"avro.codec") == b"deflate" else block
    if chance.random() < 0.3:
        key = chance.choice(list(header))
        header[key] = _json(chance, header[key]).strip() if header[key][:1] == b"{" else _bytes(chance, header[key])
        said = f"{key.decode()} in the header"
    else:
        said = "in its block"
        changed = bytearray(block)
        for _ in range(chance.choice((1, 1, 2, 8))):
            if changed:
                changed[chance.randrange(len(changed))] = chance.choice((0, 1, 2, 127, 128, 255, chance.randrange(256)))
        block = bytes(changed) if chance.random() < 0.8 else _bytes(chance, block)
    output = b"Obj\x01" + _varint(len(header))
    for key, value in header.items():
        output += _varint(len(key)) + key + _varint(len(value)) + value
    header_codec = header.get(b"avro.codec")
    if header_codec == b"deflate":
        packer = zlib.compressobj(wbits=-15)
        block = packer.compress(block) + packer.flush()
    records = chance.choice((records, records, records, records + 1, 2**40, 0))
    path.write_bytes(output + b"\x00" + sync + _varint(records) + _varint(len(block)) + block + sync)
    return said


def _long(stream: BytesIO) -> int:
    number, shift = 0, 0
    while True:
        (byte,) = stream.read(1)
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return (number >> 1) ^ -(number & 1)


def _varint(number: int) -> bytes:
    number, result = number << 1, b""
    while number > 127:
        result, number = result + bytes([number & 127 | 128]), number >> 7
    return result + bytes([number])


# ---- what is done with a mutant -----------------------------------------------------------------------


def use(folder: Path) -> list[str]:
    """Do everything that reads metadata; return what went wrong otherwise than by an error of ours."""
    wrong: list[str] = []
    clear_manifest_cache()
    iceberg_columns._cache.clear()

    def attempt(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except WidenError as error:
            str(error), error.hint
            return None
        except BaseException as error:  # that is what is looked for
            wrong.append("".join(traceback.format_exception_only(error)).strip()[:300] + " at " + _where(error))
            return None

    catalog = folder / "catalog.db"
    table = attempt(lambda: IcebergTable(NAME, catalog))
    if table is not None:
        ids = [entry.version for entry in attempt(table.history) or ()]
        for work in (lambda: table.schema, lambda: table.properties, table.files, table.loads, table.contract):
            attempt(work)
        attempt(lambda: build_iceberg_report(table.table, table.name))
        for version in ids:
            attempt(lambda version=version: table.schema_at(version))
            attempt(lambda version=version: table.diff(version))
            attempt(lambda version=version: _plan(table, version, None))
        for where in (None, "id > 2", "text LIKE 'x%' AND day < date'2024-01-01'", "s.x = 1.5"):
            attempt(lambda where=where: _plan(table, None, where))
    attempt(lambda: _plan_ingestion(catalog))
    if folder.name == "v3" and table is not None:
        attempt(lambda: first_row_ids(table.table.metadata, table.table.io, table.table.current_snapshot(), ["x"] * 51))
        attempt(lambda: table.set_properties({"owner": "shop"}))
        attempt(lambda: commit(catalog, []))
    return wrong


def _plan(table: IcebergTable, version: int | None, where: str | None) -> None:
    metadata, io = table.table.metadata, table.table.io
    point = find_read_point(metadata, SnapshotReference(version))
    schema = to_model(point.schema)
    initial_defaults(point.schema, metadata.location)
    if point.snapshot is None:
        return
    scan = plan_scan(point, io, bind_condition(where, schema) if where else None)
    mapping = point.metadata.name_mapping()
    for file in scan.files:
        (columns,) = iceberg_columns.read_schemas(None, io, [file.path])
        iceberg_columns.locate_columns(columns, schema, mapping, file.path)
    for delete in scan.deletes:
        if delete.kind is DeleteKind.VECTORS:
            list(read_vectors(deleted_rows._read(io, delete.path), delete.path))
        else:
            (columns,) = iceberg_columns.read_schemas(None, io, [delete.path])
            wanted = POSITION_DELETES if delete.kind is DeleteKind.POSITIONS else schema
            iceberg_columns.locate_columns(columns, wanted, mapping, delete.path)


def _plan_ingestion(catalog: Path) -> None:
    target = IcebergLocation(to_table_name(NAME, str(catalog))).open(Policy())
    list(target.loaded_files().rows(["modified_ms"]))
    target.last_interval("s")
    _ = target.version, target.schema


def main(folder: Path, first: int, count: int) -> None:
    """Make, use and delete mutants, and print one JSON line for each that went wrong."""
    seeds = make_seeds(folder / f"seeds-{first}")
    kept = folder / f"kept-{first}"
    for seed_table in seeds:
        SqlCatalog("default", uri=f"sqlite:///{seed_table}/catalog.db")
        shutil.copytree(seed_table, kept / seed_table.name)
    opened: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(OUTSIDE):
            opened.append(str(arguments[0]))

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s of the processor")

    for seed_table in seeds:  # imports and caches come before the limit of memory
        assert use(seed_table) == []
    sys.addaudithook(watch)
    for number in TIMERS:
        signal.signal(number, late)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    for seed in range(first, first + count):
        chance = random.Random(seed)
        table = chance.choice(seeds)
        said = mutate(chance, table)
        print(json.dumps({"seed": seed, "table": table.name, "said": said}), file=sys.stderr, flush=True)
        opened.clear()
        with limited_time():
            wrong = use(table)
        seen = [each for each in opened if "/_widen/" not in each]  # a table may have its folder anywhere
        if wrong or seen:
            print(json.dumps({"seed": seed, "said": said, "wrong": wrong, "opened": seen}), flush=True)
        shutil.rmtree(table)
        shutil.copytree(kept / table.name, table)
    print(json.dumps({"done": count}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
