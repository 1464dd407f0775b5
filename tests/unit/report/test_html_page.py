"""The page: one document, nothing fetched, nothing that comes from data is markup."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.drift_log import HOSTILE, write_drift
from widen.log.read.snapshot import open_snapshot
from widen.log.store.log_store import LogStore
from widen.report.build_report import build_report
from widen.report.html_page import render_page

VOID = {"meta", "line", "rect", "circle", "wbr"}


class Elements(HTMLParser):
    """Every element, what refers to elsewhere, and whether all of them are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [
            str(value) for name, value in attrs if name in ("href", "src", "action") or name.startswith("on")
        ]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture
def text(tmp_path: Path) -> str:
    table = write_drift(tmp_path / "<b>orders", HOSTILE)
    return render_page(build_report(open_snapshot(LogStore(str(table)))))


def test_the_page_is_whole_and_needs_nothing_else(text: str) -> None:
    elements = Elements(text)
    assert elements.open == []
    assert elements.links == []
    assert not {"script", "link", "img", "iframe", "b"} & set(elements.names)
    assert "url(" not in text
    assert "@import" not in text


def test_hostile_text_is_shown_and_not_run(text: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/sc" in text
    assert "\x1b" not in text
    assert "&lt;b&gt;orders" in text


def test_the_contents_of_the_page(text: str) -> None:
    for words in ("evolved from tags", "90.0", "97 %", ">manual<", "day 2/orders.json:6", "2023-11-15 22:13:20"):
        assert words in text
