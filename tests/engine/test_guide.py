"""A stranger's walk: every page is followed from top to bottom in an empty folder, and shows what its blocks print.

``make outputs`` writes the output into the pages.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pyiceberg.catalog
import pytest
from pyiceberg.utils.config import Config
from pyspark.sql import SparkSession

from support.pages import RUN, Block, Exceptions, blocks, comparable, run_block, with_outputs
from widen.spark.engine import require_spark

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
UPDATES = os.environ.get("WIDEN_UPDATE_OUTPUTS") == "1"
PAGES_NOT_RUN = {
    "cluster": "its commands need a cluster",
    "kafka": "its snippets need a broker; tests/kafka runs them",
    "spark-pipelines": "test_declarative_pipelines.py runs its project, and compares the files that it shows",
    "data-source": "a data source runs in a separate process, where relative paths start elsewhere; its calls are in "
    "test_data_source.py",
}
"""The pages whose commands are not run, and why."""

PAGES = [
    ROOT / "README.md",
    DOCS / "index.md",
    *(page for page in sorted((DOCS / "guide").glob("*.md")) if page.stem not in PAGES_NOT_RUN),
]

EXCEPTIONS = Exceptions(
    codes={
        "widen alter shop/orders total --type string": 1,
        "widen ingest landing/ --into shop/landed --once --checkpoint shop/landed_checkpoint --max-corrupt 0": 3,
        "widen ingest orders/tuesday/ --into shop/gated --fail-on structural": 3,
        "widen ingest landing/ --into shop/orders --new --max-corrupt 0": 3,
        "widen plan bad/ --contract orders.json": 3,
        "widen plan pipelines.toml": 2,
        "widen run pipelines.toml --events loads.jsonl": 3,
        "widen plan orders/tuesday/ --into shop/orders": 2,
        "widen plan orders/tuesday/ --into shop/existing": 2,
        "widen plan orders/monday/ --into shop/new --config orders.toml": 2,
        "widen ingest new/ --into shop/strict --evolve fail": 1,
    },
    not_run={
        "pip install": "tests/wheel installs the wheel with its extras",
        "make ": "the Makefile is that of the repository",
        "--follow": "runs until it is interrupted; the same stream with --once is run",
    },
)


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """The folder of each page: always the same one, since tables record the paths of their sources, and a short one."""
    with TemporaryDirectory(prefix="widen", dir="/tmp") as place:
        yield Path(place) / "work"


@pytest.fixture
def folder(place: Path) -> Iterator[Path]:
    """The same folder, empty."""
    place.mkdir()
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders that blocks leave which several pages begin with, by the text of the block."""
    return {"": tmp_path_factory.mktemp("prepared")}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_followed(
    page: Path, spark: SparkSession, prepared: dict[str, Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_spark(spark, "the pages show what is printed where a session is active")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "100")
    for key, value in (("URI", f"sqlite:///{folder}/prod.db"), ("WAREHOUSE", f"{folder}/prod"), ("TYPE", "sql")):
        monkeypatch.setenv(f"PYICEBERG_CATALOG__PROD__{key}", value)
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())  # PyIceberg reads the environment once
    text = page.read_text(encoding="utf-8")
    printed = follow(text, prepared)
    if UPDATES:
        page.write_text(with_outputs(text, printed), encoding="utf-8")
        return
    for block in blocks(text):
        if block.start in printed:
            shown, found = block.shown or "", printed[block.start]
            assert comparable(found) == comparable(shown), f"{block.text}\nprints\n{found}\n`make outputs` writes it"


def follow(page: str, prepared: dict[str, Path]) -> dict[int, str]:
    """Follow a page; return what its blocks print, by their starts."""
    names: dict[str, object] = {"__name__": "__main__"}
    printed = {}
    for number, block in enumerate(blocks(page)):
        if number == 0 and block.prepares:
            prepare(block, prepared)
            continue
        text = run_block(block, names, EXCEPTIONS)
        if block.language in RUN and not block.prepares:
            printed[block.start] = text
    return printed


def prepare(block: Block, prepared: dict[str, Path]) -> None:
    """Run the block that prepares a page; pages with the same block share what it leaves."""
    known = prepared.get(block.text)
    if known is None:
        run_block(block, {}, EXCEPTIONS)
        kept = prepared[""] / str(len(prepared))
        prepared[block.text] = shutil.copytree(Path.cwd(), kept)
    else:
        shutil.copytree(known, Path.cwd(), dirs_exist_ok=True)


def test_no_page_hides_what_it_needs() -> None:
    hidden = [page.stem for page in PAGES if re.search(r"<!-- (sh|python)$", page.read_text(encoding="utf-8"), re.M)]
    assert hidden == []


def test_what_ends_otherwise_and_what_is_not_run_is_on_the_pages() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in PAGES)
    assert [words for words in (*EXCEPTIONS.codes, *EXCEPTIONS.not_run) if words not in pages] == []
