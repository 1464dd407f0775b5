"""Fetch jars with the Maven client, from the repositories that it is set up for, and check them against their digests.

The argument is a folder below ``.work`` that ``jars.json`` names: ``jars`` for Delta Lake and Iceberg for Spark,
``jars/rest_catalog`` for the REST catalog server of Iceberg's own test fixtures (Hadoop and the driver of SQLite come
from Spark and from ``jars``), ``jars-auto-cdc`` for the tables in memory of Spark's own tests, ``jars-avro`` for
Spark's reader of Avro, ``jars-kafka`` for Spark's connector of Kafka, ``jars-kafka/broker`` for a broker, and
``jars-s3`` for Hadoop's client of S3 with the parts of the AWS SDK that it uses (14 MB; its own dependency is a bundle
of the whole SDK, which has 686 MB). Tests that need a missing jar fail.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"
PROJECT = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>widen</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""


def main(folder: str) -> int:
    """Leave every jar of the folder in place, checked, or return 1 after a line of why."""
    pins: dict[str, str] = json.loads((ROOT / "tools" / "jars.json").read_text())[folder]
    target = ROOT / ".work" / folder
    if not all(_jar(target, coordinate).exists() for coordinate in pins) and not _fetch(target, pins):
        print(f"THE TESTS CANNOT RUN: Maven is missing, or did not get the jars of {folder}.", file=sys.stderr)
        return 1
    wrong = [name for name, digest in pins.items() if _digest(_jar(target, name)) != digest]
    for coordinate in wrong:
        mistake = f"{_jar(target, coordinate)} is not the {coordinate} that was pinned. Delete it and try again."
        print(f"THE TESTS CANNOT RUN: {mistake}", file=sys.stderr)
    return int(bool(wrong))


def _fetch(target: Path, coordinates: dict[str, str]) -> bool:
    """Copy the jars into a directory; return whether the client is there and says that it has done so."""
    maven = shutil.which("mvn")
    if maven is None:
        return False
    with tempfile.TemporaryDirectory() as place:
        project = Path(place, "pom.xml")
        project.write_text(PROJECT.format("".join(map(_dependency, coordinates))))
        command = [maven, "-q", "-B", "-Dstyle.color=never", "-f", str(project), COPY, f"-DoutputDirectory={target}"]
        return subprocess.run(command, check=False).returncode == 0


def _dependency(coordinate: str) -> str:
    names = ("groupId", "artifactId", "version", "classifier")
    parts = "".join(f"<{name}>{part}</{name}>" for name, part in zip(names, coordinate.split(":")))  # noqa: B905
    others = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
    return f"<dependency>{parts}{others}</dependency>"


def _jar(target: Path, coordinate: str) -> Path:
    """Return where the jar of ``group:artifact:version`` or ``group:artifact:version:classifier`` is kept."""
    return target / f"{'-'.join(coordinate.split(':')[1:])}.jar"


def _digest(jar: Path) -> str:
    return hashlib.sha256(jar.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
