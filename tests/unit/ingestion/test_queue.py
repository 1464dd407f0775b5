"""Loads of the objects that messages of an SQS queue name, from a server of S3 and SQS on loopback."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import obstore
import pytest

import widen
from support.command_line import run
from support.fault import FULL
from support.log_server import BUCKET, s3_server
from widen.errors import InvalidOption, OptionConflict, OptionMissing, PostCommitFailed, SourceError
from widen.ingestion.result import IngestResult
from widen.log.log_store import LogStore
from widen.sources import event_queue

URL = f"s3://{BUCKET}"
KILLS = 100 if FULL in os.environ else 20


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with s3_server() as storage_options:
        yield storage_options


class Landing:
    """A folder of a bucket that tells a queue of its objects, and the table that gets them."""

    def __init__(self, options: dict[str, str], name: str, place: Path) -> None:
        self.options, self.name, self.place = options, name, place
        words = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
        endpoint = options["AWS_ENDPOINT_URL"]
        self.sqs, self.s3 = (boto3.client(each, endpoint_url=endpoint, **words) for each in ("sqs", "s3"))
        self.queue = self.sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"]
        arn = f"arn:aws:sqs:us-east-1:123456789012:{name}"
        prefix = {"Key": {"FilterRules": [{"Name": "prefix", "Value": f"{name}/"}]}}
        told = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*", "s3:ObjectRemoved:*"], "Filter": prefix}
        self.s3.put_bucket_notification_configuration(
            Bucket=BUCKET, NotificationConfiguration={"QueueConfigurations": [told]}
        )
        self.store = obstore.store.S3Store(BUCKET, config=options, client_options={"allow_http": True})

    def close(self) -> None:
        self.s3.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration={})
        self.s3.close()
        self.sqs.close()

    def put(self, *names: str) -> None:
        for name in names:
            obstore.put(self.store, f"{self.name}/{name}", json.dumps({"name": name}).encode() + b"\n")

    def put_silently(self, *names: str) -> None:
        self.s3.put_bucket_notification_configuration(Bucket=BUCKET, NotificationConfiguration={})
        self.put(*names)

    def send(self, body: str) -> None:
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=body)

    def messages(self) -> tuple[int, int]:
        """Return how many messages can be received, and how many are received and not acknowledged."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)["Attributes"]
        return int(found[names[0]]), int(found[names[1]])

    def load(self, **words: Any) -> IngestResult:
        words = {"new": True, "queue": f"sqs://{self.name}", "engine": "local", **words}
        return widen.ingest(f"{URL}/{self.name}", self.place / "t", storage_options=self.options, **words)

    def rows(self) -> list[str]:
        return sorted(widen.Table(str(self.place / "t")).to_arrow()["name"].to_pylist())


@pytest.fixture
def landing(
    options: dict[str, str], tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Landing]:
    monkeypatch.setattr(event_queue, "_WAIT_SECONDS", 0)  # one server answers for all messages
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)[:70]
    made = Landing(options, name, tmp_path)
    yield made
    made.close()


@pytest.fixture
def listings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is listed of the store."""
    found: list[str] = []

    def noting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def note(store: LogStore, *arguments: Any, **words: Any) -> Any:
            if not store.is_local:
                found.append(str(arguments))
            return plain(store, *arguments, **words)

        return note

    for name in ("list", "list_range", "list_from", "walk"):
        monkeypatch.setattr(LogStore, name, noting(getattr(LogStore, name)))
    return found


def test_the_objects_that_messages_name_are_loaded_and_acknowledged(landing: Landing, listings: list[str]) -> None:
    landing.put("a.json", "day=1/b c+%.json", "_hidden.json", "_folder/x.json", "é.json")
    obstore.put(landing.store, f"{landing.name}/empty.json", b"")
    done = landing.load()
    assert (done.records, done.compared.parked.count) == (3, 0)
    assert landing.rows() == ["a.json", "day=1/b c+%.json", "é.json"]
    assert landing.messages() == (0, 0)
    listings.clear()
    landing.put("b.json", "gone.json")
    obstore.put(landing.store, f"{landing.name}/a.json", b'{"name": "of another size"}\n')
    obstore.delete(landing.store, f"{landing.name}/gone.json")
    done = landing.load(queue=landing.queue, changed="skip")
    assert (done.records, done.compared.changed.count) == (1, 1)
    assert landing.load().is_unchanged
    assert (landing.messages(), listings) == ((0, 0), [])


def test_a_command_takes_region_and_credentials_from_the_environment(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in landing.options.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    landing.put("a.json")
    landing.send("hello")
    words = ("--new", "--queue", f"sqs://{landing.name}", "--engine", "local")
    done = run("ingest", f"{URL}/{landing.name}", "--into", str(landing.place / "t"), *words)
    assert done.exit_code == 0, done.output
    assert "wrote 1 record" in done.output
    assert "left in the queue, because no object of the source is named: 1 message: " in done.output


def test_doubled_messages_load_once_and_others_stay_and_are_named(landing: Landing) -> None:
    landing.put("a.json")
    record = {"eventSource": "aws:s3", "eventName": "ObjectCreated:Put"}
    for key in (f"{landing.name}/a.json", f"{landing.name}/a.json", "elsewhere/a.json"):
        place = {"bucket": {"name": BUCKET}, "object": {"key": key}}
        landing.send(json.dumps({"Records": [{**record, "s3": place}]}))
    landing.send("hello")
    done = landing.load()
    assert (done.records, done.compared.parked.count) == (1, 2)
    assert landing.messages() == (0, 2)
    assert done.to_value()["sourceFiles"]["counts"]["parked"] == 2
    assert landing.load().is_unchanged


def test_objects_that_wait_for_the_next_load_keep_their_messages(landing: Landing) -> None:
    landing.put(*(f"{number}.json" for number in range(5)))
    assert landing.load(max_files=2).compared.waiting.count == 3
    assert landing.messages() == (3, 0)
    assert landing.load().records == 3
    assert landing.messages() == (0, 0)


def test_a_load_that_fails_and_a_plan_leave_the_messages(landing: Landing) -> None:
    landing.put("a.json")
    before = landing.messages()
    with pytest.raises(widen.WidenError):
        landing.load(pins={"name": "int"}, evolve="fail")
    assert landing.messages() == before
    source = f"{URL}/{landing.name}"
    words: dict[str, Any] = {"new": True, "queue": landing.queue, "engine": "local", "storage_options": landing.options}
    assert widen.plan(source, landing.place / "t", **words).events
    assert landing.messages() == before
    assert landing.load().records == 1


def test_an_audit_loads_and_names_what_no_message_named(landing: Landing, listings: list[str]) -> None:
    landing.put("a.json")
    assert landing.load(audit="1d").compared.audited.count == 1
    listings.clear()
    landing.put("b.json")
    landing.put_silently("0.json", "z.json")
    assert landing.load(audit="1d").records == 1
    assert listings == []
    done = landing.load(audit="now")
    names = [path.rpartition("/")[2] for path in done.compared.missed.first]
    assert (done.records, names) == (2, ["0.json", "z.json"])
    assert landing.load(audit="now").compared.missed.count == 0


def test_an_acknowledgement_that_fails_says_that_the_load_is_committed(
    landing: Landing, monkeypatch: pytest.MonkeyPatch
) -> None:
    landing.put("a.json")

    def refuse(*_: object) -> None:
        raise SourceError(source="q", reason="no permission", fix="Ask for it.")

    with monkeypatch.context() as patch:
        patch.setattr(event_queue.SqsQueue, "acknowledge", refuse)
        with pytest.raises(PostCommitFailed, match="no permission"):
            landing.load()
    assert landing.load().is_unchanged
    assert (landing.rows(), landing.messages()) == (["a.json"], (0, 0))


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        ({"new": False}, OptionMissing, "queue needs new=True"),
        ({"order": "name"}, OptionConflict, "queue cannot be used together with order"),
        ({"txn": ("app", 1)}, OptionConflict, "queue cannot be used together with txn"),
        ({"new_by": "content"}, InvalidOption, "compared by path"),
        ({"queue": "landing"}, InvalidOption, "Must be the URL of a queue of SQS, or sqs://NAME"),
        ({"queue": "sqs://missing"}, SourceError, "sqs://missing: "),
    ],
)
def test_a_queue_that_cannot_apply_is_refused(
    landing: Landing, words: dict[str, Any], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        landing.load(**words)


@pytest.mark.parametrize("source", ["/usr/share/doc", "gs://bucket/in", "s3://bucket/*.json"])
def test_a_queue_needs_folders_of_s3(landing: Landing, source: str) -> None:
    with pytest.raises(InvalidOption, match="needs folders of S3"):
        widen.ingest(source, landing.place / "t", new=True, engine="local", queue=landing.queue)


_KILLED = """
import os, signal, sys
import widen
from widen.sources import event_queue
event_queue._WAIT_SECONDS = 0
left = int(sys.argv[4])
def count(event, values):
    global left
    # Requests to the queue, and the files that a commit writes.
    is_write = event == "open" and values[2] & os.O_CREAT
    if is_write or event in ("socket.connect", "os.rename", "os.link", "http.client.send"):
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(count)
import json
options = {"engine": "local", "storage_options": json.loads(sys.argv[5]), "max_files": 3}
widen.ingest(sys.argv[1], sys.argv[2], new=True, queue=sys.argv[3], **options)
"""


@pytest.mark.sweep
def test_loads_that_are_killed_at_any_moment_lose_and_repeat_nothing(landing: Landing) -> None:
    """Between the commit and the acknowledgement as well."""
    rng, names = random.Random(0), list[str]()
    landing.sqs.set_queue_attributes(QueueUrl=landing.queue, Attributes={"VisibilityTimeout": "0"})
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    ends = Counter[int]()
    for number in range(KILLS):
        added = [f"{rng.randrange(10**6)}-{number}.json" for _ in range(rng.randint(1, 2))]
        landing.put(*added)
        names += added
        words = [f"{URL}/{landing.name}", str(landing.place / "t"), landing.queue, str(rng.randrange(40))]
        command = [sys.executable, "-c", _KILLED, *words, json.dumps(landing.options)]
        ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr[-2000:]
        ends[ended.returncode] += 1
        if (landing.place / "t").exists():
            assert set(Counter(landing.rows()).values()) <= {1}
    assert len(ends) == 2, ends
    while not landing.load().is_unchanged:
        continue
    assert landing.rows() == sorted(names)
    assert landing.messages() == (0, 0)


_EMPTYING = """
import json, sys
import widen
from widen.sources import event_queue
event_queue._WAIT_SECONDS = 0
source, table, queue, options = sys.argv[1:]
while not widen.ingest(source, table, new=True, queue=queue, max_files=5, engine="local",
                       storage_options=json.loads(options)).is_unchanged:
    pass
"""


@pytest.mark.parametrize("timeout", ["0", "60"])
def test_two_loads_empty_one_queue_at_the_same_time(landing: Landing, timeout: str) -> None:
    """With a visibility timeout of 0, both receive every message, and compete for each commit."""
    landing.sqs.set_queue_attributes(QueueUrl=landing.queue, Attributes={"VisibilityTimeout": timeout})
    landing.put("first.json")
    landing.load()
    names = [f"{number}.json" for number in range(40)]
    landing.put(*names)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    words = [f"{URL}/{landing.name}", str(landing.place / "t"), landing.queue, json.dumps(landing.options)]
    command = [sys.executable, "-c", _EMPTYING, *words]
    with (
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as one,
        subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as other,
    ):
        for process in (one, other):
            _, said = process.communicate(timeout=300)
            assert process.returncode == 0, said[-2000:]
    while not landing.load().is_unchanged:
        continue
    assert landing.rows() == sorted([*names, "first.json"])
    assert landing.messages() == (0, 0)
