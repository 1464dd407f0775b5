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

import boto3

BUCKET = "widen-tables"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


_WITHOUT_CONDITIONS = """
import sys
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app = DomainDispatcherApplication(create_backend_app)
def bare(environ, start_response):
    environ.pop("HTTP_IF_NONE_MATCH", None)
    return app(environ, start_response)
run_simple("127.0.0.1", int(sys.argv[1]), bare, threaded=True)
"""


@contextlib.contextmanager
def s3_server(*, obeys_conditions: bool = True) -> Iterator[dict[str, str]]:
    """Yield the storage options of a running server that has the bucket `BUCKET`.

    Args:
        obeys_conditions: Whether it looks at If-None-Match, as not every store that speaks S3 does.
    """
    port = _free_port()
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    if not obeys_conditions:
        command = [sys.executable, "-c", _WITHOUT_CONDITIONS, str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            _wait_for(endpoint)
            client = boto3.client(
                "s3", endpoint_url=endpoint, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
            )
            client.create_bucket(Bucket=BUCKET)
            client.close()
            yield {
                "AWS_ACCESS_KEY_ID": "a",
                "AWS_SECRET_ACCESS_KEY": "b",
                "AWS_REGION": "us-east-1",
                "AWS_ENDPOINT_URL": endpoint,
                "AWS_ALLOW_HTTP": "true",
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
