"""Commands whose calls of the system fail, one by one: what is committed then, and whether it may be repeated.

Run as a program with the library of ``system_faults.c`` in LD_PRELOAD: ``system_faults.py LIBRARY FOLDER SEED COUNT``
prints as JSON lines what is wrong, and a line with the number of faults at the end. The program imports once and forks
each command. After a fault, the rows of every table, those of quarantines included, are the rows of before or of after,
except that the rows of a quarantine may come first; if the message lets the command be repeated, the rows are those of
after then, each of them once.
"""

from __future__ import annotations

import ctypes
import errno
import faulthandler
import importlib
import json
import os
import pkgutil
import random
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import widen

CALLS: Mapping[str, tuple[int, ...]] = {
    "open": (errno.EACCES, errno.EMFILE, errno.ENOSPC, errno.EIO),
    "write": (errno.ENOSPC, errno.EIO, errno.EDQUOT),
    "read": (errno.EIO, errno.ESTALE),
    "fsync": (errno.EIO, errno.ENOSPC),
    "close": (errno.EIO, errno.ENOSPC),
    "rename": (errno.EACCES, errno.EIO, errno.ENOSPC),
    "link": (errno.EACCES, errno.EIO, errno.ENOSPC),
    "unlink": (errno.EACCES, errno.EIO),
    "mkdir": (errno.EACCES, errno.ENOSPC),
    "opendir": (errno.EACCES, errno.EIO, errno.EMFILE),
    "stat": (errno.EACCES, errno.EIO, errno.ESTALE),
}
"""The calls that fail, and with which errors."""

LEAST = 17
"""The number of faults with which each command meets one."""

HANGS_AFTER = 300
"""After how many seconds a command counts as one that hangs; it takes about one."""

MAY_BE_COMMITTED = "WIDEN_COMMIT_UNKNOWN", "WIDEN_SNAPSHOT_UNKNOWN"
"""The codes of errors after which the user has to look before the command is repeated."""


@dataclass(frozen=True)
class Operation:
    """A command, what there is before it, and the tables that it may change.

    Args:
        setup: Commands, and files with their content, in their order.
        may_repeat: Whether a repeat after a commit changes nothing, since the command knows what it has loaded.
    """

    command: Sequence[str]
    setup: Sequence[Sequence[str] | tuple[str, str]]
    tables: Sequence[str]
    may_repeat: bool = False


def records(*values: Mapping[str, Any]) -> str:
    return "".join(json.dumps(value) + "\n" for value in values)


CATALOG = ("--catalog", "c.db")
BY_KEY = ("--key", "id", "--sequence-by", "at", "--delete-when", "op = 'd'")
FIRST = records(*({"id": n, "at": 1, "op": "u", "v": n} for n in range(4)))
SECOND = records(
    {"id": 1, "at": 2, "op": "u", "v": 10}, {"id": 2, "at": 2, "op": "d", "v": 2}, {"id": 9, "at": 2, "op": "u", "v": 9}
)
NO_KEY = SECOND + records({"at": 3, "op": "u", "v": 77})
WIDER = records({"id": 5, "v": 2**40, "new": "x"}, {"id": 6, "v": "text"})
NO_OP = records({"id": 8, "at": 1, "v": 1}, {"id": 7, "at": 1, "op": "u", "v": 7})
DAMAGED = "\x1f\x8b not gzip"


def operations() -> dict[str, Operation]:
    """Return the operations by name: each for a Delta table, and for an Iceberg table where it has them."""
    found: dict[str, Operation] = {}
    for name, table, words in (("delta", "t", ()), ("iceberg", "n.t", CATALOG)):
        into = ("--into", table, *words)
        kept = (table, f"{table}_quarantine")
        new = [("a.json", FIRST), ("b.json", WIDER)]
        loaded = [*new, ("ingest", "a.json", *into)]
        keyed = [("a.json", FIRST), ("b.json", SECOND), ("ingest", "a.json", *into, *BY_KEY)]
        odd = [("a.json", FIRST), ("b.json", NO_KEY), ("ingest", "a.json", *into, *BY_KEY)]
        folder = [("in/a.json", FIRST), ("in/b.json", WIDER)]
        history = [("a.json", FIRST), ("b.json", SECOND), ("ingest", "a.json", *into, *BY_KEY, "--history")]
        bad = [*folder, ("in/c.json.gz", DAMAGED)]
        limit = [*folder, ("in/c.json", "no json\n" * 3 + FIRST)]
        layout = f"CREATE TABLE {{}} (id INT, at INT, op STRING NOT NULL, v INT) USING {name}"
        created = [("sql", layout.format(f"delta.`{table}`" if name == "delta" else table), *words)]
        statement = f"delta.`{table}`" if name == "delta" else table
        each: dict[str, Operation] = {
            "first": Operation(("ingest", "a.json", *into), new, kept),
            "append": Operation(("ingest", "b.json", *into), loaded, kept),
            "keys": Operation(("ingest", "b.json", *into, *BY_KEY), keyed, kept, may_repeat=True),
            "quarantine": Operation(("ingest", "b.json", *into, *BY_KEY), odd, kept),
            "history": Operation(("ingest", "b.json", *into, *BY_KEY, "--history"), history, kept, may_repeat=True),
            "new": Operation(("ingest", "in", *into, "--new"), folder, kept, may_repeat=True),
            "bad files": Operation(("ingest", "in", *into, "--new", "--skip-bad-files"), bad, kept, may_repeat=True),
            "park": Operation(
                ("ingest", "in", *into, "--new", "--park-over-limit", "--max-corrupt", "1"),
                limit,
                kept,
                may_repeat=True,
            ),
            "follow": Operation(("ingest", "in", *into, "--once", "--checkpoint", "cp"), folder, kept, may_repeat=True),
            "replay": Operation(
                ("replay", f"{table}_quarantine", *into),
                [
                    *(("a.json", FIRST), ("b.json", NO_OP), *created, ("ingest", "a.json", *into)),
                    *(("ingest", "b.json", *into), ("alter", table, "op", "--nullable", *words)),
                ],
                kept,
            ),
            "update": Operation(("sql", f"UPDATE {statement} SET v = 5 WHERE id < 3", *words), loaded, kept),
            "delete": Operation(("sql", f"DELETE FROM {statement} WHERE id = 1", *words), loaded, kept),
            "restore": Operation(
                ("restore", table, "--version", "0", *words),
                [*loaded, ("ingest", "b.json", *into)],
                kept,
            ),
            "alter": Operation(("alter", table, "id", "--type", "bigint", *words), loaded, kept, may_repeat=True),
            "vacuum": Operation(
                ("vacuum", table, *words), [*loaded, ("ingest", "b.json", *into)], kept, may_repeat=True
            ),
        }
        if name == "iceberg":
            del each["restore"]  # by number of a snapshot, which each run makes anew
            twice = [*loaded, ("ingest", "a.json", *into)]
            each["optimize"] = Operation(("optimize", table, *words), twice, kept, may_repeat=True)
            each["rewrite"] = Operation(("rewrite", table, *words), loaded, kept, may_repeat=True)
        found |= {f"{name} {what}": operation for what, operation in each.items()}
    return found


@dataclass
class Trials:
    """Runs operations in processes of their own, in one folder that is made anew for each."""

    library: ctypes.CDLL
    place: Path

    @property
    def work(self) -> Path:
        return self.place / "work"

    def call(
        self, words: Sequence[str], fault: tuple[str, int, int, int] | None = None
    ) -> tuple[int, str, dict[str, int]]:
        """Run a command; return its exit code, what it prints, and with a fault its calls by kind."""
        out = self.place / "out"

        def child() -> int:
            sink = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(sink, 1)
            os.dup2(sink, 2)
            from widen.cli.app import app

            if fault is not None:
                kind, number, after, sticky = fault
                self.library.fault_arm(kind.encode(), f"{self.work}/".encode(), number, after, sticky)
            try:
                app(args=list(words), prog_name="widen")
            except SystemExit as end:
                return end.code if isinstance(end.code, int) else 1
            finally:
                self.library.fault_arm(b"", b"", 0, 0, 0)
                counts = {kind: self.library.fault_seen(kind.encode()) for kind in CALLS}
                (self.place / "seen").write_text(json.dumps(counts))
                sys.stdout.flush()
                sys.stderr.flush()
            return 0

        code = self._fork(child)
        text = out.read_text(errors="replace")
        return code, text, json.loads((self.place / "seen").read_text())

    def _fork(self, run: Callable[[], int]) -> int:
        if child := os.fork():
            _, status = os.waitpid(child, 0)
            return os.waitstatus_to_exitcode(status)
        code = 99
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        try:
            os.chdir(self.work)
            code = run()
        except BaseException:  # as Python would at its end
            import traceback

            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(code)

    def prepare(self, operation: Operation) -> None:
        """Make what there is before an operation, and keep a copy of it."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.rmtree(self.place / "template", ignore_errors=True)
        self.work.mkdir()
        for step in operation.setup:
            if len(step) == 2 and "." in step[0]:
                (self.work / step[0]).parent.mkdir(exist_ok=True)
                (self.work / step[0]).write_text(step[1], encoding="latin-1")
            else:
                code, text, _ = self.call(step)
                assert code == 0, (step, text)
        shutil.copytree(self.work, self.place / "template", symlinks=True)

    def reset(self) -> None:
        shutil.rmtree(self.work)
        shutil.copytree(self.place / "template", self.work, symlinks=True)

    def rows(self, operation: Operation) -> dict[str, list[str]]:
        """Return the rows of the tables of an operation, as texts in their order."""
        found = self.place / "rows"

        def child() -> int:
            found.write_text(json.dumps({table: read(table) for table in operation.tables}))
            return 0

        assert self._fork(child) == 0
        return {table: sorted(rows) for table, rows in json.loads(found.read_text()).items()}


MADE_ANEW = ("kept_at",)
"""Columns of a quarantine with the time of the load."""


def read(name: str) -> list[str]:
    """Return the rows of a table in the current folder as texts, without what differs from run to run."""
    from widen.iceberg.catalog import to_table_name

    if "." in name:
        table = to_table_name(name, "c.db").find() if Path("c.db").exists() else None
        rows = [] if table is None else table.scan().to_arrow().to_pylist()
    elif (Path(name) / "_delta_log").exists() and any((Path(name) / "_delta_log").glob("*.json")):
        rows = widen.Table(name).to_arrow().to_pylist()
    else:
        rows = []
    return [_text(row) for row in rows]


def _text(row: Mapping[str, Any]) -> str:
    # A column that every row has as null may be there or not.
    kept = {key: value for key, value in row.items() if value is not None and key not in MADE_ANEW}
    return json.dumps(kept, sort_keys=True, default=str)


def judge(trials: Trials, operation: Operation, fault: tuple[str, int, int, int], before: Any, after: Any) -> list[str]:
    """Run an operation with a fault, and return what is wrong."""
    code, text, _ = trials.call(operation.command, fault)
    wrong = []
    if any(word in text for word in ("Traceback", "WIDEN_INTERNAL", "Timeout (")) or code not in (0, 1):
        wrong.append(f"exit code {code}: {text[-700:]}")
    now = trials.rows(operation)
    table = operation.tables[0]
    if now[table] not in (before[table], after[table]):
        wrong.append(f"rows {now[table]}, neither {before[table]} nor {after[table]}")
    is_done = now == after
    if code == 0 or "is committed" in text:
        if not is_done and code == 0:
            wrong.append(f"success, but the rows are {now}: {text[-300:]}")
        if code == 0 or not operation.may_repeat:
            return wrong
    elif now[table] == after[table] != before[table] and not operation.may_repeat:
        if any(unknown in text for unknown in MAY_BE_COMMITTED):
            return wrong
        wrong.append(f"committed, but the message is {text[-500:]}")
        return wrong
    code, text, _ = trials.call(operation.command)
    now = trials.rows(operation)
    if code != 0 or now != after:
        wrong.append(f"repeated with exit code {code}: {now} instead of {after}: {text[-500:]}")
    return wrong


def chosen(every: Mapping[str, Operation], count: int) -> list[str]:
    """Return the operations to try: for few faults each command in one format, one after the other in both."""
    kinds: dict[str, list[str]] = {}
    for name in every:
        kinds.setdefault(name.partition(" ")[2], []).append(name)
    if count > LEAST:
        return [name for name in every if os.environ.get("WIDEN_FAULTS_OF", "") in name]
    return [names[at % len(names)] for at, names in enumerate(kinds.values())]


def main(library: str, folder: str, seed: str, count: str) -> int:
    """Try faults at the calls of every operation, as many for each."""
    os.environ["WIDEN_ENGINE"] = "local"
    for module in pkgutil.walk_packages(widen.__path__, "widen."):
        importlib.import_module(module.name)  # once, and not in each process
    for name in ("pyarrow.compute", "pyarrow.parquet", "pyiceberg.catalog.sql", "pyiceberg.io.pyarrow"):
        importlib.import_module(name)

    trials = Trials(ctypes.CDLL(library), Path(folder))
    rng, done = random.Random(int(seed)), 0
    every = operations()
    names = chosen(every, int(count))
    for place, name in enumerate(names):
        operation = every[name]
        trials.prepare(operation)
        before = trials.rows(operation)
        code, text, counts = trials.call(operation.command, ("open", errno.EIO, 10**9, 0))
        assert code == 0, (name, text)
        after = trials.rows(operation)
        trials.reset()
        points = [
            (call, number, at, sticky)
            for call, numbers in CALLS.items()
            for number in numbers
            for at in range(counts[call])
            for sticky in (0, 1)
        ]
        share = int(count) // len(names) + (place < int(count) % len(names))
        for fault in rng.sample(points, min(share, len(points))):
            for wrong in judge(trials, operation, fault, before, after):
                call, number, at, sticky = fault
                error = errno.errorcode[number]
                words = {"operation": name, "fault": [call, error, at, "sticky" if sticky else "once"], "wrong": wrong}
                print(json.dumps(words), flush=True)
            trials.reset()
            done += 1
    print(json.dumps({"done": done}))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
