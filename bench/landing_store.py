"""Landing zones in a bucket: what a load of new objects asks of the store, beside a full listing by boto3.

    python bench/landing_store.py [--only s3,sqs] [--scale 1.0]

Cases, with a server of S3 and SQS on loopback, in processor seconds of processes of their own and in LIST requests:

| case | what is loaded | beside |
|---|---|---|
| ``s3`` | 100 new objects of 200,000 with growing names, with ``--order name`` | a listing of all objects by boto3 |
| ``sqs`` | 2,000 objects that messages name, with ``--queue`` | the same objects found by a listing |

The record of loads has the other objects of ``s3``.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from landing import record_files

BUCKET, NEW, OBJECTS, MESSAGES = "landing", 100, 200_000, 2_000
TABLE_CHECKS = 6
"""LIST requests that see whether the source, or a folder above it, is a table: Delta, Iceberg or Hudi."""

GOALS = {"requests": 0.1, "seconds": 0.2}
OPTIONS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true"}

_SERVER = """
import sys, urllib.parse
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import run_simple
app, lists = DomainDispatcherApplication(create_backend_app), [0]
def count(environ, start_response):
    if environ["PATH_INFO"] == "/lists":
        start_response("200 OK", [])
        return [str(lists[0]).encode()]
    lists[0] += environ["REQUEST_METHOD"] == "GET" and "list-type" in urllib.parse.parse_qs(environ["QUERY_STRING"])
    return app(environ, start_response)
run_simple("127.0.0.1", int(sys.argv[1]), count, threaded=True)
"""


@contextmanager
def open_server(port: int) -> Iterator[str]:
    """Yield the endpoint of a server that counts LIST requests."""
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-c", _SERVER, str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(600):
                try:
                    count_lists(endpoint)
                    break
                except OSError:
                    time.sleep(0.1)
            open_client("s3", endpoint).create_bucket(Bucket=BUCKET)
            yield endpoint
        finally:
            server.terminate()


def count_lists(endpoint: str) -> int:
    """Return how many LIST requests the server has answered."""
    with urllib.request.urlopen(f"{endpoint}/lists", timeout=60) as answer:
        return int(answer.read())


def open_client(name: str, endpoint: str) -> Any:
    """Return a client of boto3."""
    import boto3

    words = {"aws_access_key_id": "a", "aws_secret_access_key": "b", "region_name": "us-east-1"}
    return boto3.client(name, endpoint_url=endpoint, **words)


def put_objects(endpoint: str, folder: str, count: int) -> list[str]:
    """Write objects of one record, and return their keys, which grow."""
    import obstore

    config = {**OPTIONS, "AWS_ENDPOINT_URL": endpoint}
    store = obstore.store.S3Store(BUCKET, config=config, client_options={"allow_http": True})
    keys = [f"{folder}/{number:09}.jsonl" for number in range(count)]

    def put(key: str) -> None:
        obstore.put(store, key, json.dumps({"id": int(key[-15:-6])}).encode() + b"\n")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(put, keys))
    return keys


def list_objects(endpoint: str, folder: str) -> Iterator[tuple[str, int, int]]:
    """Yield the URL, the size and the time in ms of each object."""
    pages = open_client("s3", endpoint).get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{folder}/")
    for page in pages:
        for each in page.get("Contents", ()):
            time_ms = int(each["LastModified"].timestamp() * 1000)
            yield f"s3://{BUCKET}/{each['Key']}", each["Size"], time_ms


def send_messages(endpoint: str, keys: Sequence[str]) -> str:
    """Send a message about each object, as S3 does, and return the URL of the queue."""
    client = open_client("sqs", endpoint)
    queue = str(client.create_queue(QueueName="landing", Attributes={"VisibilityTimeout": "600"})["QueueUrl"])
    for first in range(0, len(keys), 10):
        events = [
            {"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": BUCKET}, "object": {"key": key}}}
            for key in keys[first : first + 10]
        ]
        bodies = [json.dumps({"Records": [{"eventSource": "aws:s3", **event}]}) for event in events]
        entries = [{"Id": str(at), "MessageBody": body} for at, body in enumerate(bodies)]
        client.send_message_batch(QueueUrl=queue, Entries=entries)
    return queue


# ---- what is measured, each in a process of its own ----------------------------------------------


def run_boto(endpoint: str, folder: str) -> int:
    """List all objects."""
    return sum(1 for _ in list_objects(endpoint, folder))


def run_widen(endpoint: str, folder: str, table: str, words: str) -> int:
    """Load the new objects."""
    import widen

    options = {**OPTIONS, "AWS_ENDPOINT_URL": endpoint}
    source = f"s3://{BUCKET}/{folder}"
    done = widen.ingest(source, table, new=True, engine="local", storage_options=options, **json.loads(words))
    return done.records


WORKS: dict[str, Callable[..., int]] = {"boto": run_boto, "widen": run_widen}


def measure(endpoint: str, work: str, *arguments: str) -> tuple[float, int, int]:
    """Return processor seconds, LIST requests, and how many objects a work has found, of a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--work", work, endpoint, *arguments]
    lists, before = count_lists(endpoint), resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, env={**os.environ, **OPTIONS}, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, count_lists(endpoint) - lists, int(ended.stdout.split()[-1])


def measure_names(endpoint: str, place: Path, scale: float) -> bool:
    """Measure a load of the last objects by name, and tell whether a goal is missed."""
    count = round(OBJECTS * scale)
    put_objects(endpoint, "names", count)
    record_files(place / "names", iter(list(list_objects(endpoint, "names"))[:-NEW]))
    peer = measure(endpoint, "boto", "names")
    ours = measure(endpoint, "widen", "names", str(place / "names"), '{"order": "name"}')
    print(f"s3: {count:,} objects, {NEW} new")
    return _print_pair(ours, peer, "boto3, all", GOALS)


def measure_queue(endpoint: str, place: Path, scale: float) -> bool:
    """Measure a load of the objects that messages name, and tell whether something was listed."""
    keys = put_objects(endpoint, "queue", round(MESSAGES * scale))
    queue = send_messages(endpoint, keys)
    ours = measure(endpoint, "widen", "queue", str(place / "queue"), json.dumps({"queue": queue}))
    peer = measure(endpoint, "widen", "queue", str(place / "listed"), "{}")
    print(f"sqs: {len(keys):,} messages")
    missed = ours[1] > TABLE_CHECKS or ours[2] != len(keys)
    return _print_pair(ours, peer, "a listing", {}) or missed


def _print_pair(ours: tuple[float, int, int], peer: tuple[float, int, int], name: str, goals: dict[str, float]) -> bool:
    missed = False
    for what, (seconds, lists, found) in {"widen": ours, name: peer}.items():
        print(f"  {what:<12}{seconds:9.2f} s {lists:>7} LIST requests {found:>9} found")
    for key, one, other in (("seconds", ours[0], peer[0]), ("requests", ours[1], peer[1])):
        ratio = one / other if other else 0.0
        goal = goals.get(key)
        missed |= goal is not None and ratio > goal
        print(f"  {key}: ours is {ratio:.2f} of it" + ("" if goal is None else f" (goal {goal:g})"))
    return missed


CASES = {"s3": measure_names, "sqs": measure_queue}


def main(arguments: Sequence[str]) -> int:
    """Measure, print the table, and return 1 if a goal is missed."""
    if arguments[:1] == ["--work"]:
        print(WORKS[arguments[1]](*arguments[2:]))
        return 0
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default=",".join(CASES))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--port", type=int, default=5_995)
    options = parser.parse_args(arguments)
    missed = False
    with tempfile.TemporaryDirectory(prefix="widen-landing-") as folder, open_server(options.port) as endpoint:
        for name in options.only.split(","):
            missed |= CASES[name](endpoint, Path(folder), options.scale)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
