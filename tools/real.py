"""Fetch the public JSON documents that `make real` ingests; they are never committed.

Two npm packages, pinned by version and checksum in ``real.json``, are packed by the npm client and taken apart
below ``.work/data``: every example payload of GitHub's webhooks as its own document in ``webhooks/``, and
``movies.json`` and ``earthquakes.json``. Two more are installed with all that they need, their scripts not run, and
every ``package.json`` that this brings is a document in ``packages/``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / ".work" / "data"
WEBHOOKS, VEGA = "@octokit/webhooks-examples", "vega-datasets"
INSTALLED = ("eslint", "webpack")


def main() -> int:
    """Fetch, check and take apart; 1 with one line of why if that cannot be done."""
    npm = shutil.which("npm")
    if npm is None:
        print("The real documents come from npm packages: install npm (Debian: apt-get install npm).", file=sys.stderr)
        return 1
    pins: dict[str, dict[str, str]] = json.loads((ROOT / "tools" / "real.json").read_text())
    DATA.mkdir(parents=True, exist_ok=True)
    packages = {name: _fetch(npm, name, pin) for name, pin in pins.items()}
    print(f"{_webhooks(packages[WEBHOOKS])} webhook payloads, movies.json, earthquakes.json in {DATA}")
    _members(packages[VEGA], "data/movies.json", "data/earthquakes.json")
    print(f"{_installed(npm)} package.json of {' and '.join(INSTALLED)}")
    return 0


def _fetch(npm: str, name: str, pin: dict[str, str]) -> Path:
    command = [npm, "pack", "--silent", "--pack-destination", str(DATA), f"{name}@{pin['version']}"]
    packed = subprocess.run(command, capture_output=True, text=True, cwd=DATA)
    if packed.returncode:
        sys.exit(f"npm could not fetch {name} {pin['version']}: {packed.stderr.strip() or packed.stdout.strip()}")
    archive = DATA / packed.stdout.split()[-1]
    digest = "sha512-" + base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
    if digest != pin["integrity"]:
        sys.exit(f"{archive.name} is not the package that was pinned: {digest}")
    return archive


def _webhooks(archive: Path) -> int:
    """Write every payload of every event and server version to its own file; return how many."""
    folder = DATA / "webhooks"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    count = 0
    for server, event, number, payload in _payloads(archive):
        text = json.dumps(payload, ensure_ascii=False, indent=2)
        (folder / f"{server}.{event}.{number:03}.json").write_text(text, encoding="utf-8")
        count += 1
    return count


def _payloads(archive: Path) -> Iterator[tuple[str, str, int, Any]]:
    with tarfile.open(archive) as tar:
        for member in sorted(tar.getnames()):
            parts = member.split("/")
            if parts[-1] != "index.json":
                continue
            for event in json.load(_open(tar, member)):
                for number, payload in enumerate(event["examples"]):
                    yield parts[-2], event["name"], number, payload


def _installed(npm: str) -> int:
    """Install packages and copy every ``package.json`` below their ``node_modules``; return how many."""
    place, folder = DATA / "installed", DATA / "packages"
    for each in (place, folder):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    command = [npm, "install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(place)]
    done = subprocess.run([*command, *INSTALLED], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"npm could not install {' and '.join(INSTALLED)}: {done.stderr.strip() or done.stdout.strip()}")
    found = sorted((place / "node_modules").rglob("package.json"))
    for number, file in enumerate(found):
        shutil.copyfile(file, folder / f"{number:04}.json")
    return len(found)


def _members(archive: Path, *names: str) -> None:
    with tarfile.open(archive) as tar:
        for name in names:
            (DATA / Path(name).name).write_bytes(_open(tar, f"package/{name}").read())


def _open(tar: tarfile.TarFile, member: str) -> Any:
    file = tar.extractfile(member)
    if file is None:
        sys.exit(f"{member} is missing in the package")
    return file


if __name__ == "__main__":
    sys.exit(main())
