"""Spark for the tests that need it: one session for all of them."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

pytest.register_assert_rewrite("support.exact")

ROOT = Path(__file__).resolve().parents[1]


# A busy machine is not a failure. CI tries the same examples for the same code; elsewhere each run tries new ones.
settings.register_profile(
    "widen",
    deadline=None,
    derandomize="CI" in os.environ,
    max_examples=int(os.environ.get("WIDEN_EXAMPLES", settings.default.max_examples if settings.default else 100)),
)
settings.load_profile("widen")


NEEDS_SPARK = {"cluster", "engine", "interop", "kafka", "postgres", "real", "s3", "wheel"}
"""Folders of tests that need Spark or another server, in this process or in those that they start."""

CLASSES = ROOT / ".work" / "spark-classes.jsa"
"""Spark's classes as the Java machine has loaded them once; without the file, each start loads them anew."""

JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",  # jobs this small end before more compiling pays
    "-XX:+UseSerialGC",
    *((f"-XX:SharedArchiveFile={CLASSES}", "-Xlog:disable") if CLASSES.exists() else ()),
)
"""For every Spark that a test starts, in this process or in another one."""

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "America/Los_Angeles",
    **dict(pair.split("=", 1) for pair in os.environ.get("WIDEN_TEST_SETTINGS", "").split(",") if pair),
}
"""The settings of the session; `make settings` runs tests with others, as ``key=value,key=value``."""


def pytest_configure(config: pytest.Config) -> None:
    """Set what every Spark starts with, and ignore what it says of pandas, which neither it nor we need here.

    pytest imports readline, which sets ``COLUMNS`` for the workers of a run in a terminal: output is to have one width.
    """
    for name in ("COLUMNS", "LINES"):
        os.environ.pop(name, None)
    os.environ.setdefault("SPARK_SUBMIT_OPTS", " ".join(JAVA_OPTIONS))
    config.addinivalue_line("filterwarnings", "ignore:PySpark does not yet fully support pandas:FutureWarning")
    config.addinivalue_line("filterwarnings", "ignore:unclosed.*socket:ResourceWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark, so that `make test-fast` leaves it out."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or NEEDS_SPARK & set(item.path.relative_to(ROOT).parts):
            item.add_marker("spark")


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


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    """A session on two cores, of Connect if WIDEN_TEST_SPARK says so; its workers find the package and the tests.

    If it says ``none``, there is no Spark, and a test ends as skipped where it needs one.
    """
    if os.environ.get("WIDEN_TEST_SPARK") == "none":
        from widen.spark.engine import Engine, LocalSession

        yield LocalSession(Engine.AUTO, lambda reason: pytest.skip(f"needs Spark, because {reason}"))
        return
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    paths = [str(ROOT / "src"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("widen-tests")
    remote = os.environ.get("WIDEN_TEST_SPARK") == "connect"
    builder = builder.remote("local[2]") if remote else builder.master("local[2]")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Connect warns of settings that only a server can have
        session = builder.getOrCreate()
    if not remote:
        session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()


LOCAL: frozenset[str] = frozenset()
"""Files of tests whose subject is not Spark, so that what needs no Spark is done in this process."""


@pytest.fixture(autouse=True, scope="module")
def choose_engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let loads and replays run without Spark where that is enough: in the files of `LOCAL`.

    WIDEN_TEST_ENGINE says ``local`` or ``spark`` for all files; `make settings` and `make matrix` run all on Spark.
    """
    wanted = os.environ.get("WIDEN_TEST_ENGINE") or ("local" if request.path.name in LOCAL else "spark")
    if wanted != "local":
        yield
        return
    from widen.spark import engine

    engine.SESSION_WINS = False
    yield
    engine.SESSION_WINS = True
