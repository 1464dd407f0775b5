"""A Kafka broker of one node in a process of its own, on loopback."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/data
num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""
CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


@contextlib.contextmanager
def kafka_broker(jars: Path, folder: Path) -> Iterator[str]:
    """Yield the address of a running broker; it creates topics, of two partitions, when they are written to.

    Args:
        jars: Where the jars of ``org.apache.kafka:kafka_2.13`` and those that it needs are.
        folder: An empty folder for its data and its output.
    """
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home else shutil.which("java")
    assert java is not None
    port, controller = _free_ports()
    settings, output = folder / "server.properties", folder / "output"
    settings.write_text(SETTINGS.format(port=port, controller=controller, folder=folder))
    call = [java, "-Xmx256m", "-cp", f"{jars}/*"]
    with output.open("wb") as file:
        formatting = [*call, "kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c", str(settings)]
        subprocess.run(formatting, check=True, stdout=file, stderr=file)
        with subprocess.Popen([*call, "kafka.Kafka", str(settings)], stdout=file, stderr=file) as broker:
            try:
                _wait_for(port, broker, output)
                yield f"127.0.0.1:{port}"
            finally:
                broker.kill()


def _free_ports() -> tuple[int, int]:
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return int(first.getsockname()[1]), int(second.getsockname()[1])


def _wait_for(port: int, broker: subprocess.Popen[bytes], output: Path) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and broker.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"The broker does not start:\n{output.read_text(errors='replace')[-2000:]}")
