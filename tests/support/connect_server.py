"""A Spark Connect server that runs as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pyspark

SPARK_SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
START_SECONDS = 600


@contextmanager
def connect_server(folder: Path, settings: Mapping[str, str]) -> Iterator[str]:
    """Start a server, and yield its address.

    Args:
        folder: Where it runs and writes its log.
        settings: Of Spark.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
    env = {**os.environ, **python, "SPARK_NO_DAEMONIZE": "1", "SPARK_LOCAL_IP": "127.0.0.1"}
    env.pop("SPARK_REMOTE", None)
    words = [str(SPARK_SUBMIT), "--class", SERVER, "--master", "local[2]"]
    for key, value in {**settings, "spark.connect.grpc.binding.port": str(port)}.items():
        words += ["--conf", f"{key}={value}"]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [*words, "spark-internal"], stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True
        )
    try:
        wait_for(port, process)
        yield f"sc://127.0.0.1:{port}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    """Wait until a process listens on a port."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise TimeoutError(f"the server does not listen on port {port}")
