"""Topics of a real broker, ingested: drift, bad messages, offsets, limits, keys, and what the guide's example does.

The messages go through Kafka's own log: a producer of Spark writes them, and Spark's connector reads them.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.pages import Exceptions, blocks, run_block, with_outputs
from widen.errors import LimitExceeded

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide" / "kafka.md"


class Topic:
    """A topic, the stream of its messages, and a table beside it."""

    def __init__(self, spark: SparkSession, broker: str, name: str, folder: Path) -> None:
        self.spark, self.broker, self.name = spark, broker, name
        self.table, self.checkpoint = folder / "table", folder / "checkpoint"

    def send(self, *messages: object, key: str | None = None) -> None:
        """Append messages to the topic: texts as they are, None as a tombstone, all others as JSON."""
        values = [each if each is None or isinstance(each, str) else json.dumps(each) for each in messages]
        frame = self.spark.createDataFrame([(key, value) for value in values], "key string, value string")
        writer = frame.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", self.broker)
        writer.option("topic", self.name).save()

    def messages(self, **options: object) -> DataFrame:
        """The stream of its messages, as the connector returns them."""
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.broker)
        reader = reader.option("subscribe", self.name).option("startingOffsets", "earliest")
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    def values(self, **options: object) -> DataFrame:
        """The stream of the values of its messages, as texts."""
        return self.messages(**options).selectExpr("CAST(value AS STRING) AS value")

    def load(self, frame: DataFrame | None = None, **settings: Any) -> None:
        """Ingest what the topic has now."""
        stream = widen.ingest_stream(
            frame or self.values(),
            into=self.table,
            checkpoint=self.checkpoint,
            **{"format": "json", "once": True, **settings},
        )
        stream.wait()

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        rows: Iterable[tuple[object, ...]] = widen.Table(self.table).read(spark=self.spark).select(*columns).collect()
        return sorted((tuple(row) for row in rows), key=str)


@pytest.fixture
def topic(spark: SparkSession, broker: str, request: pytest.FixtureRequest, tmp_path: Path) -> Topic:
    """A topic of its own for each test."""
    return Topic(spark, broker, re.sub(r"\W", "-", request.node.name), tmp_path)


def test_messages_that_drift_are_stored_exactly_and_once(topic: Topic) -> None:
    topic.send({"id": 1, "total": 12}, {"id": 2, "total": 7})
    topic.load()
    topic.send({"id": 3, "total": 12.5}, {"id": 4, "total": "7.25 EUR"})
    topic.load(verify=True)
    topic.load()  # nothing is new
    assert topic.rows("id", "total", "total_string") == [
        (1, 12.0, None),
        (2, 7.0, None),
        (3, 12.5, "12.5"),
        (4, None, "7.25 EUR"),
    ]


def test_a_message_that_is_not_json_is_kept_as_it_is(topic: Topic) -> None:
    topic.send({"id": 1}, "no JSON", "[1, 2]", {"id": 2})
    topic.load()
    assert topic.rows("id", "_corrupt_record") == [(1, None), (2, None), (None, "[1, 2]"), (None, "no JSON")]


def test_a_tombstone_is_not_a_record(topic: Topic) -> None:
    topic.send({"id": 1}, None)
    topic.load()
    assert topic.rows("id") == [(1,)]


def test_a_stream_that_stops_at_a_limit_goes_on_at_the_same_offset(topic: Topic) -> None:
    topic.send({"id": 1})
    topic.load(max_corrupt=0)
    topic.send("no JSON", {"id": 2})
    with pytest.raises(LimitExceeded):
        topic.load(max_corrupt=0)
    assert topic.rows("id") == [(1,)]
    topic.load(max_corrupt=1)
    assert topic.rows("id", "_corrupt_record") == [(1, None), (2, None), (None, "no JSON")]


def test_a_lost_checkpoint_loads_messages_again(topic: Topic) -> None:
    topic.send({"id": 1})
    topic.load()
    shutil.rmtree(topic.checkpoint)
    topic.load()
    assert topic.rows("id") == [(1,), (1,)]


def test_micro_batches_have_a_size(topic: Topic) -> None:
    topic.send(*({"id": each} for each in range(10)))
    topic.load(topic.values(maxOffsetsPerTrigger=4))
    assert topic.rows("id") == [(each,) for each in range(10)]
    loads = [entry for entry in widen.Table(topic.table).history() if entry.version > 0]
    assert len(loads) == 2  # 4, 4 and 2 messages; the first micro-batch is version 0


def test_a_stopped_stream_loads_each_message_once(topic: Topic) -> None:
    topic.send(*({"id": each} for each in range(50)))
    interval = threading.Event()
    stream = widen.ingest_stream(
        topic.values(maxOffsetsPerTrigger=10),
        into=topic.table,
        checkpoint=topic.checkpoint,
        format="json",
        on_interval=lambda _: interval.set(),
    )
    assert interval.wait(120)
    topic.send(*({"id": each} for each in range(50, 60)))
    stream.stop()
    topic.load()
    assert topic.rows("id") == sorted(((each,) for each in range(60)), key=str)


def test_the_newest_message_of_each_key_wins(topic: Topic) -> None:
    topic.send({"id": 1, "at": 1, "status": "new"}, {"id": 2, "at": 1, "status": "new"})
    topic.load(key=["id"], sequence_by="at")
    topic.send({"id": 1, "at": 3, "status": "paid"}, {"id": 1, "at": 2, "status": "packed"})
    topic.load(key=["id"], sequence_by="at")
    assert topic.rows("id", "at", "status") == [(1, 3, "paid"), (2, 1, "new")]


def test_the_page_of_the_guide_is_followed(
    spark: SparkSession, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = GUIDE.read_text(encoding="utf-8")
    sample, *snippets = [block for block in blocks(text) if block.language in ("json", "python")]
    orders = Topic(spark, broker, "orders", tmp_path)
    for line in sample.text.splitlines():
        orders.send(line, key=line[8:11] if line.startswith("{") else "A-3")
    names: dict[str, object] = {}
    printed = {}
    for number, snippet in enumerate(snippets):
        if number == len(snippets) - 1:
            orders.send(None, key="A-2")
        text_here = snippet.text.replace("broker:9092", broker)
        printed[snippet.start] = run_block(replace(snippet, text=text_here), names, Exceptions({}, {}))
    if os.environ.get("WIDEN_UPDATE_OUTPUTS") == "1":
        GUIDE.write_text(with_outputs(text, printed), encoding="utf-8")
    for snippet in blocks(GUIDE.read_text(encoding="utf-8")):
        if snippet.start in printed and snippet.language == "python":
            assert printed[snippet.start] == snippet.shown
