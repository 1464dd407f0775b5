"""The session that Widen works in: which versions of Spark it takes."""

from __future__ import annotations

import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

import widen
from widen.batches import open_source
from widen.errors import InvalidOption, UnsupportedSpark
from widen.spark import engine
from widen.spark import session as job_progress
from widen.spark.engine import Engine, LocalSession, find_session
from widen.spark.errors import find_known_failure
from widen.spark.session import JobProgress, ensure_supported, stream_settings, watch_jobs


@pytest.mark.parametrize("version", ["4.0.0", "4.3.0", "4.2.0-SNAPSHOT", "5.0.0", "10.1"])
def test_supported(version: str) -> None:
    ensure_supported(version)


@pytest.mark.parametrize("version", ["3.5.7", "3.5.7-amzn-0", "2.4"])
def test_an_older_one_is_refused_in_one_line(version: str) -> None:
    with pytest.raises(UnsupportedSpark) as caught:
        ensure_supported(version)
    assert caught.value.message == f"Widen needs Spark 4.0 or later; this is {version}."
    assert "\n" not in caught.value.message


def test_a_session_of_an_old_server_is_refused() -> None:
    class Old:
        version = "3.5.1"

    with pytest.raises(UnsupportedSpark):
        find_session(Old())  # type: ignore[arg-type]


def test_spark_has_the_manager_of_checkpoints_that_its_own_sessions_use() -> None:
    (manager,) = stream_settings(pyspark.__version__).values()
    (jar,) = (Path(pyspark.__file__).parent / "jars").glob("spark-sql_*.jar")
    assert f"{manager.replace('.', '/')}.class" in zipfile.ZipFile(jar).namelist()


def test_a_session_that_widen_starts_says_nothing_and_has_the_defaults_of_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "# spark.ui.enabled true\nspark.driver.memory 1g\n  spark.sql.session.timeZone=Europe/Paris\n"
    (tmp_path / "spark-defaults.conf").write_text(lines)
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    code = (
        "from widen.spark.engine import find_session; spark = find_session(); print(spark.range(3).count()); "
        "conf = spark.sparkContext.getConf(); "
        "names = ('driver.memory', 'sql.session.timeZone', 'ui.enabled', 'python.sql.dataFrameDebugging.enabled'); "
        "print([conf.get(f'spark.{name}') for name in names])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("3\n['1g', 'Europe/Paris', 'false', 'false']\n", "")


def test_an_unknown_version_of_spark_keeps_its_own_manager_of_checkpoints() -> None:
    assert stream_settings("5.0") == {}


def test_executors_of_another_python_are_told_in_one_line() -> None:
    text = (
        "Job aborted.\npyspark.errors.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different "
        "version: 3.10 than that in driver: 3.11, PySpark cannot run with different minor versions.\nPlease check"
    )
    found = find_known_failure(RuntimeError(text))
    assert isinstance(found, InvalidOption)
    assert "executors run Python 3.10 while this is Python 3.11" in found.message
    assert found.advice is not None
    assert "Set PYSPARK_PYTHON to a Python 3.11 that has widen" in f"{found.message} {found.advice}"


def test_no_warning_of_other_packages_is_shown() -> None:
    code = (
        "import widen.spark\n"
        "from pyspark.sql.pandas.utils import require_minimum_pandas_version, require_minimum_pyarrow_version\n"
        "require_minimum_pandas_version(); require_minimum_pyarrow_version()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_running_jobs_tell_their_tasks(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_progress, "POLL_SECONDS", 0.05)
    seen: list[JobProgress] = []

    def wait(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        time.sleep(0.2)
        yield from batches

    with watch_jobs(spark, seen.append):
        spark.range(0, 8, 1, 8).mapInArrow(wait, "id bigint").write.format("noop").mode("overwrite").save()
    assert {each.tasks for each in seen} == {8}
    assert sorted(each.done_tasks for each in seen) == [each.done_tasks for each in seen]
    assert 0 < max(each.done_tasks for each in seen) <= 8


def test_a_session_of_connect_tells_its_tasks() -> None:
    handlers: list[Any] = []
    session: Any = SimpleNamespace(
        client=object(), registerProgressHandler=handlers.append, removeProgressHandler=handlers.remove
    )
    seen: list[JobProgress] = []
    with watch_jobs(session, seen.append):
        stages = [
            SimpleNamespace(num_completed_tasks=1, num_tasks=4),
            SimpleNamespace(num_completed_tasks=2, num_tasks=2),
        ]
        handlers[0](stages=stages, inflight_tasks=1, operation_id="1", done=False)
        handlers[0](stages=None, inflight_tasks=0, operation_id="1", done=True)
    assert seen == [JobProgress(3, 6)]
    assert handlers == []


def test_a_session_that_tells_nothing_is_left_alone() -> None:
    session: Any = SimpleNamespace()
    with watch_jobs(session, pytest.fail):
        pass


def test_a_load_that_starts_spark_sends_widen_too(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[Any] = []
    monkeypatch.setattr(open_source, "ensure_shipped", sent.append)
    monkeypatch.setattr(engine, "SOURCE_BYTES", 1)
    (tmp_path / "a.jsonl").write_text('{"id": 1}\n')
    session: Any = LocalSession(Engine.AUTO, lambda _: spark)
    assert widen.ingest(tmp_path / "a.jsonl", tmp_path / "t", spark=session).records == 1
    assert sent == [spark]
