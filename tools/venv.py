"""Make a virtual environment and fill it from pinned requirement files.

    python3 tools/venv.py .work/venv requirements/dev.txt requirements/spark-4.2.txt

Needs Python 3.10 or later and pip. Where Debian left the ``venv`` module without its pip, the package
``virtualenv`` takes its place. Widen itself is installed as an editable package, unless the first word is
``--without-widen``.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / ".work"


def main(target: str, *requirements: str) -> int:
    """Make the environment, or bring the one that is there up to date."""
    if target == "--without-widen":
        return _fill(requirements[0], *requirements[1:])
    code = _fill(target, *requirements)
    if not code:
        pip = _pip(Path(target).absolute() / "bin" / "python")
        os.environ["WIDEN_BUILD_KERNEL"] = "no"  # ``make kernel`` does, once for all environments
        _run([*pip, "--no-deps", "--no-build-isolation", "--editable", str(ROOT)])
    return code


def _fill(target: str, *requirements: str) -> int:
    place = Path(target).absolute()
    python = place / "bin" / "python"
    if not _runs(python) and not (_make(place) and _runs(python)):
        print(
            "No virtual environment: install python3-venv (Debian, Ubuntu) or virtualenv, then repeat.", file=sys.stderr
        )
        return 1
    wanted = [word for name in requirements for word in ("-r", name)]
    _run([*_pip(python), "--require-hashes", *wanted])
    return 0


def _pip(python: Path) -> list[str]:
    return [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]


def _make(place: Path) -> bool:
    return _ok([sys.executable, "-m", "venv", "--clear", str(place)]) or _make_without_venv(place)


def _make_without_venv(place: Path) -> bool:
    packages = WORK / "virtualenv"
    pinned = ["--require-hashes", "-r", str(ROOT / "requirements" / "virtualenv.txt")]
    fetch = [sys.executable, "-m", "pip", "install", "--quiet", "--upgrade", "--target", str(packages), *pinned]
    make = [sys.executable, "-m", "virtualenv", "--quiet", "--clear", str(place)]
    return _ok(fetch) and _ok(make, PYTHONPATH=str(packages))


def _runs(python: Path) -> bool:
    return python.exists() and _ok([str(python), "-m", "pip", "--version"])


def _ok(command: list[str], **environment: str) -> bool:
    done = subprocess.run(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    return done.returncode == 0


def _run(command: list[str]) -> None:
    done = subprocess.run(command)
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
