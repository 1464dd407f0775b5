"""Processes without PySpark: they are forked from one that has imported the rest, which takes most of a short process.

It imports modules of Widen where PySpark cannot be imported, does nothing else, and has no threads to lose.
"""

from __future__ import annotations

import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TextIO

SERVER = """
import atexit, gc, json, os, select, socket, sys, threading
from importlib import import_module
from importlib.abc import MetaPathFinder

class NoSpark(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError("No module named " + repr(name), name=name)

sys.meta_path.insert(0, NoSpark())
for name in sys.argv[2:]:
    import_module(name)
import widen

gc.freeze()  # what is imported stays
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1])
door.listen()
print("ready", flush=True)
code = ""
while not code:
    if sys.stdin in select.select([door, sys.stdin], [], [])[0]:
        sys.exit()  # the tests have ended
    line, _ = door.accept()
    if os.fork() == 0:  # waits for the process with the code, and tells how it ended
        door.close()
        job = json.loads(line.makefile().readline())
        worker = os.fork()
        if worker:
            line.sendall(f"{worker}\\n".encode())
            line.sendall(f"{os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])}\\n".encode())
            os._exit(0)
        line.close()
        for number, place in enumerate((os.devnull, job["out"], job["err"])):
            os.dup2(os.open(place, os.O_RDWR), number)
        os.environ.clear()
        os.environ.update(job["environment"])
        os.chdir(job["folder"])
        sys.argv, code = ["-c", *job["words"]], job["code"]
    else:
        line.close()
        os.waitpid(-1, os.WNOHANG)
ended = 0
try:
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__", "json": json, "sys": sys, "widen": widen})
except Exception:
    sys.excepthook(*sys.exc_info())
    ended = 1
# As a process ends, but without taking apart what was imported, which takes longer than most of the work.
threading._shutdown()
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(ended)
"""

MODULES = (
    "numpy",
    "pyarrow.acero",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pyiceberg.catalog.sql",
    "pyiceberg.io.pyarrow",
    "sqlalchemy.dialects.sqlite",
    "widen.iceberg.table_commit",
    "sqlglot.optimizer.annotate_types",
    "widen.ingestion",
    "widen.changes.merge",
    "widen.verification.keyed_proof",
    "widen.table",
    "widen.targets.iceberg",
)
"""What the first process imports: what ingestions need."""


@cache
def _start() -> str:
    """Start the first process, which ends with this one, and return the place of its socket."""
    folder = tempfile.mkdtemp()
    place = str(Path(folder) / "s")
    command = [sys.executable, "-c", SERVER, place, *MODULES]
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    @atexit.register
    def stop() -> None:
        server.communicate()
        shutil.rmtree(folder)

    assert server.stdout is not None
    assert server.stdout.readline() == "ready\n"
    return place


@contextmanager
def fork_without_spark(code: str, *words: str, out: Path, err: Path) -> Iterator[tuple[int, TextIO]]:
    """Run code in a process that has no PySpark, but the modules json, sys and widen.

    Yields:
        Its id, and where a line with its exit code is read when it has ended.
    """
    job = {"code": code, "words": words, "out": str(out), "err": str(err)}
    job |= {"environment": dict(os.environ), "folder": os.getcwd()}
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(300)
        line.connect(_start())
        line.sendall(json.dumps(job).encode() + b"\n")
        with line.makefile() as told:
            yield int(told.readline()), told


def run_without_spark(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run code as `fork_without_spark` does, to its end."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        out.touch()
        err.touch()
        with fork_without_spark(code, *words, out=out, err=err) as (_, told):
            ended = int(told.readline())
        return subprocess.CompletedProcess(["-c", *words], ended, out.read_text(), err.read_text())
