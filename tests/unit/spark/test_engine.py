"""The rule by which an ingestion runs here or on Spark, with sessions that only say what was asked of them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from widen.errors import EngineUnsuitable, InvalidOption
from widen.files.data_reader import java_number
from widen.files.data_writer import codec_of
from widen.limits import SOURCE_BYTES
from widen.model.display import size_text
from widen.spark import engine
from widen.spark.engine import (
    LocalSession,
    explain_engine,
    find_session,
    find_started,
    is_local,
    open_session,
    require_spark,
    start_tasks,
    to_local_frame,
)
from widen.spark.session import JobProgress


class Session:
    """What has the place of a session of Spark."""

    sparkContext = object()


@pytest.fixture(autouse=True)
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "find_active", lambda: None)
    for name in ("WIDEN_ENGINE", "SPARK_REMOTE", "MASTER"):
        monkeypatch.delenv(name, raising=False)


def start(reason: str) -> Any:
    session: Any = Session()
    session.reason = reason
    return session


def test_a_given_or_an_active_session_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    given: Any = Session()
    assert open_session(given) is given
    assert open_session(given, "auto") is given
    monkeypatch.setattr(engine, "find_active", lambda: given)
    assert open_session(None, None, start) is given
    assert open_session(None, "spark", start) is given
    assert is_local(open_session(None, "local", start))
    assert explain_engine(given) == ""


def test_a_given_session_and_no_spark_contradict_each_other() -> None:
    given: Any = Session()
    with pytest.raises(InvalidOption, match="Must not be local where a session is given"):
        open_session(given, "local")


def test_an_engine_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidOption, match="Must be auto, local or spark"):
        open_session(None, "duck")
    monkeypatch.setenv("WIDEN_ENGINE", "duck")
    with pytest.raises(InvalidOption, match="WIDEN_ENGINE cannot be 'duck'"):
        open_session()


def test_the_environment_asks_for_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_local(open_session(None, None, start))
    monkeypatch.setenv("MASTER", "local[2]")
    session: Any = open_session(None, None, start)
    assert session.reason == "MASTER is set"
    assert is_local(open_session(None, "local", start))
    monkeypatch.delenv("MASTER")
    monkeypatch.setenv("WIDEN_ENGINE", "spark")
    session = open_session(None, None, start)
    assert session.reason == "it was asked for"
    assert is_local(open_session(None, "auto", start))


@pytest.fixture(params=[True, False], ids=["kernel", "no_kernel"])
def most_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """What this process reads unasked, which is less without the kernel."""
    monkeypatch.setattr(engine, "find_kernel", lambda: "the kernel" if request.param else None)
    return 10**9 if request.param else 250 * 10**6


def test_spark_starts_when_something_needs_it_and_says_why(most_bytes: int) -> None:
    session: Any = open_session(None, None, start)
    assert isinstance(session, LocalSession)
    session.accept(5 * 2**20)
    assert explain_engine(session) == (
        f"without Spark: the source has 5.2 MB (Spark starts above {size_text(most_bytes)})"
    )
    started = require_spark(session, "it reads minds")
    assert require_spark(session, "of something else") is started
    assert not is_local(session)
    assert find_started(session) is started
    assert explain_engine(session) == "on Spark, because it reads minds"


def test_a_large_source_starts_spark_unless_it_must_not(most_bytes: int) -> None:
    session: Any = open_session(None, "auto", start)
    session.accept(most_bytes)
    assert is_local(session)
    session.accept(most_bytes + 1)
    assert not is_local(session)
    session = open_session(None, "auto", start)
    session.accept(2 * most_bytes)
    large, most = size_text(2 * most_bytes), size_text(most_bytes)
    more = "" if most_bytes == SOURCE_BYTES else f" ({size_text(SOURCE_BYTES)} with the native kernel)"
    assert explain_engine(session) == f"on Spark, because the source has {large}, more than {most}{more}"
    session = open_session(None, "local", start)
    session.accept(2**40)
    assert is_local(session)
    with pytest.raises(EngineUnsuitable, match="needs Spark, because it reads minds"):
        require_spark(session, "it reads minds")


def test_a_session_without_spark_is_not_taken_for_one_of_spark() -> None:
    session: Any = open_session(None, None, start)
    with pytest.raises(AttributeError):
        session.sparkContext  # noqa: B018
    assert (session.reason, find_started(session), find_started(None)) == ("", None, None)
    assert find_session(session, "it reads minds") is session.started
    assert session.reason == "it reads minds"


def test_tasks_have_their_share_of_the_numbers() -> None:
    session: Any = open_session(None, "local")
    frame = start_tasks(session, 7, per_task=3)
    assert [*map(len, (task.numbers for task in frame.tasks))] == [3, 3, 1]
    assert frame.mapInArrow(lambda batches: batches, "id bigint").toArrow()["id"].to_pylist() == [0, 1, 2, 3, 4, 5, 6]
    # A task without numbers yields batches without rows, so that the result has its columns.
    assert start_tasks(session, 0).toArrow().column_names == ["id"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (123456.789, "123456.789"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (12345678.5, "1.23456785E7"),
        (0.001, "0.001"),
        (0.0009, "9.0E-4"),
        (-2.5e-10, "-2.5E-10"),
        (1.7976931348623157e308, "1.7976931348623157E308"),
        (float("nan"), '"NaN"'),
        (float("-inf"), '"-Infinity"'),
    ],
)
def test_numbers_are_written_as_java_does(value: float, text: str) -> None:
    assert java_number(value, repr(value)) == text


def double(batches: Any) -> Any:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([pa.array([2 * each for each in batch.column(0).to_pylist()])], names=["id"])


def drop(_: Any) -> Any:
    return iter(())


@pytest.mark.parametrize("source_bytes", [0, engine.POOL_BYTES])
def test_frames_of_several_tasks_are_put_together(source_bytes: int) -> None:
    session, seen = LocalSession(engine.Engine.AUTO, start, source_bytes), list[JobProgress]()
    session.on_task = seen.append
    numbers = start_tasks(session, 6, per_task=2)
    both = numbers.mapInArrow(double, None).unionAll(numbers).unionAll(numbers.mapInArrow(drop, None))
    assert both.toArrow()["id"].to_pylist() == [0, 2, 4, 6, 8, 10, 0, 1, 2, 3, 4, 5]
    assert sorted(each.done_tasks for each in seen) == [*range(1, 10)]
    assert {each.tasks for each in seen} == {9}
    given: Any = session
    frame = to_local_frame(given, pa.RecordBatch.from_pydict({"id": [7]})).mapInArrow(double, None)
    assert frame.toArrow()["id"].to_pylist() == [14]
    assert numbers.mapInArrow(drop, None).toArrow().num_rows == 0
    session.close()


def test_work_that_runs_at_the_same_time_starts_spark_once() -> None:
    reasons: list[str] = []

    def count(reason: str) -> Any:
        reasons.append(reason)
        return start(reason)

    session = LocalSession(engine.Engine.AUTO, count)
    one, other = session.fork(), session.fork()
    assert is_local(one)
    assert one is not other
    assert one.require("of one") is other.require("of the other")
    assert reasons == ["of one"]
    given: Any = session
    assert open_session(given, "spark", start) is session.started
    alone = open_session(given, "local", start)
    assert is_local(alone)
    with pytest.raises(EngineUnsuitable, match="because of it"):
        require_spark(alone, "of it")


def test_a_session_that_has_started_spark_has_its_settings() -> None:
    settings: Any = SimpleNamespace(conf={"spark.sql.parquet.compression.codec": "zstd"})
    session = LocalSession(engine.Engine.AUTO, lambda _: settings)
    assert codec_of(session) == "snappy"
    require_spark(session, "it reads minds")
    assert codec_of(session) == codec_of(settings) == "zstd"
