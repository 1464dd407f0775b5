"""The versions of the documentation, in one folder."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

PUBLISH = runpy.run_path(str(Path(__file__).resolve().parents[2] / "tools" / "docs_versions.py"))["publish"]


def site(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "index.html").write_text(text)
    return folder


def test_versions_are_listed_newest_first_and_the_newest_release_is_shown(tmp_path: Path) -> None:
    place = tmp_path / "pages"
    for version in ("0.9", "0.10", "dev", "0.2"):
        versions = PUBLISH(site(tmp_path / "site", version), place, version)
    assert versions == ["dev", "0.10", "0.9", "0.2"]
    listed = json.loads((place / "versions.json").read_text())
    assert [each["version"] for each in listed if each["aliases"]] == ["0.10"]
    assert "url=0.10/index.html" in (place / "index.html").read_text()
    assert (place / "0.9" / "index.html").read_text() == "0.9"


def test_a_version_is_replaced(tmp_path: Path) -> None:
    place = tmp_path / "pages"
    PUBLISH(site(tmp_path / "site", "old"), place, "0.1")
    (place / "0.1" / "gone.html").write_text("")
    assert PUBLISH(site(tmp_path / "site", "new"), place, "0.1") == ["0.1"]
    assert [each.name for each in (place / "0.1").iterdir()] == ["index.html"]
