"""A REST catalog on loopback whose tokens last for a few seconds, and what it vends for the files of its tables."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from pyiceberg.catalog.rest import CommitTableRequest, auth
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from widen.iceberg import catalog

HOUR = 3600

ERRORS = {
    NoSuchTableError: 404,
    NoSuchNamespaceError: 404,
    TableAlreadyExistsError: 409,
    NamespaceAlreadyExistsError: 409,
    CommitFailedException: 409,
}


class Clock:
    """The time of the servers and of their client, which goes on while nobody waits.

    Args:
        file: Tells a server in another process by how many seconds it is fast.
    """

    def __init__(self, file: Path) -> None:
        self.file, self.fast = file, 0.0
        self.advance(0)

    def time(self) -> float:
        return time.time() + self.fast

    def monotonic(self) -> float:
        return time.monotonic() + self.fast

    def advance(self, seconds: float) -> None:
        """Let time go by."""
        self.fast += seconds
        self.file.write_text(str(self.fast))

    def set(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let the clients of this process have this time."""
        monkeypatch.setattr(catalog, "time", self.time)
        monkeypatch.setattr(catalog, "monotonic", self.monotonic)
        monkeypatch.setattr(auth, "time", self)


@dataclass
class Tokens:
    """Tokens that expire, and how often they were given and refused.

    Args:
        seconds: How long one lasts.
    """

    clock: Clock
    seconds: int
    given: int = 0
    refused: int = 0
    _until: dict[str, float] = field(default_factory=dict)

    def give(self) -> str:
        """Return a new token."""
        self.given += 1
        token = f"token-{self.given}"
        self._until[token] = self.clock.time() + self.seconds
        return token

    def accepts(self, token: str) -> bool:
        """Return whether a token is valid now."""
        is_valid = self.clock.time() < self._until.get(token, 0)
        self.refused += not is_valid
        return is_valid

    def forget(self) -> None:
        """Accept none of the tokens any more."""
        self._until.clear()


@dataclass
class TokenCatalog:
    """A server of Iceberg's REST protocol.

    Args:
        tables: The catalog behind it.
        tokens: What a request must have.
        refuses_with: The status of the answer to a request with an expired token: 401 or 419.
        vends: Returns what a table comes with.
    """

    tables: SqlCatalog
    tokens: Tokens
    refuses_with: int = 401
    vends: Any = dict
    credential: str = "client:secret"
    loads: int = 0
    address: str = ""
    """Where the server listens."""

    def answer(self, method: str, path: str, headers: Any, body: bytes) -> tuple[int, Any]:
        """Return the status and the value of an answer."""
        parts = [unquote(part) for part in urlsplit(path).path.strip("/").split("/")][1:]
        if parts == ["oauth", "tokens"]:
            if self.credential == "revoked":
                return 401, {"error": "invalid_client"}
            token = self.tokens.give()
            return 200, {"access_token": token, "token_type": "bearer", "expires_in": self.tokens.seconds}
        if not self.tokens.accepts((headers.get("Authorization") or "").removeprefix("Bearer ")):
            return _error(self.refuses_with, "the token has expired")
        if parts == ["config"]:
            return 200, {"defaults": {}, "overrides": {}}
        value = json.loads(body) if body else {}
        namespace = tuple(parts[1].split("\x1f")) if len(parts) > 1 else ()
        try:
            return self._about(method, namespace, parts[3:], value, body)
        except tuple(ERRORS) as error:
            return _error(ERRORS[type(error)], str(error))

    def _about(
        self, method: str, namespace: tuple[str, ...], table: list[str], value: Any, body: bytes
    ) -> tuple[int, Any]:
        if not namespace:
            self.tables.create_namespace(tuple(value["namespace"]))
            return 200, value
        if method == "POST" and not table:
            return self._create(namespace, value)
        if method == "POST":
            return self._commit((*namespace, *table), body)
        if table:
            self.loads += method == "GET"
            found = self.tables.load_table((*namespace, *table))
            return 204 if method == "HEAD" else 200, self._loaded(found)
        self.tables.load_namespace_properties(namespace)
        return 204 if method == "HEAD" else 200, {"namespace": namespace, "properties": {}}

    def _create(self, namespace: tuple[str, ...], value: Any) -> tuple[int, Any]:
        identifier, schema = (".".join(namespace), value["name"]), Schema.model_validate(value["schema"])
        words = {"location": value.get("location"), "properties": value["properties"]}
        words["partition_spec"] = PartitionSpec.model_validate(value["partition-spec"])
        if not value["stage-create"]:
            return 200, self._loaded(self.tables.create_table(identifier, schema, **words))
        staged = self.tables.create_table_transaction(identifier, schema, **words)
        return 200, self._loaded(staged._table, is_staged=True)

    def _commit(self, identifier: tuple[str, ...], body: bytes) -> tuple[int, Any]:
        request = CommitTableRequest.model_validate_json(body)
        done = self.tables.commit_table(_Named(identifier), request.requirements, request.updates)
        return 200, json.loads(done.model_dump_json())

    def _loaded(self, table: Any, *, is_staged: bool = False) -> dict[str, Any]:
        place = {} if is_staged else {"metadata-location": table.metadata_location}
        return {**place, "metadata": json.loads(table.metadata.model_dump_json()), "config": self.vends()}


@dataclass
class _Named:
    identifier: tuple[str, ...]

    def name(self) -> tuple[str, ...]:
        return self.identifier


def _error(status: int, message: str) -> tuple[int, Any]:
    return status, {"error": {"message": message, "type": "Test", "code": status}}


@contextmanager
def token_catalog(folder: Path, clock: Clock, **settings: str) -> Iterator[TokenCatalog]:
    """Yield a running server.

    Args:
        settings: Properties of the catalog behind it; by default its tables are in the folder.
    """
    settings = {"warehouse": f"file://{folder}/warehouse", **settings}
    tables = SqlCatalog("default", uri=f"sqlite:///{folder}/server.db", **settings)
    server, lock = TokenCatalog(tables, Tokens(clock, HOUR)), threading.Lock()

    class Handler(_Handler):
        def answer(self, body: bytes) -> None:
            with lock:
                status, value = server.answer(self.command, self.path, self.headers, body)
            self.send(status, b"" if status == 204 else json.dumps(value).encode())

    with _serve(Handler) as server.address:
        yield server
    tables.engine.dispose()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is one packet: a second one would wait until the first is acknowledged

    def answer(self, body: bytes) -> None:
        """Answer the request."""
        raise NotImplementedError

    def _handle(self) -> None:
        self.answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def send(self, status: int, content: bytes) -> None:
        """Send an answer."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@contextmanager
def _serve(handler: type[_Handler]) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
