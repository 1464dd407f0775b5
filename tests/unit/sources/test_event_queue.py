"""Messages that name objects: their forms, and queues of SQS that hand them out in any order, twice, and again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from widen.errors import InvalidOption
from widen.sources.event_queue import Arrivals, Message, open_queue, read_arrivals


def record(key: str, name: str = "ObjectCreated:Put", **more: Any) -> dict[str, Any]:
    place = {"bucket": {"name": "b"}, "object": {"key": key, "size": 3}}
    return {"eventVersion": "2.1", "eventSource": "aws:s3", "eventName": name, "s3": place, **more}


def from_s3(*keys: str, name: str = "ObjectCreated:Put") -> str:
    return json.dumps({"Records": [record(key, name) for key in keys]})


def through_sns(body: str) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "1", "TopicArn": "arn:aws:sns:x", "Message": body})


def from_event_bridge(key: str, kind: str = "Object Created") -> str:
    detail = {"version": "0", "bucket": {"name": "b"}, "object": {"key": key, "size": 3}, "reason": "PutObject"}
    return json.dumps({"version": "0", "detail-type": kind, "source": "aws.s3", "detail": detail})


TEST_EVENT = json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"})


@pytest.mark.parametrize(
    ("body", "urls"),
    [
        (from_s3("in/a.json"), ["s3://b/in/a.json"]),
        (from_s3("in/a.json", "in/b.json"), ["s3://b/in/a.json", "s3://b/in/b.json"]),
        (from_s3("in/a+b%20c%2B%25.json"), ["s3://b/in/a b c+%.json"]),
        (from_s3("in/%C3%A9.json", name="ObjectCreated:CompleteMultipartUpload"), ["s3://b/in/é.json"]),
        (from_s3("in/a.json", name="ObjectRemoved:Delete"), []),
        (from_s3("in/a.json", name="ObjectTagging:Put"), []),
        (from_s3("in/folder/"), []),
        (through_sns(from_s3("in/a.json")), ["s3://b/in/a.json"]),
        (through_sns(TEST_EVENT), []),
        (through_sns(through_sns(from_s3("in/a.json"))), None),
        (from_event_bridge("in/a+b%20.json"), ["s3://b/in/a+b%20.json"]),
        (from_event_bridge("in/a.json", "Object Deleted"), []),
        (from_event_bridge("in/folder/"), []),
        (TEST_EVENT, []),
        ("", None),
        ("hello", None),
        ("[1]", None),
        ("null", None),
        ('{"Records": []}', None),
        ('{"Records": [1]}', None),
        (json.dumps({"Records": [record("a"), {"eventSource": "aws:dynamodb"}]}), None),
        (json.dumps({"Records": [{**record("a"), "s3": {"bucket": {}}}]}), None),
        (json.dumps({"source": "aws.ec2", "detail-type": "Object Created", "detail": {}}), None),
        (json.dumps({"source": "aws.s3", "detail-type": "Object Created", "detail": {}}), None),
    ],
)
def test_a_message_names_the_objects_that_have_arrived(body: str, urls: list[str] | None) -> None:
    assert read_arrivals(body) == urls


class Queue:
    """A queue that hands out batches of messages."""

    def __init__(self, *batches: Sequence[Message]) -> None:
        self.batches, self.acknowledged, self.released = list(batches), list[str](), list[str]()

    def receive(self) -> list[Message]:
        return list(self.batches.pop(0)) if self.batches else []

    def acknowledge(self, messages: Sequence[Message]) -> None:
        self.acknowledged += [message.receipt for message in messages]

    def release(self, messages: Sequence[Message]) -> None:
        self.released += [message.receipt for message in messages]


A, B = Message("1", "r1", from_s3("in/a")), Message("2", "r2", from_s3("in/b", "in/c"))
DELETED, NOISE, FOREIGN = (
    Message("3", "r3", from_s3("in/x", name="ObjectRemoved:Delete")),
    Message("4", "r4", "noise"),
    Message("5", "r5", from_s3("other/a")),
)


def test_messages_are_acknowledged_unless_their_objects_wait() -> None:
    queue = Queue([B, DELETED, A], [NOISE, FOREIGN, Message("6", "r6", from_s3("in/a"))])
    arrivals = Arrivals(queue, ["s3://b/in/"])
    assert arrivals.urls() == ["s3://b/in/a", "s3://b/in/b", "s3://b/in/c"]
    assert arrivals.urls() == ["s3://b/in/a", "s3://b/in/b", "s3://b/in/c"]
    assert arrivals.others == ("4", "5")
    arrivals.acknowledge({"s3://b/in/c"})
    assert sorted(queue.acknowledged) == ["r1", "r3", "r6"]
    arrivals.release()
    assert queue.released == ["r2"]


def test_a_message_that_comes_again_is_acknowledged_with_its_last_receipt() -> None:
    again = Message("1", "r1 again", A.body)
    queue = Queue([A, B], [again, NOISE], [again, NOISE], [FOREIGN])
    arrivals = Arrivals(queue, ["s3://b/in"])
    arrivals.urls()
    arrivals.acknowledge(())
    assert queue.acknowledged == ["r1 again", "r2"]
    assert queue.batches == [[FOREIGN]], "it stops where everything has been received before"


def test_a_load_takes_so_many_messages() -> None:
    queue = Queue([A], [B], [DELETED])
    assert Arrivals(queue, ["s3://b/in"], max_messages=1).urls() == ["s3://b/in/a"]
    assert len(queue.batches) == 2


@pytest.mark.parametrize("name", ["", "landing", "sqs://", "sqs://a/b", "sqs://a b", "s3://b/q", "https://host"])
def test_the_name_of_a_queue_is_its_url_or_sqs(name: str) -> None:
    with pytest.raises(InvalidOption, match="queue cannot be"):
        open_queue(name, {})
