"""The page: one document, nothing fetched, nothing that comes from data is markup, and every text can be read."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from html.parser import HTMLParser
from pathlib import Path

import pytest

from support.drift_log import HOSTILE, write_drift
from support.wide_log import write_wide
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.report.build_report import build_report
from widen.report.html_page import render_page
from widen.report.text_format import Samples, mask_report

VOID = {"meta", "rect", "wbr", "br", "input"}
TEXT_CONTRAST, SHAPE_CONTRAST = 4.5, 3.0
"""The least contrast of text and of shapes. Source: WCAG 2.2, 1.4.3 and 1.4.11."""


class Elements(HTMLParser):
    """Every element, its attributes, what it refers to, and whether all of them are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.links: list[str] = []
        self.handlers: list[str] = []
        self.ids: list[str] = []
        self.labelled_by: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.links += [str(value) for name, value in attrs if name in ("href", "src", "action", "xlink:href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on") or name == "style"]
        self.ids += [str(value) for name, value in attrs if name == "id"]
        self.labelled_by += [str(value) for name, value in attrs if name in ("aria-labelledby", "for", "data-more")]
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


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> str:
    table = write_wide(tmp_path_factory.mktemp("wide") / "orders", columns=137, intervals=34)
    return render_page(mask_report(build_report(open_snapshot(LogStore(str(table)))), Samples.MASKED))


def test_the_page_is_whole_and_needs_nothing_else(text: str, wide: str) -> None:
    for page in (text, wide):
        elements = Elements(page)
        assert elements.open == []
        assert elements.handlers == []
        assert [link for link in elements.links if link.removeprefix("#") not in elements.ids] == []
        assert [name for name in elements.labelled_by if name not in elements.ids] == []
        assert len(elements.ids) == len(set(elements.ids))
        assert not {"link", "img", "iframe", "object"} & set(elements.names)
        assert elements.names.count("script") == elements.names.count("style") == 1
        assert not re.search(r"url\(|@import|https?:|fetch\(|XMLHttp|innerHTML|eval\(", page)


def test_the_policy_allows_only_the_style_and_the_script_of_the_page(text: str) -> None:
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    directives = dict(part.strip().split(" ", 1) for part in policy[1].split(";"))
    assert directives == {
        "default-src": "'none'",
        "style-src": content_hash(text, "style"),
        "script-src": content_hash(text, "script"),
        "base-uri": "'none'",
        "form-action": "'none'",
    }
    assert text.index("Content-Security-Policy") < text.index("<style>") < text.index("<script>")


def content_hash(page: str, tag: str) -> str:
    """The hash of the content of an element. Source: Content Security Policy Level 3, 6.7.3.3."""
    found = re.search(f"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
    assert found is not None
    return f"'sha256-{base64.b64encode(hashlib.sha256(found[1].encode()).digest()).decode()}'"


def test_hostile_text_is_shown_and_not_run(text: str) -> None:
    assert "&lt;script&gt;alert(1)&lt;/sc" in text
    assert "\x1b" not in text
    assert "&lt;b&gt;orders" in text


def test_the_contents_of_the_page(text: str) -> None:
    for words in ("evolved from tags", "90.0", "97 %", "manual", "day 2/orders.json:6", "2023-11-15 22:13:20"):
        assert words in text


def test_the_summary_says_what_is_to_be_done(wide: str) -> None:
    for words in ("Worth a look", "1 conflicting change in the last 7 loads", "7 decisions", "312 records quarantined"):
        assert words in wide
    assert "orders discount_string --dry-run</code>" in wide
    assert "discount_string got none in the last 3 loads: the source looks repaired." in wide
    assert 'id="rule-U8"' in wide
    assert "A wider kind gets its own column" in wide


def test_every_column_of_a_wide_table_has_its_counts(wide: str) -> None:
    counts = re.findall(r'<td class="number values" data-sort="(-?\d+)">', wide)
    assert len(counts) == 137
    assert "-1" not in counts


@pytest.mark.parametrize(("intervals", "most_bytes"), [(34, 260_000), (400, 420_000)])
def test_the_page_stays_small(tmp_path: Path, intervals: int, most_bytes: int) -> None:
    table = write_wide(tmp_path / "orders", columns=137, intervals=intervals)
    page = render_page(build_report(open_snapshot(LogStore(str(table)))))
    assert len(page.encode()) <= most_bytes
    assert page.count('<rect class="records"') <= 68


# ---- contrast --------------------------------------------------------------------------------------

TEXTS = ("ink", "soft", "additive", "widening", "conflict", "structural", "alarm", "ok", "watch", "act")
SHAPES = ("bar", "focus", "additive", "widening", "conflict", "structural", "alarm", *(f"kind-{n}" for n in range(5)))
STATES = ("ok", "watch", "act")


def themes() -> Mapping[str, Mapping[str, str]]:
    """The colours of the page by theme, as its style defines them."""
    style = (Path(__file__).resolve().parents[3] / "src/widen/report/page.css").read_text(encoding="utf-8")
    blocks = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    light, dark, printed = (dict(re.findall(r"--([\w-]+): (#[0-9a-f]{3,6});", block)) for block in blocks)
    return {"light": light, "dark": {**light, **dark}, "print": {**light, **printed}}


def contrast(one: str, other: str) -> float:
    """The contrast of two colours. Source: WCAG 2.2, definitions of contrast ratio and relative luminance."""
    darker, lighter = sorted(map(luminance, (one, other)))
    return (lighter + 0.05) / (darker + 0.05)


def luminance(colour: str) -> float:
    digits = colour[1:] if len(colour) == 7 else "".join(digit * 2 for digit in colour[1:])
    parts = (int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4))
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_the_contrast_of_black_and_white_and_of_a_known_pair() -> None:
    assert contrast("#000000", "#fff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", ["light", "dark", "print"])
def test_every_colour_can_be_read(theme: str) -> None:
    colours = themes()[theme]
    pairs = [(text, ground, TEXT_CONTRAST) for text in TEXTS for ground in ("paper", "card", "raised")]
    pairs += [(text, f"{state}-tint", TEXT_CONTRAST) for text in (*STATES, "ink", "soft") for state in STATES]
    pairs += [(shape, "card", SHAPE_CONTRAST) for shape in SHAPES]
    low = [(a, b, round(ratio, 2)) for a, b, least in pairs if (ratio := contrast(colours[a], colours[b])) < least]
    assert low == []
