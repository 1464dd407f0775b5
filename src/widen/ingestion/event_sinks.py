"""Where the events of loads go: a file, a webhook, or a catalog of lineage. Each sink is a listener for ``on_event``.

A sink is called after the commit, when the records are in the table. That a receiver is down must not look as if the
load had failed, so a webhook never raises unless the caller asks for that: what it cannot deliver goes to its
dead-letter file.

Source: docs/guide/monitoring.md; CloudEvents 1.0 (structured content mode); OpenLineage 2-0-2.
"""

from __future__ import annotations

import logging
import os
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from widen.errors import InvalidOption, PackageMissing, StorageError
from widen.evolution.plan import Grade, PlanEvent
from widen.ingestion.result import FailureEvent, IntervalEvent, LoadEvent
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.model.value_classes import dataclass

ALL = "all"
GRADES: Mapping[str, int] = {ALL: 0, **{grade.value: number for number, grade in enumerate(Grade, 1)}}
"""A limit for a webhook: changes of this grade or a worse one; ``all`` also sends the end of every load."""

URGENT = frozenset({"failure", "badFile", "stopped"})
"""Kinds of events that somebody must look at, regardless of the grade."""

RETRIED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Answers that a later attempt may not get. Every other one below 200 or from 300 on is final."""

REDIRECTS = range(300, 400)

PAUSE_SECONDS = 60.0
"""How long a webhook that has failed is not tried again. A wide drift has hundreds of events: each of them would wait
for all its attempts, and hold up a stream for minutes."""

_HEADERS = {"Content-Type": "application/cloudevents+json; charset=utf-8", "User-Agent": "widen"}
_WRITABLE = "Name a file in a directory that exists and is writable."
_LOGGER = logging.getLogger("widen.events")


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(location=str(path), reason=error.strerror or str(error), fix=_WRITABLE) from error


@dataclass(frozen=True)
class EventFile:
    """A file that gets each event as a line of JSON.

    Args:
        path: The file; it is created if it does not exist.

    Raises:
        StorageError: it cannot be written. This is known before anything is loaded.

    Source: docs/reference/json.md#events
    """

    path: Path

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
        with _writing(self.path):
            # Without waiting: a pipe that no process reads would block the commit that comes before the first event.
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0), 0o666))

    def __call__(self, event: IntervalEvent) -> None:
        """Append an event."""
        with _writing(self.path), self.path.open("ab") as file:
            file.write(msgspec.json.encode(event.to_value()) + b"\n")


@dataclass(kw_only=True)
class Webhook:
    """Sends events to a URL, each as one CloudEvent in a POST request.

    Failed loads and files that cannot be read are always sent. Changes are sent from a grade on, so that a new field
    wakes nobody, and a scalar that becomes a record does.

    Args:
        url: The receiver. Only its host is ever shown, since such URLs often contain a secret.
        grade: The mildest change to send: ``structural``, ``conflict``, ``widening`` or ``additive``; or ``all`` for
            every event, also the end of each load.
        headers: More headers, e.g. ``{"Authorization": "Bearer …"}``.
        attempts: How often to try. Refused connections, timeouts and the answers 408, 425, 429 and 5xx are retried,
            after 0.5 s, 1 s, 2 s, …
        timeout_seconds: The time limit of each attempt.
        dead_letter: A file for the events that cannot be delivered, as lines of JSON. Without one they are logged
            (logger ``widen.events``).
        must_deliver: Whether an event that cannot be delivered is an error. The load is committed all the same.

    Raises:
        InvalidOption: an argument cannot be used.
        StorageError: the dead-letter file cannot be written.

    Source: docs/guide/monitoring.md#webhook
    """

    url: str
    grade: str = Grade.STRUCTURAL.value
    headers: Mapping[str, str] = field(default_factory=dict)
    attempts: int = 3
    timeout_seconds: float = 10
    dead_letter: str | os.PathLike[str] | None = None
    must_deliver: bool = False
    _paused_until: float = field(default=0.0, init=False, repr=False)
    _dead_letters: EventFile | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InvalidOption(option="url", value=parts.scheme, expected="Must be a URL with http or https.")
        if parts.username is not None:
            expected = "Must not contain credentials: pass them as headers, such as Authorization."
            raise InvalidOption(option="url", value=self.host, expected=expected)
        if self.grade not in GRADES:
            raise InvalidOption(option="grade", value=self.grade, expected=f"Must be one of {', '.join(GRADES)}.")
        if self.attempts < 1 or self.timeout_seconds <= 0:
            option, value = ("attempts", self.attempts) if self.attempts < 1 else ("timeout", self.timeout_seconds)
            raise InvalidOption(option=option, value=value, expected="Must be greater than 0.")
        if self.dead_letter is not None:
            self._dead_letters = EventFile(Path(self.dead_letter))

    @property
    def host(self) -> str:
        """The receiver without what may be secret."""
        parts = urllib.parse.urlsplit(self.url)
        port = "" if parts.port is None else f":{parts.port}"
        return f"{parts.scheme}://{parts.hostname}{port}"

    def __call__(self, event: IntervalEvent) -> None:
        """Send an event, if its grade asks for it.

        Raises:
            StorageError: it cannot be delivered, and it must be; or the dead-letter file cannot be written.
        """
        if not self._is_sent(event):
            return
        reason = "not tried, because an event before it failed" if time.monotonic() < self._paused_until else None
        reason = reason or self._send(msgspec.json.encode(to_cloud_event(event)))
        if reason is None:
            return
        if self._dead_letters is not None:
            self._dead_letters(event)
        elif not self.must_deliver:
            _LOGGER.warning("An event was not delivered to %s (%s): %s", self.host, reason, event.to_value())
        if self.must_deliver:
            fix = "The load is committed. Send the event again from the dead-letter file or the history of the table."
            raise StorageError(location=self.host, reason=f"an event was not delivered: {reason}", fix=fix)

    def _is_sent(self, event: IntervalEvent) -> bool:
        if event.kind in URGENT or self.grade == ALL:
            return True
        return event.grade is not None and GRADES[event.grade.value] >= GRADES[self.grade]

    def _send(self, body: bytes) -> str | None:
        """Send a body, and return why that failed; None if it was accepted."""
        import urllib.error
        import urllib.request  # with TLS, it takes as long to import as a small load to commit

        class NoRedirects(urllib.request.HTTPRedirectHandler):
            # A redirect is followed with a GET without the body, and with the headers, which may hold a secret.
            def redirect_request(self, *_: object) -> None:
                return None

        opener = urllib.request.build_opener(NoRedirects)
        request = urllib.request.Request(self.url, body, {**_HEADERS, **self.headers}, method="POST")
        reason = ""
        for attempt in range(self.attempts):
            if attempt:
                time.sleep(0.5 * 2 ** (attempt - 1))
            try:
                with opener.open(request, timeout=self.timeout_seconds):
                    return None
            except urllib.error.HTTPError as error:
                error.close()
                reason = f"HTTP {error.code}"
                if error.code in REDIRECTS:
                    reason += ", a redirect, which is not followed: name the receiver that it leads to"
                if error.code not in RETRIED:
                    break
            except (OSError, ValueError) as error:  # no connection, a time limit, an answer that is not HTTP
                reason = str(getattr(error, "reason", error))
        self._paused_until = time.monotonic() + PAUSE_SECONDS
        return reason


def to_cloud_event(event: IntervalEvent) -> dict[str, Any]:
    """Return an event as a CloudEvent in structured mode.

    Source: CloudEvents 1.0, "Required Attributes" and JSON Event Format
    """
    kind = event.kind if event.grade is None else f"{event.kind}.{event.grade.value}"
    subject = ".".join(event.event.column) if isinstance(event.event, PlanEvent) else ""
    value = event.to_value()
    return {
        "specversion": "1.0",
        "id": str(uuid.uuid4()),
        # A path may have characters that a URI reference must not have.
        "source": urllib.parse.quote(event.table, safe="/:@"),
        "type": f"widen.{kind}",
        "time": value["time"],
        **({"subject": subject} if subject else {}),
        "datacontenttype": "application/json",
        "data": value,
    }


PRODUCER = "https://pypi.org/project/widen"
CHANGES_FACET = "widen_schemaChanges"


@dataclass(kw_only=True)
class OpenLineage:
    """Sends each load to a lineage backend: a start and an end, with the schema of the table and its changes.

    The events go where the configuration of the OpenLineage client says (``OPENLINEAGE_URL``, ``openlineage.yml``, …).
    The dataset of the table has the facets ``schema``, ``version``, ``outputStatistics``, and ``widen_schemaChanges``:
    the changes of this load, with their rules, as in the events of Widen.

    Args:
        job: The name of the job; by default ``ingest.`` and the name of the table.
        namespace: The namespace of the job.
        inputs: The sources, as paths or URLs.
        client: An ``OpenLineageClient``; by default one with the configuration of the environment.
        must_deliver: Whether a failure of the client is an error after the load; otherwise it is logged.

    Raises:
        PackageMissing: ``openlineage-python`` is not installed.

    Source: docs/guide/monitoring.md#openlineage
    """

    job: str | None = None
    namespace: str = "widen"
    inputs: Sequence[str] = ()
    client: Any = None
    must_deliver: bool = False
    _changes: list[dict[str, Any]] = field(default_factory=list, init=False, repr=False)

    def __post_init__(self) -> None:
        if self.client is None:
            try:
                from openlineage.client import OpenLineageClient
            except ModuleNotFoundError as error:
                raise PackageMissing(package="widen[openlineage]") from error
            self.client = OpenLineageClient()

    def __call__(self, event: IntervalEvent) -> None:
        """Keep a change for the end of its load; the end, or a failure, sends the run.

        Raises:
            StorageError: the client fails, and the events must be delivered.
        """
        if not isinstance(event.event, (LoadEvent, FailureEvent)):
            if isinstance(event.event, PlanEvent):
                self._changes.append(event.event.to_value())
            return
        changes, self._changes = self._changes, []
        try:
            for run_event in self._run_events(event, event.event, changes):
                self.client.emit(run_event)
        except Exception as error:  # transports raise errors of many packages
            if self.must_deliver:
                fix = "The load is committed. Check the configuration of the OpenLineage client."
                raise StorageError(location="OpenLineage", reason=str(error).rstrip("."), fix=fix) from error
            _LOGGER.warning("A run was not delivered to OpenLineage: %s", error)

    def _run_events(
        self, event: IntervalEvent, end: LoadEvent | FailureEvent, changes: list[dict[str, Any]]
    ) -> Iterator[Any]:
        from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import (
            dataset_version_dataset,
            error_message_run,
            output_statistics_output_dataset,
            schema_dataset,
        )
        from openlineage.client.uuid import generate_new_uuid

        def describe(column: Field) -> Any:
            inner = [describe(each) for each in _inner_fields(column.type)]
            return schema_dataset.SchemaDatasetFacetFields(column.name, str(column.type), fields=inner)

        run_id = str(generate_new_uuid())
        namespace, name = to_dataset(event.table)
        facets: dict[str, Any] = {}
        statistics: dict[str, Any] = {}
        failed: dict[str, Any] = {}
        if isinstance(end, LoadEvent):
            if end.schema is not None:
                facets["schema"] = schema_dataset.SchemaDatasetFacet([describe(each) for each in end.schema])
            facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(str(event.version))
            if changes:
                facets[CHANGES_FACET] = _changes_facet(changes)
            statistics["outputStatistics"] = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
                end.records, end.size_bytes, end.files
            )
        else:
            message = f"{end.code}: {end.message}"
            failed["errorMessage"] = error_message_run.ErrorMessageRunFacet(message, "python")
        job = Job(self.namespace, self.job or f"ingest.{name.rstrip('/').rpartition('/')[2]}")
        inputs = [InputDataset(*to_dataset(each)) for each in self.inputs]
        for state, time_ms, run_facets, outputs in (
            (RunState.START, event.time_ms - (end.duration_ms or 0), {}, [OutputDataset(namespace, name)]),
            (
                RunState.FAIL if failed else RunState.COMPLETE,
                event.time_ms,
                failed,
                [OutputDataset(namespace, name, statistics, facets=facets)],
            ),
        ):
            when = datetime.fromtimestamp(time_ms / 1000, timezone.utc).isoformat(timespec="milliseconds")
            yield RunEvent(
                eventTime=when,
                producer=PRODUCER,
                run=Run(run_id, run_facets),
                job=job,
                eventType=state,
                inputs=inputs,
                outputs=outputs,
            )


def _inner_fields(data_type: DataType) -> Sequence[Field]:
    """Return the fields of a record, also of one in arrays or in the values of a map."""
    while isinstance(data_type, (ArrayType, MapType)):
        data_type = data_type.element if isinstance(data_type, ArrayType) else data_type.value
    return tuple(data_type) if isinstance(data_type, StructType) else ()


def _changes_facet(changes: list[dict[str, Any]]) -> Any:
    import attr
    from openlineage.client.generated.base import DatasetFacet

    # The client serializes its own facets by their attrs fields, so ours must use attrs as well.
    facet = attr.make_class("SchemaChangesFacet", {"changes": attr.field(factory=list)}, bases=(DatasetFacet,))
    return facet(changes=changes)


def to_dataset(location: str) -> tuple[str, str]:
    """Return the namespace and the name of a location.

    Example:
        >>> to_dataset("s3://lake/shop/orders")
        ('s3://lake', 'shop/orders')

    Source: OpenLineage, "Naming Conventions"
    """
    parts = urllib.parse.urlsplit(location)
    if parts.scheme and parts.netloc:
        return f"{parts.scheme}://{parts.netloc}", parts.path.lstrip("/") or "/"
    path = urllib.parse.unquote(parts.path) if parts.scheme == "file" else location
    return "file", str(Path(path).absolute())


@dataclass(frozen=True)
class EventSinks:
    """Several sinks as one listener. Each gets every event, also if one before it fails."""

    sinks: Sequence[Callable[[IntervalEvent], object]]

    def __call__(self, event: IntervalEvent) -> None:
        """Pass an event to every sink, in their order."""
        with ExitStack() as stack:
            for sink in reversed(self.sinks):
                stack.callback(sink, event)
