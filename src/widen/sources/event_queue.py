"""Messages of a queue that name the objects which have arrived in a store, so that nothing needs to be listed.

A message is acknowledged after the commit of a load with its objects. So a load that is killed loses none, and those
that come again name objects that the record of loads knows.

Source: docs/guide/files.md#queue
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote_plus, urlsplit

import msgspec

from widen.errors import InvalidOption, PackageMissing, SourceError, StorageError
from widen.errors.requests import ensure_without_credentials
from widen.log.load_segments import folder_key, to_key
from widen.model.lazy_module import import_lazily
from widen.sources.listing import unusable_source

boto3, boto_errors = map(import_lazily, ("boto3", "botocore.exceptions"))

SQS_EXTRA = "widen[sqs]"
"""What installs the client of SQS."""

MAX_MESSAGES = 10_000
"""The maximum number of messages in one load; a queue of SQS hands out 120,000 before their acknowledgement."""


class Message(NamedTuple):
    """A message of a queue.

    Args:
        id: The same whenever it is received.
        receipt: What acknowledges it; another one whenever it is received.
    """

    id: str
    receipt: str
    body: str


class EventQueue(Protocol):
    """A queue with messages. A message that is received and not acknowledged comes again after a while."""

    def receive(self) -> list[Message]:
        """Return some messages; none if the queue has no more for now.

        Raises:
            SourceError: the queue cannot be read.
        """

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Delete messages from the queue.

        Raises:
            SourceError: the queue refuses.
        """

    def release(self, messages: Sequence[Message]) -> None:
        """Let messages be received again at once.

        Raises:
            SourceError: the queue refuses.
        """


# ---- what messages say -----------------------------------------------------------------------------


def read_arrivals(body: str, *, may_be_wrapped: bool = True) -> list[str] | None:
    """Return the URLs of the objects that have arrived, as a message about events of S3 says.

    It may come from S3 itself, through SNS, or from EventBridge. Deletions and folders are not among them.

    Args:
        may_be_wrapped: Whether it may have come through SNS.

    Returns:
        None if the message is not about events of S3.

    Source: Amazon S3 user guide, "Event message structure" and "EventBridge event message structure"
    """
    try:
        event = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
    match event:
        case {"Type": "Notification", "Message": str(inner)} if may_be_wrapped:
            return read_arrivals(inner, may_be_wrapped=False)
        case {"Records": [_, *_] as records}:
            found = [_read_record(record) for record in records]
            return None if None in found else [url for url in found if url]
        case {"Service": "Amazon S3", "Event": "s3:TestEvent"}:
            return []
        case {"source": "aws.s3", "detail-type": str(kind), "detail": dict(detail)}:
            url = _to_url(detail, is_escaped=False)
            return None if url is None else [url] if kind == "Object Created" and not url.endswith("/") else []
    return None


def _read_record(record: object) -> str | None:
    """Return the URL of the object that has arrived; empty for another event, and None for what is not one of S3."""
    match record:
        case {"eventSource": "aws:s3", "eventName": str(name), "s3": dict(place)}:
            url = _to_url(place, is_escaped=True)
            return url if url is None or (name.startswith("ObjectCreated:") and not url.endswith("/")) else ""
    return None


def _to_url(place: Mapping[str, Any], *, is_escaped: bool) -> str | None:
    match place:
        case {"bucket": {"name": str(bucket)}, "object": {"key": str(key)}} if bucket and key:
            return f"s3://{bucket}/{unquote_plus(key) if is_escaped else key}"
    return None


class Arrivals:
    """The objects below some folders that the messages of a queue name, until these are acknowledged.

    Args:
        max_messages: The maximum number of messages to receive.
    """

    def __init__(self, queue: EventQueue, folders: Sequence[str], max_messages: int = MAX_MESSAGES) -> None:
        self._queue, self._max_messages = queue, max_messages
        self._prefixes = tuple(map(folder_key, folders))
        self._messages: dict[str, tuple[Message, list[str]]] | None = None
        self.others: tuple[str, ...] = ()
        """The ids of messages that name no object below the folders. They stay in the queue."""

    def urls(self) -> list[str]:
        """Return the URLs of the objects, each once; the messages are received by the first call."""
        if self._messages is None:
            self._messages = {}
            self._receive(self._messages)
        return sorted({url for _, urls in self._messages.values() for url in urls})

    def acknowledge(self, waiting: Collection[str]) -> None:
        """Acknowledge the messages, except for those with objects that are left to the next load."""
        left = set(map(to_key, waiting))
        kept = {each[0].id: each for each in self._known() if not left.isdisjoint(map(to_key, each[1]))}
        self._queue.acknowledge([message for message, _ in self._known() if message.id not in kept])
        self._messages = kept

    def release(self) -> None:
        """Let the next load receive the messages that are not acknowledged."""
        self._queue.release([message for message, _ in self._known()])
        self._messages = {}

    def _known(self) -> list[tuple[Message, list[str]]]:
        return list((self._messages or {}).values())

    def _receive(self, messages: dict[str, tuple[Message, list[str]]]) -> None:
        others: set[str] = set()
        while len(messages) + len(others) < self._max_messages:
            received = self._queue.receive()
            known = messages.keys() | others
            for message in received:
                urls = read_arrivals(message.body)
                if urls is None or not all(to_key(url).startswith(self._prefixes) for url in urls):
                    others.add(message.id)
                else:
                    messages[message.id] = message, urls
            if all(message.id in known for message in received):
                break  # the queue is empty, or it hands out at once what was received before
        self.others = tuple(sorted(others))


# ---- queues of SQS ---------------------------------------------------------------------------------


_AT_ONCE, _WAIT_SECONDS = 10, 1
"""The number of messages in a request, and how long it waits for one: without a wait, not all servers are asked."""

_NAME = re.compile(r"sqs://(?:(\d{12})/)?([\w-]{1,80}(?:\.fifo)?)", re.ASCII)
_SETTINGS = {
    "ACCESS_KEY_ID": "aws_access_key_id",
    "SECRET_ACCESS_KEY": "aws_secret_access_key",
    "SESSION_TOKEN": "aws_session_token",
    "REGION": "region_name",
    "DEFAULT_REGION": "region_name",
    "ENDPOINT_URL": "endpoint_url",
    "ENDPOINT_URL_SQS": "endpoint_url",
}
"""Storage options without ``AWS_`` and the arguments of the client that they become; a later one wins."""


class SqsQueue:
    """A queue of Amazon SQS.

    Args:
        name: Its URL, or ``sqs://NAME``, or ``sqs://ACCOUNT/NAME`` for one of another account.
        options: Storage options; what they do not say comes from the environment, as the client finds it.
    """

    def __init__(self, name: str, options: Mapping[str, str]) -> None:
        if find_spec("boto3") is None:
            raise PackageMissing(package=SQS_EXTRA)
        self.name = name
        # The client does not look at AWS_REGION, which the store takes.
        region = {"REGION": os.environ["AWS_REGION"]} if "AWS_REGION" in os.environ else {}
        given = region | {key.upper().removeprefix("AWS_"): value for key, value in options.items()}
        words = {argument: given[key] for key, argument in _SETTINGS.items() if key in given}
        named = _NAME.fullmatch(name)
        if named is None:
            url = urlsplit(name)
            words["endpoint_url"] = f"{url.scheme}://{url.netloc}"
            host = re.fullmatch(r"sqs\.([\w-]+)\.amazonaws\.com(?:\.cn)?", url.netloc)
            words |= {"region_name": host[1]} if host else {}
        with self._translated():
            self._client = boto3.client("sqs", **words)
            owner = {"QueueOwnerAWSAccountId": named[1]} if named and named[1] else {}
            self._url = name if named is None else self._client.get_queue_url(QueueName=named[2], **owner)["QueueUrl"]

    def receive(self) -> list[Message]:
        with self._translated():
            found = self._client.receive_message(
                QueueUrl=self._url, MaxNumberOfMessages=_AT_ONCE, WaitTimeSeconds=_WAIT_SECONDS
            )
        return [Message(each["MessageId"], each["ReceiptHandle"], each["Body"]) for each in found.get("Messages", ())]

    def acknowledge(self, messages: Sequence[Message]) -> None:
        for entries in _batches(messages):
            with self._translated():
                # A message that has come again meanwhile has another receipt. Its objects are then known.
                self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)

    def release(self, messages: Sequence[Message]) -> None:
        for entries in _batches(messages):
            now = [{**entry, "VisibilityTimeout": 0} for entry in entries]
            with self._translated():
                self._client.change_message_visibility_batch(QueueUrl=self._url, Entries=now)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (boto_errors.BotoCoreError, boto_errors.ClientError) as error:
            fix = "Check the name, the region and the permissions to receive and delete messages."
            raise unusable_source(self.name, str(error).partition("\n")[0], fix) from error


def _batches(messages: Sequence[Message]) -> Iterator[list[dict[str, Any]]]:
    for first in range(0, len(messages), _AT_ONCE):
        some = messages[first : first + _AT_ONCE]
        yield [{"Id": str(at), "ReceiptHandle": message.receipt} for at, message in enumerate(some)]


def open_queue(name: str, options: Mapping[str, str]) -> EventQueue:
    """Return the queue with a name.

    Raises:
        InvalidOption: the name is not that of a queue.
    """
    ensure_without_credentials("queue", name)
    if _NAME.fullmatch(name) is None and re.fullmatch(r"https?://[^/]+/.+", name) is None:
        expected = "Must be the URL of a queue of SQS, or sqs://NAME."
        raise InvalidOption(option="queue", value=name, expected=expected)
    return SqsQueue(name, options)


@contextmanager
def received(arrivals: Arrivals | None) -> Iterator[None]:
    """Release the messages that the body has not acknowledged."""
    try:
        yield
    finally:
        if arrivals is not None:
            with suppress(SourceError, StorageError):  # they come again in any case, only later
                arrivals.release()
