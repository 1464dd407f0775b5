"""Mutants of logs: damaged and hostile files of every kind, each read in this process under a limit of time and memory.

Run as a program: ``log_mutants.py FOLDER FIRST_SEED COUNT`` prints what went wrong, as JSON lines.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import signal
import struct
import sys
import traceback
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from support import log_table as log
from widen.errors import WidenError
from widen.files.deleted_rows import load_vector
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.commit import commit
from widen.log.file_list import to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.log.version_changes import missing_files
from widen.protocol.actions import Add, DeletionVector, DomainMetadata, Metadata, Protocol, Remove, Txn
from widen.protocol.deletion_vectors import pack_vectors

SECONDS, MEMORY_BYTES = 10, 2 << 30
"""What a mutant may take: seconds of the processor, since a busy machine is not the mutant's fault."""
STANDSTILL_SECONDS = 600
"""After this time also a mutant that only waits is ended."""
TIMERS = (signal.SIGPROF, signal.SIGALRM)
"""The signals of the two limits."""
OUTSIDE = ("/dev/", "/etc/", "/proc/", "/sys/")
FEATURES = ("deletionVectors", "v2Checkpoint")

# ---- logs to mutate -----------------------------------------------------------------------------------


def make_seeds(folder: Path) -> list[Path]:
    """Write one table for each kind of log."""
    return [_made(folder / kind, kind) for kind in ("commits", "classic", "v2", "v2-json")]


def _made(table: Path, kind: str) -> Path:
    store = LogStore(str(table))
    features = FEATURES if kind.startswith("v2") else FEATURES[:1]
    protocol = Protocol(min_reader_version=3, min_writer_version=7, reader_features=features, writer_features=features)
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.checkpoint.writeStatsAsStruct": "true",
        "delta.checkpointPolicy": "v2" if kind.startswith("v2") else "classic",
    }
    metadata = Metadata(id="m", schema_string=log.SCHEMA, partition_columns=("day",), configuration=properties)
    bitmaps = [(BitMap64([1, 5]).serialize(), 2), (BitMap64([2**33]).serialize(), 1)]
    content, vectors = pack_vectors("", uuid.UUID(int=7), bitmaps)
    store.put(f"deletion_vector_{uuid.UUID(int=7)}.bin", content)
    first = [protocol, metadata, _add("a", vectors[0]), _add("b", vectors[1]), _add("c")]
    state = commit(store, None, first, "CREATE TABLE", {}).or_raise().snapshot
    second = [_add("d", tags={"t": "1"}), Remove(path="c", data_change=True, deletion_timestamp=4 * 10**12)]
    more = [Txn(app_id="s", version=3), DomainMetadata(domain="d", configuration="{}", removed=False)]
    state = commit(store, state, [*second, *more], "WRITE", {}).or_raise().snapshot
    if kind != "commits":
        write_checkpoint(state)
    if kind == "v2-json":
        _as_json(table)
    commit(store, state, [_add("e")], "WRITE", {}).or_raise()
    return table


def _add(path: str, vector: DeletionVector | None = None, tags: dict[str, str | None] | None = None) -> Add:
    stats = '{"numRecords":9,"minValues":{"id":1},"maxValues":{"id":5},"nullCount":{"id":0}}'
    values: dict[str, str | None] = {"day": "2024-01-01"}
    return Add(
        path=path, partition_values=values, size=9, modification_time=7, data_change=True, stats=stats,
        deletion_vector=vector, tags=tags,
    )  # fmt: skip


def _as_json(table: Path) -> None:
    """Write the top-level file of a V2 checkpoint as JSON."""
    (path,) = (table / "_delta_log").glob("*.checkpoint.*.parquet")
    lines = [{key: value for key, value in row.items() if value is not None} for row in pq.read_table(path).to_pylist()]
    for line in lines:
        if "metaData" in line:
            line["metaData"]["configuration"] = dict(line["metaData"]["configuration"])
            line["metaData"]["format"]["options"] = {}
    path.with_suffix(".json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    path.unlink()


# ---- mutations ----------------------------------------------------------------------------------------

DEEP = "@deep@"
NASTY: tuple[Any, ...] = (
    None, True, 0, -1, 2**31, 2**63, -(2**63) - 1, 2**70, 1.5, 1e300, "", "x", "\ud800", "9" * 5000, [], [None], {},
    {"x": 1}, DEEP,
    "/dev/zero", "/dev/stdin", "../../../../etc/passwd", "file:///etc/passwd",
    "/proc/self/mem", "x://y", "%", "%ff", "\x00",
)  # fmt: skip


def _bytes(random: random.Random, data: bytes) -> bytes:
    at, end = sorted(random.randrange(len(data) + 1) for _ in range(2))
    noise = random.randbytes(random.choice((1, 2, 8)))
    return random.choice(
        (
            data[:at],
            data[at:],
            data[:at] + noise + data[at + len(noise) :],
            data[:at] + noise + data[at:],
            data[:at] + data[end:],
            data[:end] + data[at:],
            b"",
            data[:at] + bytes(len(data) - at),
        )
    )


def _json(random: random.Random, data: bytes) -> bytes:
    lines = data.decode().splitlines()
    at = random.randrange(len(lines))
    value = json.loads(lines[at])
    places = list(_places(value))
    holder, key = random.choice(places)
    nasty = random.choice(NASTY)
    what = random.randrange(4)
    if what == 0 and isinstance(holder, dict):
        del holder[key]
    elif what == 1 and isinstance(holder[key], str) and holder[key].startswith('{"'):
        holder[key] = _json(random, holder[key].encode()).decode(errors="replace")
    else:
        holder[key] = nasty
    lines[at] = json.dumps(value).replace(f'"{DEEP}"', "[" * 50_000 + "]" * 50_000)
    return "\n".join(lines).encode(errors="surrogatepass") + b"\n"


def _places(value: Any) -> Any:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def _parquet(random: random.Random, path: Path) -> None:
    """Change a column, or a field of one, to another type or to other values."""
    table = pq.read_table(path)
    at = random.randrange(table.num_columns)
    name, column = table.column_names[at], table.column(at).combine_chunks()
    changed = _column(random, column)
    table = table.drop([name]) if changed is None else table.set_column(at, name, changed)
    pq.write_table(table, path, compression=random.choice(("snappy", "zstd", "none")))


KINDS: tuple[Callable[[random.Random], tuple[pa.DataType, Any]], ...] = (
    lambda r: (pa.string(), r.choice(("x", "", "/dev/zero", "../../x", "{", "[" * 50_000, "%", "\x00"))),
    lambda r: (pa.large_string(), "x"),
    lambda r: (pa.int64(), r.choice((-1, 0, 2**63 - 1, -(2**63), 2**40))),
    lambda r: (pa.int32(), r.choice((-1, 2**31 - 1))),
    lambda r: (pa.float64(), float("nan")),
    lambda r: (pa.binary(), b"\xff\xfe"),
    lambda r: (pa.bool_(), True),
    lambda r: (pa.list_(pa.string()), ["x"]),
    lambda r: (pa.struct([("x", pa.int64())]), {"x": 1}),
    lambda r: (pa.map_(pa.string(), pa.string()), [("a", "1"), ("a", "2")]),
    lambda r: (pa.timestamp("ns"), r.choice((-1, 2**63 - 1))),
    lambda r: (pa.date32(), r.choice((-1, 2**31 - 1))),
)


def _column(random: random.Random, column: pa.Array) -> pa.Array | None:
    if pa.types.is_struct(column.type) and column.type.num_fields and random.random() < 0.85:
        at = random.randrange(column.type.num_fields)
        parts = {field.name: column.field(i) for i, field in enumerate(column.type)}
        name = column.type[at].name
        changed = _column(random, parts[name])
        if changed is None:
            del parts[name]
        else:
            parts[name] = changed
        if not parts:
            return None
        return pa.StructArray.from_arrays(list(parts.values()), names=list(parts), mask=column.is_null())
    if random.random() < 0.2:
        return None
    kind, value = random.choice(KINDS)(random)
    values = [value if random.random() < 0.7 else None for _ in range(len(column))]
    return pa.array(values, kind)


def _vectors(random: random.Random, data: bytes) -> bytes:
    """Change what is inside of a vector, and make its checksum fit again."""
    size = struct.unpack_from(">i", data, 1)[0]
    body = bytearray(data[5 : 5 + size])
    for _ in range(random.choice((1, 2, 4))):
        body[random.randrange(len(body))] = random.randrange(256)
    return data[:5] + bytes(body) + struct.pack(">I", zlib.crc32(body)) + data[5 + size + 4 :]


def mutate(random: random.Random, table: Path) -> str:
    """Change one file of a table, and tell which and how."""
    files = sorted(path for path in table.rglob("*") if path.is_file())
    path = random.choice(files)
    how = random.random()
    name = path.relative_to(table).as_posix()
    if how < 0.02:
        path.unlink()
        return f"{name} deleted"
    if how < 0.04:
        path.unlink()
        path.mkdir()
        return f"{name} is a folder"
    if path.suffix == ".parquet" and how < 0.7:
        _parquet(random, path)
        return f"{name} another column"
    data = path.read_bytes()
    if path.suffix == ".bin" and how < 0.7:
        path.write_bytes(_vectors(random, data))
    elif path.suffix in (".json", ".crc", "") and how < 0.75:
        path.write_bytes(_json(random, data))
    else:
        path.write_bytes(_bytes(random, data))
        return f"{name} other bytes"
    return f"{name} other values"


# ---- what is done with a mutant -----------------------------------------------------------------------


def use(table: Path) -> list[str]:
    """Read everything that a log tells; return what went wrong otherwise than by an error of ours."""
    store = LogStore(str(table))
    wrong: list[str] = []

    def attempt(work: Callable[[], Any]) -> Any:
        try:
            return work()
        except WidenError:
            return None
        except BaseException as error:  # that is what is looked for
            wrong.append("".join(traceback.format_exception_only(error)).strip()[:300] + " at " + _where(error))
            return None

    for version in (None, 1, 0):
        snapshot = attempt(lambda version=version: open_snapshot(store, version))
        if snapshot is None:
            continue
        for name in ("schema", "transactions", "domains", "timestamp_ms", "partition_keys"):
            attempt(lambda snapshot=snapshot, name=name: getattr(snapshot, name))
        attempt(lambda snapshot=snapshot: list(snapshot.removed_files()))
        attempt(snapshot.history)
        adds = attempt(lambda snapshot=snapshot: to_adds(snapshot.files())) or []
        attempt(lambda adds=adds: missing_files(store, adds))
        for add in adds:
            if add.deletion_vector:
                attempt(lambda add=add: load_vector(store, add.deletion_vector))
    attempt(lambda: open_snapshot(store, timestamp_ms=10**15))
    return wrong


def ignores(table: Path, said: str, seed: Path) -> list[str]:
    """Return what went wrong where only a file is broken on which nothing depends: a checksum or the pointer."""
    name = said.split()[0]
    path = table / name
    if not name.endswith((".crc", "_last_checkpoint")) or (path.is_file() and _is_json(path)):
        return []
    try:
        found, wanted = (open_snapshot(LogStore(str(place))) for place in (table, seed))
        same = found.metadata == wanted.metadata and found.files().num_rows == wanted.files().num_rows
    except WidenError as error:
        return [f"{type(error).__name__}: the table does not open at ignores"]
    return [] if same else ["another table is read at ignores"]


def _is_json(path: Path) -> bool:
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError):
        return False
    return True


def _where(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/widen/" in frame.filename and "/tests/" not in frame.filename]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}" if ours else "?"


@contextmanager
def limited_time() -> Iterator[None]:
    """Send a signal of `TIMERS` when the block takes too long."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(STANDSTILL_SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)


def main(folder: Path, first: int, count: int) -> None:
    """Make, use and delete mutants, and print one JSON line for each that went wrong."""
    seeds = make_seeds(folder / f"seeds-{first}")
    opened: list[str] = []

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(OUTSIDE):
            opened.append(str(arguments[0]))

    def late(*_: object) -> None:
        raise TimeoutError(f"longer than {SECONDS} s of the processor")

    sys.addaudithook(watch)
    for number in TIMERS:
        signal.signal(number, late)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY_BYTES, resource.RLIM_INFINITY))
    for seed in range(first, first + count):
        chance = random.Random(seed)
        table = folder / f"mutant-{first}"
        seed_table = chance.choice(seeds)
        shutil.copytree(seed_table, table)
        said = mutate(chance, table)
        print(json.dumps({"seed": seed, "said": said}), file=sys.stderr, flush=True)
        opened.clear()
        with limited_time():
            wrong = use(table) + ignores(table, said, seed_table)
        if wrong or opened:
            print(json.dumps({"seed": seed, "said": said, "wrong": wrong, "opened": opened}), flush=True)
        shutil.rmtree(table)
    print(json.dumps({"done": count}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
