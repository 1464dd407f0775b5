"""Only the lines that every start of Spark has are left out of what Java writes."""

from __future__ import annotations

import subprocess
import sys

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
