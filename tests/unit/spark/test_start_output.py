"""What a start of Spark shows, and what an interrupted one leaves: no line of every start, and no Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

USUAL = """\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/23 12:29:54 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform...
Setting Spark log level to "ERROR".
"""

CODE = """
import os, subprocess, sys, threading
from widen.spark.session import without_usual_lines
with without_usual_lines():
    child = subprocess.Popen(["sh", "-c", "cat >&2; echo 'WARNING: low memory' >&2; read _; echo later >&2"],
        stdin=subprocess.PIPE)
os.write(2, b"own\\n")
child.communicate(sys.argv[1].encode())
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()  # what forwards ends with the process that writes
"""


def stderr_of(code: str, *words: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    return sorted(done.stderr.splitlines())


def test_other_lines_go_on_to_stderr() -> None:
    assert stderr_of(CODE, USUAL) == ["WARNING: low memory", "later", "own"]


def test_the_last_lines_of_a_failed_start_are_shown() -> None:
    code = """
import subprocess
from widen.spark.session import without_usual_lines
try:
    with without_usual_lines():
        subprocess.run(["sh", "-c", "echo no java >&2"])
        raise RuntimeError
except RuntimeError:
    pass
"""
    assert stderr_of(code) == ["no java"]


def test_a_process_without_stderr_starts_too() -> None:
    code = """
import os
from widen.spark.session import without_usual_lines
os.close(2)
with without_usual_lines():
    pass
"""
    assert stderr_of(code) == []


@pytest.mark.parametrize("call", ["find_session()", "open_session(None, 'spark')"])
def test_an_interrupt_during_the_start_leaves_no_java_behind(tmp_path: Path, call: str) -> None:
    """PySpark deletes the folder where Java writes its port; Java then fails, and its server goes on for ever."""
    submit = tmp_path / "spark" / "bin" / "spark-submit"
    submit.parent.mkdir(parents=True)
    # Java before it has a port, which lives on without a standard input.
    submit.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/new && mv {tmp_path}/new {tmp_path}/pid\nexec sleep 120\n")
    submit.chmod(0o755)
    code = f"""
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from widen.spark.engine import open_session
from widen.spark.engine import find_session
try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_REMOTE")}
    environment["SPARK_HOME"] = str(tmp_path / "spark")
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        wait_for((tmp_path / "pid").exists)
        java = int((tmp_path / "pid").read_text())
        process.send_signal(signal.SIGINT)
        # A Java that is left keeps the output open.
        assert process.communicate(timeout=30)[0] == "interrupted\n"
        with pytest.raises(ProcessLookupError):
            os.kill(java, 0)
    finally:
        process.kill()
        process.wait()
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def wait_for(is_done: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_done():
        assert time.monotonic() < end
        time.sleep(0.05)
