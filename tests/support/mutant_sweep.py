"""Runs mutants of the writing side under verified loads: `python -m support.mutant_sweep LOADS STEP MODULE...`.

It prints a line of JSON for each mutant: the load, the mutant, what became of it, and the difference. Of the mutants
that a load reaches it takes about one in STEP, always the same ones.

Each load is a process that is forked from one that has only imported, so nothing of a mutant stays. Rows are read
with pyarrow and PyIceberg: what the table has does not depend on our own readers.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import pickle
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote
from zlib import crc32

from support.code_mutants import CodeMutant, find_mutants, functions_of
from support.mutant_loads import LOADS, Loads, write_source

MODULES = (
    *("rows.row", "rows.row_builder", "rows.shape", "rows.column_assembler"),
    *("json.document", "json.kinds", "json.field_rules", "json.envelope"),
    *("evolution.key_rules", "evolution.column_choice", "evolution.type_lattice"),
    *("batches.column_values", "batches.column_copy", "batches.text_tasks", "batches.excluded_fields"),
    *("batches.parquet_batch", "batches.field_columns", "batches.corrupt_texts", "batches.text_batch"),
    *("files.conversions", "files.row_rules", "files.data_writer", "files.iceberg_writer"),
    *("changes.keyed_load", "changes.key_columns", "changes.keyed_files", "changes.arrow_changes", "changes.history"),
    *("changes.keyed_decision", "changes.keyed_buckets", "changes.partial_records", "changes.tracked_fields"),
    *("changes.deleted_keys", "changes.iceberg_copies", "changes.change_data_writer", "changes.iceberg_changes"),
    *("sources.csv_dialect", "sources.file_ranges"),
)
"""The modules below widen whose functions decide which values a row has, and which rows a table has."""

SECONDS, BYTES = 20, 6 * 2**30
"""How long a load with a mutant may take, and how much memory."""


@dataclass
class Outcome:
    """What a load has left.

    Args:
        rows: The rows of the table, of its quarantine, and of its changes, as texts.
        is_clean: What the proof says; None if the load has failed.
        lines: The lines of the modules that were run, by the name of their file; only without a mutant.
    """

    rows: dict[str, Counter[str]] = field(default_factory=dict)
    columns: str = ""
    is_clean: bool | None = None
    proof: str = ""
    error: str = ""
    lines: dict[str, set[int]] = field(default_factory=dict)
    seconds: float = 0.0
    imported: list[str] = field(default_factory=list)


def plain(value: Any) -> Any:
    """Return a value without nulls in its records, and without the time at which the test ran."""
    match value:
        case dict():
            # Why a record is in the quarantine is a sentence for people.
            return {key: plain(each) for key, each in sorted(value.items()) if each is not None and key != "reason"}
        case list():
            return [plain(each) for each in value]
        case datetime() if value.tzinfo is not None and abs(datetime.now(timezone.utc) - value).days < 1:
            return "now"
        case datetime() if value.tzinfo is not None:
            return value.astimezone(timezone.utc).isoformat()
        case str():
            return _CHANGING.sub("*", value)
    return value


_CHANGING = re.compile(
    rf"{datetime.now(timezone.utc).date()}T[0-9:.]+Z|"
    + r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|[0-9a-f]{32}|20[0-9]{6}T[0-9.]+Z?"
)


def texts_of(rows: Iterable[Mapping[str, Any]]) -> Counter[str]:
    return Counter(repr(plain(row)) for row in rows)


def read_delta(place: Path) -> dict[str, Counter[str]]:
    """Return the rows of a Delta table by its log and its Parquet files, and the rows of its last change."""
    import pyarrow.parquet as pq

    files: dict[str, Any] = {}
    changes: list[Any] = []
    has_vectors = False
    for commit in sorted((place / "_delta_log").glob("*.json")):
        changes.clear()
        for line in commit.read_text().splitlines():
            action = json.loads(line)
            for kind in ("remove", "add"):
                if kind in action:
                    path = unquote(action[kind]["path"])
                    if kind == "add":
                        files[path] = action[kind]
                        has_vectors |= "deletionVector" in action[kind]
                    else:
                        files.pop(path, None)
            if "cdc" in action:
                changes.append(action["cdc"])

    def rows_of(actions: Iterable[Any]) -> Iterator[dict[str, Any]]:
        for each in actions:
            for row in pq.ParquetFile(place / unquote(each["path"])).read().to_pylist():
                yield row | each["partitionValues"]

    if has_vectors:
        from deltalake import DeltaTable, QueryBuilder

        found = QueryBuilder().register("t", DeltaTable(str(place))).execute("SELECT * FROM t")
        import pyarrow as pa

        return {"rows": texts_of(pa.table(found.read_all() if hasattr(found, "read_all") else found).to_pylist())}
    return {"rows": texts_of(rows_of(files.values())), "changes": texts_of(rows_of(changes))}


def read_iceberg(catalog: Path, name: str) -> Counter[str] | None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import NoSuchTableError

    opened = SqlCatalog("widen", uri=f"sqlite:///{catalog}", warehouse=f"file://{catalog.parent}/warehouse")
    try:
        return texts_of(opened.load_table(name).scan().to_arrow().to_pylist())
    except NoSuchTableError:
        return None
    finally:
        opened.close()


class Place:
    """The folder of the loads of one table, which is put back after each mutant."""

    def __init__(self, folder: Path, loads: Loads) -> None:
        self.folder, self.loads = folder / "now", loads
        self.saved = folder / "saved"
        self.folder.mkdir(parents=True, exist_ok=True)
        for name, content in loads.batches:
            write_source(self.folder / "in" / name, content)

    def save(self) -> None:
        shutil.rmtree(self.saved, ignore_errors=True)
        shutil.copytree(self.folder, self.saved, copy_function=shutil.copy2)

    def put_back(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.saved, self.folder, copy_function=shutil.copy2)

    def create(self) -> None:
        from widen.table import create_table

        if self.loads.ddl is not None:
            words = {"properties": dict(self.loads.properties), "partition_by": list(self.loads.partition_by)}
            create_table(str(self.folder / "t"), self.loads.ddl, **words)

    def load(self, number: int) -> Any:
        import widen

        iceberg = self.loads.table_format == "iceberg"
        place = (
            ("db.t", {"catalog": str(self.folder / "c.db"), "to": "iceberg"})
            if iceberg
            else (str(self.folder / "t"), {})
        )
        words = {**self.loads.words, **place[1]}
        source = self.folder / "in" / self.loads.batches[number][0]
        return widen.ingest(str(source), place[0], engine="local", verify=True, **words)

    def read(self) -> dict[str, Counter[str]]:
        return {**self._read(), "deleted keys": self._read_deleted()}

    def _read_deleted(self) -> Counter[str]:
        import pyarrow.parquet as pq

        lists = sorted(self.folder.glob("**/_widen/keys/keys.*.json"), key=lambda path: path.name)
        files = json.loads(lists[-1].read_text())["files"] if lists else []
        rows = [
            row
            for path, _ in files
            for row in pq.read_table(next(self.folder.glob(f"**/{Path(path).name}"))).to_pylist()
        ]
        return texts_of({**row, "__widen_deleted_ms": None} for row in rows)

    def _read(self) -> dict[str, Counter[str]]:
        if self.loads.table_format == "iceberg":
            found = {name: read_iceberg(self.folder / "c.db", name) for name in ("db.t", "db.t_quarantine")}
            return {name: rows for name, rows in found.items() if rows is not None}
        rows = read_delta(self.folder / "t")
        if (self.folder / "t_quarantine").exists():
            rows["quarantine"] = read_delta(self.folder / "t_quarantine")["rows"]
        return rows

    def columns(self) -> str:
        """Return the columns of the table as a text."""
        if self.loads.table_format == "iceberg":
            from pyiceberg.catalog.sql import SqlCatalog

            catalog = SqlCatalog("widen", uri=f"sqlite:///{self.folder / 'c.db'}", warehouse=f"file://{self.folder}")
            try:
                return re.sub(r"\b[0-9]+: ", "", str(catalog.load_table("db.t").schema()))
            finally:
                catalog.close()
        found = ""
        for commit in sorted((self.folder / "t" / "_delta_log").glob("*.json")):
            for line in commit.read_text().splitlines():
                found = json.loads(line).get("metaData", {}).get("schemaString", found)
        return found


def in_fork(work: Callable[[], Outcome], seconds: float = SECONDS) -> Outcome:
    """Return what a forked process finds; one that takes too long, or dies, is an error."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reader)
            for name in (1, 2):
                os.dup2(os.open(os.devnull, os.O_WRONLY), name)
            resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
            signal.alarm(int(seconds))
            with os.fdopen(writer, "wb") as file:
                pickle.dump(work(), file)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        content = file.read()
    os.waitpid(child, 0)
    return pickle.loads(content) if content else Outcome(error="the process died or took too long")


def run_load(place: Place, number: int, mutant: CodeMutant | None, files: Mapping[str, str] | None = None) -> Outcome:
    """Run one load in this process, which is a fork."""
    import widen.batches.field_columns
    import widen.rows.row_builder
    import widen.sources.file_ranges
    import widen.spark.session

    for module in (widen.batches.field_columns, widen.rows.row_builder, widen.sources.file_ranges):
        module.find_kernel = lambda: None  # type: ignore[attr-defined]

    def no_session(*_: Any, **__: Any) -> Any:
        raise RuntimeError("this starts Spark")

    widen.spark.session._start_session = no_session
    found = Outcome()
    if mutant is not None and not mutant.install(_FUNCTIONS.get((mutant.module, mutant.function), ())):
        return Outcome(error="has no place")
    start = time.perf_counter()
    try:
        if files is not None:
            trace(found.lines, files)
        done = place.load(number)
        found.is_clean = done.verification is not None and done.verification.is_clean
        found.proof = f"{done.verification} {getattr(done.verification, 'places', '')}"
    except BaseException as error:
        found.error = f"{type(error).__name__}: {error}"[:300]
        if files is not None:
            found.error += traceback.format_exc()
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    found.seconds = time.perf_counter() - start
    try:
        found.rows = place.read()
        found.columns = place.columns()
    except Exception as error:
        found.rows = {"unreadable": Counter([f"{type(error).__name__}: {error}"[:300]])}
    if files is not None:
        found.imported = sorted(sys.modules)
    return found


def trace(lines: dict[str, set[int]], files: Mapping[str, str]) -> None:
    """Record the lines of some files that this process runs."""

    def on_line(frame: Any, kind: str, _: Any) -> Any:
        name = files.get(frame.f_code.co_filename)
        if name is None:
            return None
        lines.setdefault(name, set()).add(frame.f_lineno)
        return on_line

    threading.settrace(on_line)
    sys.settrace(on_line)


def warm_up(imported: Iterable[str]) -> None:
    """Import what loads import, so that forks need not."""
    for name in imported:
        if name != "__main__" and not name.startswith(("pyspark", "py4j")):
            try:
                importlib.import_module(name)
            except Exception:
                continue


@dataclass
class Found:
    """What became of a mutant in a load."""

    load: str
    mutant: str
    verdict: str
    detail: str


def judge(before: Outcome, right: Outcome, found: Outcome) -> tuple[str, str]:
    """Return a verdict: what the proof says about a mutant, next to what it has changed."""
    has_changed = found.rows != right.rows
    if found.error:
        is_left = content_of(found) == content_of(before)
        return ("refused" if is_left else "noticed"), found.error
    if not has_changed:
        return ("same", "") if found.is_clean else ("false alarm", found.proof)
    if not found.is_clean:
        return "noticed", difference(right, found)
    return ("other columns" if found.columns != right.columns else "UNNOTICED"), difference(right, found)


def content_of(found: Outcome) -> dict[str, Counter[str]]:
    """Return what a table and its quarantine have, without the rows of the last change."""
    return {name: rows for name, rows in found.rows.items() if rows and name != "changes"}


def difference(right: Outcome, found: Outcome) -> str:
    parts = []
    for name in {**right.rows, **found.rows}:
        one, other = right.rows.get(name, Counter()), found.rows.get(name, Counter())
        lost, new = (sorted(each.elements()) for each in (one - other, other - one))
        if lost or new:
            parts.append(f"{name} -{len(lost)} +{len(new)} {_first(lost)} {_first(new)}")
            if lost and new:
                names = {
                    "datetime": __import__("datetime"),
                    "Decimal": __import__("decimal").Decimal,
                    "nan": 0,
                    "inf": 1,
                }
                was, now = (eval(each[0], names) for each in (lost, new))
                fields = {key: (was.get(key), now.get(key)) for key in {**was, **now} if was.get(key) != now.get(key)}
                parts[-1] = f"{name} -{len(lost)} +{len(new)} {fields}"
    return f"{found.proof} | {'; '.join(parts)}"


def _first(rows: Sequence[str]) -> str:
    return rows[0] if rows else ""


def sweep(
    name: str,
    folder: Path,
    choose: Callable[[str, int, Sequence[CodeMutant]], Sequence[CodeMutant]],
    report: Callable[[Found], None],
) -> None:
    """Run the mutants of one table's loads.

    Args:
        choose: Returns which of the mutants that a load reaches are tried in it.
    """
    loads = LOADS[name]
    place = Place(folder, loads)
    place.create()
    files = {sys.modules[f"widen.{each}"].__file__ or "": f"widen.{each}" for each in MODULES}
    before = Outcome(rows=place.read() if loads.ddl is not None else {})
    for number in range(len(loads.batches)):
        place.save()
        right = in_fork(partial(run_load, place, number, None, files), 300)
        assert not right.error, (name, number, right.error)
        assert right.is_clean, (name, number, right.proof)
        warm_up(right.imported)
        saved_right = place.folder.parent / "right"
        shutil.rmtree(saved_right, ignore_errors=True)
        shutil.copytree(place.folder, saved_right, copy_function=shutil.copy2)
        reached = [
            each for module in MODULES for each in mutants_of(module) if each.line in right.lines.get(each.module, ())
        ]
        _FUNCTIONS.update(functions_of({f"widen.{each}" for each in MODULES}))
        gc.collect()
        gc.freeze()
        for mutant in choose(name, number, reached):
            place.put_back()
            found = in_fork(partial(run_load, place, number, mutant))
            report(Found(f"{name} {number}", mutant.name, *judge(before, right, found)))
        shutil.rmtree(place.folder)
        shutil.copytree(saved_right, place.folder, copy_function=shutil.copy2)
        before = Outcome(rows=right.rows)


_FUNCTIONS: dict[tuple[str, str], list[Any]] = {}
_MUTANTS: dict[str, list[CodeMutant]] = {}


def mutants_of(module: str) -> list[CodeMutant]:
    if module not in _MUTANTS:
        _MUTANTS[module] = list(find_mutants(f"widen.{module}"))
    return _MUTANTS[module]


def main(name: str, step: str, *modules: str) -> None:
    """Print what becomes of mutants of some modules below widen in the loads of a table."""
    for each in MODULES:
        importlib.import_module(f"widen.{each}")

    def choose(name: str, number: int, mutants: Sequence[CodeMutant]) -> Sequence[CodeMutant]:
        named = ((each, f"{name} {number} {each.name}") for each in mutants if each.module.startswith(prefixes))
        return [each for each, text in named if not crc32(text.encode()) % int(step)]

    def report(found: Found) -> None:
        print(json.dumps([found.load, found.mutant, found.verdict, found.detail]), flush=True)

    prefixes = tuple(f"widen.{each}" for each in modules)
    with TemporaryDirectory() as folder:
        sweep(name, Path(folder), choose, report)


def sweep_all(step: str) -> None:
    """Print how many mutants of all modules became what in the loads of all tables, and the ones to look at."""
    listed = Path(__file__).with_name("unnoticed_mutants.txt").read_text(encoding="utf-8").splitlines()
    verdicts: Counter[str] = Counter()
    for name in LOADS:
        words = [sys.executable, "-m", "support.mutant_sweep", name, step, ""]
        done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False)
        verdicts["loads that fail without a mutant"] += done.returncode != 0
        for load, mutant, verdict, detail in map(json.loads, done.stdout.splitlines()):
            verdicts[verdict] += 1
            if verdict in ("UNNOTICED", "false alarm") and mutant not in listed:
                verdicts["to look at"] += 1
                print(f"{verdict}: {load}: {mutant}\n    {detail}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in verdicts.most_common()))
    sys.exit(bool(verdicts["to look at"]))


if __name__ == "__main__":
    sweep_all(sys.argv[2]) if sys.argv[1] == "all" else main(*sys.argv[1:])
