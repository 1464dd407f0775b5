"""Add the built site, as a version, to a folder that is published as a whole.

    make docs && python3 tools/docs_versions.py .work/pages 0.1

The folder then has the site in ``0.1``, a list of its versions in ``versions.json``, which the theme reads to offer
them, and an ``index.html`` that leads to the newest release. No other host is asked for anything.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

SITE = Path(__file__).resolve().parent.parent / ".work" / "site"
FORWARD = """<!doctype html>
<meta charset="utf-8">
<title>Widen</title>
<meta http-equiv="refresh" content="0; url={0}/index.html">
<a href="{0}/index.html">The documentation of Widen</a>
"""


def publish(site: Path, folder: Path, version: str) -> list[str]:
    """Replace a version in the folder by the site, and return all versions, the newest first."""
    shutil.rmtree(folder / version, ignore_errors=True)
    shutil.copytree(site, folder / version)
    versions = sorted((each.name for each in folder.iterdir() if (each / "index.html").exists()), key=_order)
    newest = next((each for each in versions if each[0].isdigit()), versions[0])
    listed = [{"version": each, "title": each, "aliases": ["latest"] if each == newest else []} for each in versions]
    (folder / "versions.json").write_text(json.dumps(listed, indent=1) + "\n", encoding="utf-8")
    (folder / "index.html").write_text(FORWARD.format(newest), encoding="utf-8")
    return versions


def _order(version: str) -> tuple[int, ...]:
    """Newest first; names that are no number, such as ``dev``, before all of them."""
    numbers = re.findall(r"\d+", version) if version[0].isdigit() else []
    return (bool(numbers), *(-int(each) for each in numbers))


if __name__ == "__main__":
    print("\n".join(publish(SITE, Path(sys.argv[1]), sys.argv[2])))
