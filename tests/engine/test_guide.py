"""Every command of the guide runs as it stands on its page, in the folder that the page Start leaves behind.

Blocks of a page run in their order. What a page needs and does not show, such as a file to ingest, is made by blocks in
comments of the page: ``<!-- sh`` and ``<!-- python``.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

import widen
from support.command_line import run

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES_NOT_RUN = {
    "cluster": "its commands need a cluster",
    "data-source": "a data source runs in a separate process, where relative paths start elsewhere; its calls are in "
    "test_data_source.py",
}
"""The pages whose commands are not run, and why."""
PAGES = [page for page in sorted((DOCS / "guide").glob("*.md")) if page.stem not in PAGES_NOT_RUN]
BLOCK = re.compile(r'^(?:```|<!-- )(sh|python|toml)(?: title="([^"]+)")?\n(.*?)^(?:```|-->)$', re.MULTILINE | re.DOTALL)

EXIT_CODES = {
    "widen plan orders/tuesday/ --into shop/orders": 2,
}
"""The commands of the pages that end with another exit code than 0."""

NOT_RUN = {
    "pip install": "tests/wheel installs the wheel with its extras",
    "--follow": "runs until it is interrupted; the same stream with --once is run",
    "to_polars": "polars is not among the requirements of the tests",
}
"""What is in commands that are not run, and why."""


@pytest.fixture(scope="module")
def start(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder after the page Start."""
    folder = tmp_path_factory.mktemp("start")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        run_page(DOCS / "index.md", spark)
    return folder


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_commands_of_a_page_run(
    page: Path, start: Path, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = shutil.copytree(start, tmp_path / "day")
    monkeypatch.chdir(folder)
    for key, value in (("URI", f"sqlite:///{folder}/prod.db"), ("WAREHOUSE", f"{folder}/prod"), ("TYPE", "sql")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{key}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # PyIceberg reads the environment once
    run_page(page, spark)


def test_what_ends_otherwise_and_what_is_not_run_is_on_the_pages() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "index.md", *PAGES))
    assert [words for words in (*EXIT_CODES, *NOT_RUN) if words not in pages] == []


def run_page(page: Path, spark: SparkSession) -> None:
    """Run the blocks of a page in the current folder, after its files are written."""
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    for _, title, text in blocks:
        if title:
            Path(title).write_text(text, encoding="utf-8")
    names: dict[str, object] = {"widen": widen, "spark": spark}
    for language, _, text in blocks:
        if language == "sh":
            for command in commands(text):
                run_command(command)
        elif language == "python" and not is_left_out(text):
            exec(compile(text, str(page), "exec"), names)


def commands(text: str) -> Iterator[str]:
    """The commands of a block, without comments."""
    for line in text.replace("\\\n", "").splitlines():
        command = shlex.join(shlex.split(line, comments=True))
        if command and not is_left_out(line):
            yield line.partition("  #")[0].strip()


def is_left_out(text: str) -> bool:
    return any(words in text for words in NOT_RUN)


def run_command(command: str) -> None:
    """Run a command; those of Widen in this process, so that they share its session."""
    name, *words = shlex.split(command)
    if name != "widen":
        subprocess.run(["sh", "-ec", command], check=True)
        return
    words, _, output = _cut(words, ">")
    words, _, source = _cut(words, "<")
    done = run(*words, input=Path(source).read_text(encoding="utf-8") if source else None)
    assert done.exit_code == EXIT_CODES.get(command, 0), f"{command}: {done.exit_code}\n{done.stdout}\n{done.stderr}"
    if output:
        Path(output).write_text(done.stdout, encoding="utf-8")


def _cut(words: list[str], sign: str) -> tuple[list[str], str, str]:
    at = words.index(sign) if sign in words else len(words)
    return words[:at], sign, "".join(words[at + 1 :])
