"""Iceberg's own REST catalog server in a separate process, behind a proxy that fails where a test asks for it."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pyspark
import pytest

from conftest import ROOT

JARS = ROOT / ".work" / "jars"
SQLITE = JARS / "sqlite-jdbc-3.54.1.0.jar"
SPARK_JARS = ("hadoop-client-api-*.jar", "hadoop-client-runtime-*.jar", "httpcore-4*.jar")
SECONDS = 60


class Fault(Enum):
    """What happens to the next commit: the status of the answer, none for a closed connection, and when."""

    UNAVAILABLE = (503, False)
    LOST_REQUEST = (None, False)
    FORBIDDEN = (403, False)
    BAD_GATEWAY = (502, True)
    LOST_ANSWER = (None, True)
    GONE = (502, True, "and then the table cannot be read")


class Proxy(BaseHTTPRequestHandler):
    """Passes requests on to the server."""

    target: ClassVar[int]
    fault: ClassVar[Fault | None] = None
    is_down: ClassVar[bool] = False

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_commit = self.command == "POST" and "/tables/" in self.path
        fault = Proxy.fault if is_commit else None
        if Proxy.is_down:
            self._answer(503, b"{}")
            return
        if fault is None:
            self._answer(*self._forward(body))
            return
        status, is_executed = fault.value[:2]
        if is_executed:
            self._forward(body)
        Proxy.fault, Proxy.is_down = None, fault is Fault.GONE
        if status is None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
        else:
            self._answer(status, b'{"error": {"message": "no", "type": "Test", "code": %d}}' % status)

    def _forward(self, body: bytes) -> tuple[int, bytes]:
        server = http.client.HTTPConnection("127.0.0.1", Proxy.target, timeout=SECONDS)
        headers = {key: value for key, value in self.headers.items() if key.lower() not in ("host", "accept-encoding")}
        server.request(self.command, self.path, body, headers)
        answer = server.getresponse()
        return answer.status, answer.read()

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_POST = do_DELETE = do_HEAD = _pass_on

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing."""


@contextmanager
def rest_catalog(folder: Path) -> Iterator[str]:
    """Yield the address of a proxy of a server whose tables are in a folder."""
    spark_jars = Path(pyspark.__file__).parent / "jars"
    jars = [SQLITE, *(next(spark_jars.glob(pattern)) for pattern in SPARK_JARS)]
    if not (JARS / "rest_catalog").exists():
        pytest.fail("Iceberg's REST catalog server is not here: run `make interop`.")
    path = os.pathsep.join([str(JARS / "rest_catalog" / "*"), *map(str, jars)])
    Proxy.target = _free_port()
    settings = {
        "CATALOG_CATALOG__IMPL": "org.apache.iceberg.jdbc.JdbcCatalog",
        "CATALOG_URI": f"jdbc:sqlite:{folder}/server.db",
        "CATALOG_WAREHOUSE": f"file://{folder}/warehouse",
        "REST_PORT": str(Proxy.target),
        "CATALOG_REST_PORT": str(Proxy.target),
    }
    java = Path(os.environ["JAVA_HOME"]) / "bin" / "java"
    options = ["-Xmx192m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = [str(java), *options, "-cp", path, "org.apache.iceberg.rest.RESTCatalogServer"]
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | settings, stdout=log, stderr=log)
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    try:
        _wait_for(server, folder)
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{proxy.server_port}"
        proxy.shutdown()
    finally:
        proxy.server_close()
        server.kill()
        server.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _wait_for(server: subprocess.Popen[bytes], folder: Path) -> None:
    end = time.monotonic() + SECONDS
    while server.poll() is None and time.monotonic() < end:
        try:
            socket.create_connection(("127.0.0.1", Proxy.target), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail(f"The REST catalog server did not start: {(folder / 'server.log').read_text()[-2000:]}")
