"""The example of an image: what its Dockerfile names is there. `make image` builds it where docker or podman is."""

from __future__ import annotations

import re
import runpy
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "examples" / "docker" / "Dockerfile").read_text(encoding="utf-8")
COPIED = [
    name
    for words in re.findall(r"^COPY (?!--from)(.+)$", TEXT, re.MULTILINE)
    for name in words.split()[:-1]  # the last word is the target
]


def test_what_it_copies_is_in_its_context() -> None:
    assert len(COPIED) == 8
    assert [name for name in COPIED if not (ROOT / name).exists()] == []
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    assert rules[0] == "*"
    allowed = [rule.removeprefix("!") for rule in rules[1:]]
    assert [name for name in COPIED if not any(fnmatch(name.split("/")[0], rule) for rule in allowed)] == []


def test_it_has_the_java_and_a_python_that_are_tested() -> None:
    assert runpy.run_path(str(ROOT / "tools" / "java.py"))["PACKAGE"] in TEXT
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    versions = set(re.findall(r"^FROM python:([\d.]+)-", TEXT, re.MULTILINE))
    assert len(versions) == 1
    assert f'"Programming Language :: Python :: {versions.pop()}"' in project
