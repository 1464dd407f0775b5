"""The project in examples/pipelines, copied to a folder, and ``spark-pipelines`` over it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "pipelines"
HAS_PIPELINES = tuple(map(int, pyspark.__version__.split(".")[:2])) >= (4, 1)
IS_RUNNING = "is RUNNING.\n"
"""How a line of the log ends that says that a flow has started."""


def copy_example(place: Path) -> Path:
    """Copy the project to a folder, where it also gets its tables, and an empty folder for what lands."""
    project = place / "project"
    shutil.copytree(EXAMPLE, project)
    for spec in project.glob("*.yml"):
        spec.write_text(spec.read_text().replace("/tmp/widen-pipelines", str(place)))
    (place / "landing").mkdir()
    return project


def start_pipelines(project: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start ``spark-pipelines`` in a session of its own; what it prints is in the pipe of the process."""
    program = Path(sys.executable).with_name("spark-pipelines")
    # Else its server takes a port that another one may have.
    settings = {"SPARK_TESTING": "1", "PYSPARK_PYTHON": sys.executable}
    return subprocess.Popen(
        [program, *arguments],
        cwd=project,
        env={**os.environ, **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
