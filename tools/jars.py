"""Fetch jars from Maven Central and check them against their pins.

Without an argument: Delta Lake and Iceberg for Spark, of ``jars.json``, into ``.work/jars``. With the argument ``s3``:
Hadoop's client of S3 and the parts of the AWS SDK that it uses, of ``jars-s3.json``, into ``.work/jars-s3`` (14 MB, all
Apache License 2.0; Hadoop's own dependency is a bundle of the whole SDK, which has 686 MB).

With the Maven client where it is installed, else with the resolver that is built into Spark. There is no third
way: without these jars `make interop` and `make s3` fail, because tests that did not run have not passed. With
``rest_catalog.xml`` as its argument it fetches the jars of that POM into ``.work/jars/rest_catalog``, for which it
needs Maven.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SET = "-s3" if sys.argv[1:] == ["s3"] else ""
JARS = ROOT / ".work" / f"jars{SET}"
IVY = ROOT / ".work" / "ivy"


REST_CATALOG = "9427e152576cb0e84e4d8061ebc285ef5a91a2b3c16d9b4afb12746d753ed19a"
"""The digest of the names and the digests of the jars of ``rest_catalog.xml``."""


def main(pom: str | None = None) -> int:
    """Leave every pinned jar in place, checked, or return 1 with one line of why."""
    if pom is not None and not SET:
        return _rest_catalog(ROOT / "tools" / pom)
    pins: dict[str, str] = json.loads((ROOT / "tools" / f"jars{SET}.json").read_text())
    JARS.mkdir(parents=True, exist_ok=True)
    missing = [coordinate for coordinate in pins if not jar(coordinate).exists()]
    if missing and not (_by_maven(missing) or _by_spark(missing)):
        print(f"THE TESTS CANNOT RUN: Maven Central did not give {', '.join(missing)}.", file=sys.stderr)
        return 1
    wrong = [coordinate for coordinate, digest in pins.items() if _digest(jar(coordinate)) != digest]
    for coordinate in wrong:
        print(f"THE TESTS CANNOT RUN: {jar(coordinate)} is not the {coordinate} that was pinned.", file=sys.stderr)
    return int(bool(wrong))


def _rest_catalog(pom: Path) -> int:
    """Fetch what the POM names, and check it as a whole."""
    folder, maven = JARS / pom.stem, shutil.which("mvn")
    shutil.rmtree(folder, ignore_errors=True)
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
    if maven is None or not _ok([maven, "-q", "-B", "-f", str(pom), *goal]):
        print(f"INTEROP CANNOT RUN: Maven is missing, or did not get what {pom} names.", file=sys.stderr)
        return 1
    names = sorted(each.name for each in folder.iterdir())
    digest = hashlib.sha256("".join(f"{name} {_digest(folder / name)}\n" for name in names).encode()).hexdigest()
    if digest != REST_CATALOG:
        print(f"INTEROP CANNOT RUN: {folder} is not what was pinned, but {digest}.", file=sys.stderr)
    return int(digest != REST_CATALOG)


def jar(coordinate: str) -> Path:
    """Where the jar of ``group:artifact:version`` is kept."""
    _, artifact, version = coordinate.split(":")
    return JARS / f"{artifact}-{version}.jar"


def _by_maven(coordinates: list[str]) -> bool:
    maven = shutil.which("mvn")
    if maven is None:
        return False
    for coordinate in coordinates:
        where = [f"-Dartifact={coordinate}", f"-DoutputDirectory={JARS}", "-Dmdep.useBaseVersion=true"]
        if not _ok([maven, "-q", "-B", "dependency:copy", *where]):
            return False
    return all(jar(coordinate).exists() for coordinate in coordinates)


def _by_spark(coordinates: list[str]) -> bool:
    start = (
        "import sys; from pyspark.sql import SparkSession as S;"
        "S.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        ".config('spark.jars.packages', sys.argv[1]).config('spark.jars.ivy', sys.argv[2]).getOrCreate().stop()"
    )
    if not _ok([sys.executable, "-c", start, ",".join(coordinates), str(IVY)]):
        return False
    for coordinate in coordinates:
        group, artifact, version = coordinate.split(":")
        shutil.copyfile(IVY / "jars" / f"{group}_{artifact}-{version}.jar", jar(coordinate))
    return True


def _ok(command: list[str]) -> bool:
    return subprocess.run(command, stdout=sys.stderr).returncode == 0


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
