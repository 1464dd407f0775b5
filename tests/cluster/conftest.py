"""A Spark standalone cluster of real processes on loopback: a master and two workers, whose Python has no Widen."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("WIDEN_WORKER_PYTHON", ROOT / ".work" / "venv-worker" / "bin" / "python"))
SPARK_CLASS = Path(pyspark.__file__).parent / "bin" / "spark-class"
DEPLOY = "org.apache.spark.deploy"


@dataclass(frozen=True)
class Cluster:
    """The processes of a cluster.

    Args:
        url: The master.
        workers: The workers; each is the leader of a process group with its executors.
    """

    url: str
    workers: tuple[subprocess.Popen[bytes], ...]

    def kill(self, worker: int) -> None:
        """Kill a worker with its executors at once."""
        os.killpg(self.workers[worker].pid, signal.SIGKILL)


def free_port() -> int:
    """Return a port of loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running cluster. Its processes find neither the package nor the tests."""
    assert PYTHON.exists(), f"{PYTHON} is missing: run make cluster"
    found = subprocess.run([PYTHON, "-c", "import widen"], env={"PATH": os.environ["PATH"]}, capture_output=True)
    assert found.returncode, f"{PYTHON} has Widen"
    folder, port = tmp_path_factory.mktemp("cluster"), free_port()
    url = f"spark://127.0.0.1:{port}"
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "PYSPARK"))}
    processes: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (folder / f"{name}.log").open("wb") as log:
            processes.append(
                subprocess.Popen(
                    [str(SPARK_CLASS), *arguments], stdout=log, stderr=log, env=env, cwd=folder, start_new_session=True
                )
            )
        return processes[-1]

    try:
        start("master", f"{DEPLOY}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0")
        wait_for(port)
        options = ("--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0")
        workers = [
            start(f"worker{number}", f"{DEPLOY}.worker.Worker", *options, "-d", str(folder / f"w{number}"), url)
            for number in range(2)
        ]
        yield Cluster(url, tuple(workers))
    finally:
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(port: int) -> None:
    """Wait until something listens on a port."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.2)
    raise TimeoutError(port)


@pytest.fixture(scope="session")
def spark(cluster: Cluster) -> Iterator[SparkSession]:
    """A session of the cluster, with one executor on each worker."""
    os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"] = str(PYTHON), sys.executable
    builder = SparkSession.builder.master(cluster.url).appName("widen-cluster")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.sql.shuffle.partitions": "4",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()
