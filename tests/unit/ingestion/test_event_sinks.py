"""Sinks for events: a file, a webhook on loopback, OpenLineage. The packages of CloudEvents and OpenLineage judge."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.receiver import Receiver, listening
from widen.errors import InvalidOption, StorageError
from widen.evolution.plan import BadFile, Grade, PlanEvent
from widen.ingestion import event_sinks
from widen.ingestion.event_sinks import EventFile, EventSinks, OpenLineage, Webhook, to_cloud_event, to_dataset
from widen.ingestion.result import FailureEvent, IntervalEvent, LoadEvent
from widen.model.types import ArrayType, AtomicType, Field, StructType

LONG, STRING = AtomicType("long"), AtomicType("string")
SCHEMA = StructType((Field("id", LONG), Field("lines", ArrayType(StructType((Field("sku", STRING),))))))
LOAD = LoadEvent(2, 0, 0, 1, 500, duration_ms=1500, schema=SCHEMA)


def change(grade: Grade) -> PlanEvent:
    return PlanEvent(("U8",), ("total",), ("string",), ("total_string",), 1, ("a.json", 3), "x", grade)


def event(detail: Any, version: int | None = 7) -> IntervalEvent:
    return IntervalEvent("/lake/shop orders", version, None, detail, 1_700_000_000_123)


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with listening() as found:
        yield found


GRADES = [Grade.ADDITIVE, Grade.WIDENING, Grade.CONFLICT, Grade.STRUCTURAL]


@pytest.mark.parametrize(
    ("grade", "sent"),
    [
        ("structural", ["change.structural", "badFile", "failure"]),
        ("conflict", ["change.conflict", "change.structural", "badFile", "failure"]),
        ("widening", ["change.widening", "change.conflict", "change.structural", "badFile", "failure"]),
        (
            "all",
            [
                "change.additive",
                "change.widening",
                "change.conflict",
                "change.structural",
                "badFile",
                "load",
                "failure",
            ],
        ),
    ],
)
def test_what_a_webhook_sends(receiver: Receiver, grade: str, sent: list[str]) -> None:
    hook = Webhook(url=receiver.url, grade=grade)
    bad = BadFile("a.json", "is truncated", 1, 2, None)
    for detail in (*map(change, GRADES), bad, LOAD, FailureEvent("WIDEN_LIMIT", "too many")):
        hook(event(detail))
    assert receiver.types() == [f"widen.{kind}" for kind in sent]


def test_a_request_is_a_cloud_event(receiver: Receiver) -> None:
    from cloudevents.core.bindings.http import HTTPMessage, from_structured_event
    from cloudevents.core.formats.json import JSONFormat

    Webhook(url=receiver.url, headers={"Authorization": "Bearer t"})(event(change(Grade.STRUCTURAL)))
    headers, body = receiver.requests[0]
    assert headers["Content-Type"].startswith("application/cloudevents+json")
    assert headers["Authorization"] == "Bearer t"
    parsed = from_structured_event(HTTPMessage(headers=headers, body=body), JSONFormat())
    assert parsed.get_type() == "widen.change.structural"
    assert parsed.get_source() == "/lake/shop%20orders"
    assert parsed.get_subject() == "total_string"
    assert parsed.get_time().timestamp() == 1_700_000_000.123
    assert parsed.get_data()["sample"] == "x"


def test_each_cloud_event_has_its_own_id() -> None:
    first, second = (to_cloud_event(event(LOAD)) for _ in range(2))
    assert first["id"] != second["id"]
    assert first["data"]["durationMs"] == 1500


@pytest.mark.parametrize("answer", [429, 500, 503])
def test_an_answer_that_may_pass_is_retried(receiver: Receiver, answer: int, tmp_path: Path) -> None:
    receiver.answers = [answer, answer]
    Webhook(url=receiver.url, dead_letter=tmp_path / "dead")(event(change(Grade.STRUCTURAL)))
    assert len(receiver.requests) == 3
    assert (tmp_path / "dead").read_text() == ""


def test_a_refusal_is_final_and_goes_to_the_dead_letters(receiver: Receiver, tmp_path: Path) -> None:
    receiver.answers = [404]
    hook = Webhook(url=receiver.url, dead_letter=tmp_path / "dead")
    hook(event(change(Grade.STRUCTURAL)))
    hook(event(change(Grade.STRUCTURAL)))  # at once: a wide drift must not wait for each of its events
    assert len(receiver.requests) == 1
    lines = [json.loads(line) for line in (tmp_path / "dead").read_text().splitlines()]
    assert [(line["event"], line["grade"]) for line in lines] == [("change", "structural")] * 2


@pytest.mark.parametrize("answer", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_takes_no_secret_to_another_host(answer: int, tmp_path: Path) -> None:
    with listening() as receiver, listening() as other:
        receiver.answers, receiver.headers = [answer], {"Location": other.url}
        headers = {"Authorization": "Bearer t"}
        Webhook(url=receiver.url, headers=headers, dead_letter=tmp_path / "dead")(event(change(Grade.STRUCTURAL)))
        assert (len(receiver.requests), other.requests) == (1, [])
        assert '"grade":"structural"' in (tmp_path / "dead").read_text()
        receiver.answers = [answer]
        hook = Webhook(url=receiver.url, must_deliver=True)
        with pytest.raises(StorageError, match=f"HTTP {answer}, a redirect"):
            hook(event(change(Grade.STRUCTURAL)))


def test_a_url_with_credentials_is_refused_without_showing_them() -> None:
    with pytest.raises(InvalidOption, match="headers") as caught:
        Webhook(url="https://user:s3cret@h/x?token=s3cret")
    assert "s3cret" not in str(caught.value)


def test_it_is_tried_again_after_the_pause(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_sinks, "PAUSE_SECONDS", 0.0)
    receiver.answers = [404]
    hook = Webhook(url=receiver.url)
    hook(event(change(Grade.STRUCTURAL)))
    hook(event(change(Grade.STRUCTURAL)))
    assert len(receiver.requests) == 2


def test_nobody_listens(receiver: Receiver, caplog: pytest.LogCaptureFixture) -> None:
    receiver.server.server_close()
    with caplog.at_level(logging.WARNING, "widen.events"):
        Webhook(url=receiver.url)(event(FailureEvent("WIDEN_LIMIT", "too many")))
    assert "WIDEN_LIMIT" in caplog.text
    assert "secret" not in caplog.text
    with pytest.raises(StorageError) as caught:
        Webhook(url=receiver.url, must_deliver=True)(event(FailureEvent("WIDEN_LIMIT", "too many")))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"url": "ftp://host/x"}, "url"),
        ({"url": "https:///x"}, "url"),
        ({"url": "http://h/x", "grade": "severe"}, "grade"),
        ({"url": "http://h/x", "attempts": 0}, "attempts"),
        ({"url": "http://h/x", "timeout_seconds": 0}, "timeout"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, Any], option: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        Webhook(**arguments)
    assert caught.value.fields["option"] == option


def test_files_are_opened_before_the_load(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        EventFile(tmp_path / "no" / "events")
    with pytest.raises(StorageError):
        Webhook(url="http://h/x", dead_letter=tmp_path / "no" / "dead")


def test_every_sink_gets_the_event_and_the_first_error_is_raised(tmp_path: Path) -> None:
    def fail(given: IntervalEvent) -> None:
        raise KeyError("first")

    with pytest.raises(KeyError):
        EventSinks([fail, EventFile(tmp_path / "events")])(event(LOAD))
    assert json.loads((tmp_path / "events").read_text())["event"] == "load"


class Client:
    """Takes runs in the place of OpenLineage's client, in the JSON that its own serializer gives."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def emit(self, run: Any) -> None:
        from openlineage.client.serde import Serde

        self.runs.append(json.loads(Serde.to_json(run)))


def test_a_load_is_a_run() -> None:
    client = Client()
    sink = OpenLineage(client=client, inputs=["s3://landing/orders/", "orders/monday"])
    sink(event(change(Grade.CONFLICT)))
    assert client.runs == []
    sink(event(LOAD))
    start, end = client.runs
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert (start["eventTime"], end["eventTime"]) == ("2023-11-14T22:13:18.623+00:00", "2023-11-14T22:13:20.123+00:00")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert (end["job"]["namespace"], end["job"]["name"]) == ("widen", "ingest.shop orders")
    inputs = [(each["namespace"], each["name"]) for each in end["inputs"]]
    assert inputs == [("s3://landing", "orders/"), ("file", str(Path("orders/monday").absolute()))]
    (output,) = end["outputs"]
    assert (output["namespace"], output["name"]) == ("file", "/lake/shop orders")
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 2
    assert output["facets"]["version"]["datasetVersion"] == "7"
    fields = output["facets"]["schema"]["fields"]
    assert (fields[0]["name"], fields[0]["type"]) == ("id", "long")
    assert [each["name"] for each in fields[1]["fields"]] == ["sku"]
    (changed,) = output["facets"]["widen_schemaChanges"]["changes"]
    assert (changed["column"], changed["grade"]) == (["total_string"], "conflict")
    sink(event(LOAD))
    assert "widen_schemaChanges" not in client.runs[-1]["outputs"][0]["facets"]


def test_a_load_that_fails_is_a_run_that_fails() -> None:
    client = Client()
    OpenLineage(client=client, job="orders")(event(FailureEvent("WIDEN_LIMIT", "too many", 10), None))
    assert [run["eventType"] for run in client.runs] == ["START", "FAIL"]
    assert client.runs[1]["run"]["facets"]["errorMessage"]["message"] == "WIDEN_LIMIT: too many"
    assert client.runs[1]["job"]["name"] == "orders"


def test_a_client_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def emit(self, run: Any) -> None:
            raise ConnectionError("no route")

    OpenLineage(client=Broken())(event(LOAD))
    assert "no route" in caplog.text
    with pytest.raises(StorageError, match="no route"):
        OpenLineage(client=Broken(), must_deliver=True)(event(LOAD))


@pytest.mark.parametrize(
    ("location", "dataset"),
    [
        ("s3://lake/shop/orders", ("s3://lake", "shop/orders")),
        ("gs://lake", ("gs://lake", "/")),
        ("abfss://c@account.dfs.core.windows.net/t", ("abfss://c@account.dfs.core.windows.net", "t")),
        ("file:///lake/a%20b", ("file", "/lake/a b")),
        ("/lake/orders", ("file", "/lake/orders")),
    ],
)
def test_names_of_datasets(location: str, dataset: tuple[str, str]) -> None:
    assert to_dataset(location) == dataset
