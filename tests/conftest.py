"""Spark for the tests that need it: one session for all of them."""

from __future__ import annotations

import gc
import os
import sqlite3
import sys
import warnings
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("support.exact")

ROOT = Path(__file__).resolve().parents[1]


# A busy machine is not a failure, and neither is bad luck: the same code gets the same examples. `make properties`
# tries new ones.
settings.register_profile(
    "widen",
    deadline=None,
    derandomize="WIDEN_RANDOM" not in os.environ,
    max_examples=int(os.environ.get("WIDEN_EXAMPLES", "40")),
)
settings.load_profile("widen")


NEEDS_SPARK = {"cluster", "engine", "interop", "kafka", "postgres", "real", "s3", "wheel"}
"""Folders of tests that need Spark or another server, in this process or in those that they start."""

CLASSES = ROOT / ".work" / "spark-classes.jsa"
"""Spark's classes as the Java machine has loaded them once; without the file, each start loads them anew."""

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",  # jobs this small end before more compiling pays
    "-XX:ReservedCodeCacheSize=256m",  # by default 48 MB without more compiling, which is full after some minutes
    "-XX:+UseSerialGC",
    "-Xmn400m",  # most objects are of one query, and die before so many bytes are full
    "-XX:MetaspaceSize=400m",  # from which on classes are collected, with all of the memory
    *((f"-XX:SharedArchiveFile={CLASSES}", "-Xlog:disable") if CLASSES.exists() else ()),
)
"""For every Spark that a test starts, in this process or in another one."""

ENGINE = os.environ.get("WIDEN_TEST_ENGINE", "")
"""``spark`` runs everything on Spark, as `make settings` and `make matrix` do; ``local`` nothing that needs none."""

QUICK = {
    # To compile a query takes longer than to interpret it for a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # Spark does not write each plan as text for its user interface, send the line of code of each call of a column to
    # Java for its errors, or check what each of its own rules has done.
    "spark.sql.ui.explainMode": "simple",
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    "spark.sql.lightweightPlanChangeValidation": "false",
}
"""Settings with which Spark takes less time for a query on a few rows."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # What Spark keeps of jobs that have ended fills the memory of Java in a run of many.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.sql.ui.retainedExecutions": "5",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    **(QUICK if ENGINE != "spark" or "WIDEN_TEST_QUICK" in os.environ else {}),
    **dict(pair.split("=", 1) for pair in os.environ.get("WIDEN_TEST_SETTINGS", "").split(",") if pair),
}
"""The settings of the session; `make settings` runs tests with others, as ``key=value,key=value``."""


def session_settings() -> dict[str, str]:
    """Return `SETTINGS`, with those of streams that a session has which Widen starts."""
    import pyspark

    from widen.spark.session import stream_settings

    return {**({} if ENGINE == "spark" else stream_settings(pyspark.__version__)), **SETTINGS}


def pytest_configure(config: pytest.Config) -> None:
    """Set what every Spark starts with, and ignore what it says of pandas, which neither it nor we need here.

    pytest imports readline, which sets ``COLUMNS`` for the workers of a run in a terminal: output is to have one width.
    """
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(JAVA_OPTIONS))
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")
    config.addinivalue_line("filterwarnings", "ignore:unclosed.*socket:ResourceWarning")


SHARE, OF = (int(part) for part in os.environ.get("WIDEN_TEST_SHARE", "0/1").split("/"))
"""Which part of the tests this run asks, and of how many parts."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs Spark, so that `make test-fast` leaves it out, and leave the other shares out."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or NEEDS_SPARK & set(item.path.relative_to(ROOT).parts):
            item.add_marker("spark")
    if OF > 1:
        others = [item for item in items if zlib.crc32(item.nodeid.encode()) % OF != SHARE]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if zlib.crc32(item.nodeid.encode()) % OF == SHARE]


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over the tests themselves, which stay to the end."""
    gc.collect()
    gc.freeze()


FAILED = ROOT / ".work" / "failed.txt"
"""The tests that have failed so far, which a run that is ended leaves behind."""

IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ


def pytest_sessionstart(session: pytest.Session) -> None:
    """Forget the failures of the last run."""
    if not IS_WORKER:
        FAILED.unlink(missing_ok=True)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record each failure at once."""
    if report.failed and not IS_WORKER:
        FAILED.parent.mkdir(exist_ok=True)
        with FAILED.open("a", encoding="utf-8") as file:
            file.write(f"{report.nodeid} ({report.when})\n")


@pytest.fixture(autouse=True, scope="session")
def never_wait_for_the_disk() -> Iterator[None]:
    """Leave what is written to the memory of the system: no test cuts the power, and a killed process loses nothing.

    For files of logs, and for the SQLite databases of catalogs. With WIDEN_TEST_ENGINE=spark all is as users have it.
    """
    if ENGINE == "spark":
        yield
        return
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    def trust_the_system(connection: Any, _: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")

    def never_wait(_: int) -> None:
        return

    event.listen(Engine, "connect", trust_the_system)
    with mock.patch.object(os, "fsync", new=never_wait):
        yield
    event.remove(Engine, "connect", trust_the_system)


WITHOUT_SPARK = os.environ.get("WIDEN_TEST_SPARK") == "none"


def _skip(reason: str = "a command starts it") -> NoReturn:
    pytest.skip(f"needs Spark, because {reason}")


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A session on two cores, of Connect if WIDEN_TEST_SPARK says so; its workers find the package and the tests.

    If it says ``none``, there is no Spark, and a test ends as skipped where it needs one.
    """
    if WITHOUT_SPARK:
        from widen.spark.engine import Engine, LocalSession

        yield LocalSession(Engine.AUTO, _skip)
        return
    from pyspark.sql import SparkSession

    from support.java_names import remember_java_names

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("widen-tests")
    remote = os.environ.get("WIDEN_TEST_SPARK") == "connect"
    builder = builder.remote("local[2]") if remote else builder.master("local[2]")
    for key, value in session_settings().items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Connect warns of settings that only a server can have
        session = builder.getOrCreate()
    if not remote:
        session.sparkContext.setLogLevel("FATAL")
        if ENGINE != "spark":
            remember_java_names()
    yield session
    session.stop()


def _names(text: str) -> frozenset[str]:
    return frozenset(f"test_{name}.py" for name in text.split())


LOCAL = _names("""
    allow_nan cli contract csv_damage csv_header envelopes exact existing_table iceberg_faults ingest ingest_glue
    ingest_iceberg interrupted_load keyed_proof keys keys_iceberg keys_races kinds_and_columns loads maps masks numbers
    pipelines quarantine replay returning_columns row_versions sinks sources two_weeks
""")
"""Files of tests whose subject is not Spark, so that what needs no Spark is done in this process."""

READS_HERE = LOCAL | _names("""
    append change_grow delete drop_crossed drop_feature faults feed file_changes flow fold grow keys_faults merge
    optimize overwrite race restore rewrite rules source_places typed unify update verify verify_columns
""")
"""Files of tests that look at rows of Delta tables without asking how Spark reads them."""

ABOUT_CHANGES = _names("feed")
"""Files of tests that ask how Spark reads the changes of rows."""


@pytest.fixture(autouse=True, scope="module")
def choose_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let loads and replays run without Spark where that is enough, and read rows so: in `LOCAL` and `READS_HERE`.

    WIDEN_TEST_ENGINE says ``local`` or ``spark`` for all files; `make settings` and `make matrix` run all on Spark.
    """
    name = request.path.name
    with ExitStack() as changes:
        if WITHOUT_SPARK:
            from widen.spark import engine, session

            changes.enter_context(mock.patch.object(session, "_start_session", _skip))
            no_such_step = lambda _, name: _skip(f"a test asks a frame for {name}")  # noqa: E731
            changes.enter_context(mock.patch.object(engine.LocalFrame, "__getattr__", no_such_step, create=True))
        if ENGINE == "local" or (name in READS_HERE and ENGINE != "spark"):
            from support.rows_here import rows_read_here

            changes.enter_context(rows_read_here(with_changes=name not in ABOUT_CHANGES))
        if ENGINE == "local" or (name in LOCAL and ENGINE != "spark"):
            from widen.spark import engine

            changes.enter_context(mock.patch.object(engine, "SESSION_WINS", new=False))
        yield
