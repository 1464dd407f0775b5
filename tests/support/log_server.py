"""An S3 server of its own process on loopback."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import boto3

BUCKET = "widen-tables"
YEAR_SECONDS = 365 * 86_400


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_SERVER = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app = DomainDispatcherApplication(create_backend_app)
{around}
run_simple("127.0.0.1", int(sys.argv[1]), around, threaded=True)
"""
_WITHOUT_CONDITIONS = """
def around(environ, start_response):
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return app(environ, start_response)
"""
_WITH_EXPIRY = """
import pathlib, time
now = lambda: time.time() + float(pathlib.Path(sys.argv[2]).read_text())
REFUSAL = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
def around(environ, start_response):
    until = float(environ.get("HTTP_X_AMZ_SECURITY_TOKEN", 0))
    if environ["PATH_INFO"].startswith("/moto-api") or until > now():
        return app(environ, start_response)
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    start_response("400 Bad Request", [("Content-Type", "application/xml")])
    return [b"" if environ["REQUEST_METHOD"] == "HEAD" else REFUSAL]
"""


@contextlib.contextmanager
def s3_server(*, obeys_conditions: bool = True, clock: Path | None = None) -> Iterator[dict[str, str]]:
    """Yield the storage options of a running server that has the bucket `BUCKET`.

    Args:
        obeys_conditions: Whether it looks at If-None-Match, as not every store that speaks S3 does.
        clock: A file that says by how many seconds the clock of the server is fast. If there is one, a session token is
            needed, which is the time at which it expires, in seconds.
    """
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    token = {"AWS_SESSION_TOKEN": str(time.time() + YEAR_SECONDS)} if clock else {}
    if clock or not obeys_conditions:
        around = _WITH_EXPIRY if clock else _WITHOUT_CONDITIONS
        command = [sys.executable, "-c", _SERVER.format(around=around), str(port), str(clock)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(endpoint)
            client = boto3.client(
                "s3",
                endpoint_url=endpoint,
                aws_access_key_id="a",
                aws_secret_access_key="b",
                aws_session_token=token.get("AWS_SESSION_TOKEN"),
                region_name="us-east-1",
            )
            client.create_bucket(Bucket=BUCKET)
            client.close()
            yield {
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ALLOW_HTTP": "true",
                **token,
            }
        finally:
            server.terminate()


def _wait_for(endpoint: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{endpoint}/moto-api/", timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(endpoint)
