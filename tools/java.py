"""Print the home of a Java that Spark can use; get one where there is none.

    JAVA_HOME="$(python3 tools/java.py)"

Looks, in this order, at ``JAVA_HOME``, ``PATH``, ``.work/java`` and ``/usr/lib/jvm``. Finds none of version 17
or later: Debian's ``openjdk-17-jre-headless`` where packages may be installed, else the PyPI package
``install-jdk`` into ``.work/java``, else one line that says what to do, and exit code 1.
``WIDEN_JAVA`` names the ways to try, e.g. ``WIDEN_JAVA=apt`` or ``WIDEN_JAVA=pypi``; default ``found,apt,pypi``.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OWN = ROOT / ".work" / "java"
OLDEST, PREFERRED = 17, (17, 21)
PACKAGE = "openjdk-17-jre-headless"


def main() -> int:
    """Print a Java home and return 0, or say how to get one and return 1."""
    for way in os.environ.get("WIDEN_JAVA", "found,apt,pypi").split(","):
        home = WAYS[way.strip()]()
        if home:
            print(home)
            return 0
    print(
        "Spark needs Java 17 or later: install a JRE (Debian: openjdk-17-jre-headless) and set JAVA_HOME.",
        file=sys.stderr,
    )
    return 1


def found() -> Path | None:
    """Return the first Java home that is new enough, or None."""
    for home in _candidates():
        if _version(home) >= OLDEST:
            return home
    return None


def from_debian() -> Path | None:
    """Install Debian's package if this user may, and return its home, or None."""
    apt = shutil.which("apt-get")
    if apt is None or (os.geteuid() and not _ok(["sudo", "-n", "true"])):
        return None
    _say(f"No Java {OLDEST} or later; installing Debian's {PACKAGE}.")
    do = [] if os.geteuid() == 0 else ["sudo", "-n"]
    install = [*do, apt, "install", "-y", "--no-install-recommends", PACKAGE]
    if not _ok(install):
        _ok([*do, apt, "update"])
        if not _ok(install):
            return None
    return next((home for home in _system_homes() if _version(home) >= OLDEST), None)


def from_pypi() -> Path | None:
    """Fetch a JRE with the package ``install-jdk`` into ``.work/java`` and return its home, or None."""
    tool, pinned = ROOT / ".work" / "install-jdk", ROOT / "requirements" / "java.txt"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(tool)]
    _say(f"No Java {OLDEST} or later; fetching one with install-jdk.")
    if not _ok([*pip, "--require-hashes", "-r", str(pinned)]):
        return None
    code = f"import jdk; jdk.install('{OLDEST}', jre=True, path={str(OWN)!r})"
    OWN.mkdir(parents=True, exist_ok=True)
    everything = {**os.environ, "PYTHONPATH": str(tool)}
    done = subprocess.run([sys.executable, "-c", code], env=everything, capture_output=True, text=True)
    if done.returncode:
        _say(f"install-jdk could not download a Java: {done.stderr.strip().splitlines()[-1]}")
        return None
    return next((home for home in _own_homes() if _version(home) >= OLDEST), None)


WAYS: dict[str, Callable[[], Path | None]] = {"found": found, "apt": from_debian, "pypi": from_pypi}


def _candidates() -> Iterator[Path]:
    if os.environ.get("JAVA_HOME"):
        yield Path(os.environ["JAVA_HOME"])
    on_path = shutil.which("java")
    if on_path:
        yield Path(on_path).resolve().parent.parent
    yield from _own_homes()
    yield from _system_homes()


def _own_homes() -> list[Path]:
    return sorted(java.parent.parent for java in OWN.glob("*/bin/java"))


def _system_homes() -> list[Path]:
    homes = [java.parent.parent for java in Path("/usr/lib/jvm").glob("*/bin/java")]
    return sorted(homes, key=lambda home: (_version(home) not in PREFERRED, _version(home), home))


def _version(home: Path) -> int:
    java = home / "bin" / "java"
    if not java.exists():
        return 0
    told = subprocess.run([str(java), "-version"], capture_output=True, text=True).stderr
    number = re.search(r'version "(\d+)', told)
    return int(number.group(1)) if number else 0


def _ok(command: list[str], **environment: str) -> bool:
    everything = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", **environment}
    try:
        return subprocess.run(command, env=everything, stdout=sys.stderr).returncode == 0
    except FileNotFoundError:
        return False


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
