"""Download jars from Maven Central and check them against their digests.

The argument is a folder below ``.work`` that ``jars.json`` names: ``jars`` for Delta Lake and Iceberg for Spark,
``jars/rest_catalog`` for the REST catalog server of Iceberg's own test fixtures (Hadoop and the driver of SQLite come
from Spark and from ``jars``), ``jars-s3`` for Hadoop's client of S3 with the parts of the AWS SDK that it uses (14 MB;
its own dependency is a bundle of the whole SDK, which has 686 MB). Tests that need a missing jar fail.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REPOSITORY = os.environ.get("MAVEN_REPOSITORY", "https://repo1.maven.org/maven2")
SECONDS = 120


def main(folder: str) -> int:
    """Leave every jar of the folder in place, checked, or return 1 after a line of why."""
    pins: dict[str, str] = json.loads((ROOT / "tools" / "jars.json").read_text())[folder]
    target = ROOT / ".work" / folder
    target.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(8) as pool:
        mistakes = [each for each in pool.map(lambda pin: _fetch(target, *pin), pins.items()) if each]
    for mistake in mistakes:
        print(f"THE TESTS CANNOT RUN: {mistake}", file=sys.stderr)
    return int(bool(mistakes))


def _fetch(target: Path, coordinate: str, digest: str) -> str:
    """Fetch the jar of ``group:artifact:version`` or ``group:artifact:version:classifier``; return what went wrong."""
    group, artifact, version, *classifier = coordinate.split(":")
    jar = target / f"{'-'.join((artifact, version, *classifier))}.jar"
    url = f"{REPOSITORY}/{group.replace('.', '/')}/{artifact}/{version}/{jar.name}"
    try:
        if not jar.exists():
            with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                part = jar.with_suffix(".part")
                part.write_bytes(answer.read())
                part.replace(jar)
    except OSError as error:
        return f"{url} cannot be downloaded: {error}"
    is_pinned = hashlib.sha256(jar.read_bytes()).hexdigest() == digest
    return "" if is_pinned else f"{jar} is not the {coordinate} that was pinned. Delete it and try again."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
