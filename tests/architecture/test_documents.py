"""The pages of docs: every link leads somewhere, and what is made from a page or a table is up to date."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import widen
from widen.report.html_page import evolution_rules

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(DOCS.rglob("*.md")), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
GENERATED = frozenset({"reference/cli.md", "reference/sql.md", "protocol-map.md"})
"""Pages that tools/docs_pages.py writes while the site is built."""
LINK = re.compile(r"(?<!\!)\[[^\]]*\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[[^\]]+\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def anchors(page: Path) -> set[str]:
    """The anchors of a page: those it names, its headings, and the classes that it documents."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", CODE.sub("", text), re.MULTILINE)
    slugs = {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
    return slugs | set(re.findall(r'<a id="([^"]+)">', text)) | set(re.findall(r"^::: (.+)$", text, re.MULTILINE))


def broken(page: Path, text: str) -> list[str]:
    """The links of a text on a page that lead nowhere."""
    dead = []
    for link in LINK.findall(CODE.sub("", text)):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if "://" in link or (target.is_relative_to(DOCS) and str(target.relative_to(DOCS)) in GENERATED):
            continue
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    return dead


def test_every_link_leads_somewhere() -> None:
    assert [(page, link) for page in PAGES for link in broken(page, page.read_text(encoding="utf-8"))] == []


def test_every_picture_exists() -> None:
    pictures = [
        page.parent / picture
        for page in PAGES
        for picture in IMAGE.findall(CODE.sub("", page.read_text(encoding="utf-8")))
    ]
    assert pictures
    assert [picture for picture in pictures if not picture.exists()] == []


def test_a_broken_link_is_found() -> None:
    text = "[a](evolution-rules.md#u8) [b](evolution-rules.md#u99) [c](nothing.md) [d](#rules)"
    assert broken(DOCS / "evolution-rules.md", text) == ["evolution-rules.md#u99", "nothing.md"]


def test_every_page_is_in_the_navigation() -> None:
    named = set(re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert named == {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} | GENERATED


def test_the_reference_has_every_public_name() -> None:
    """Errors have a page of their own."""
    page = (DOCS / "reference" / "api.md").read_text(encoding="utf-8")
    described = {name.rpartition(".")[2] for name in re.findall(r"^::: (.+)$", page, re.MULTILINE)}
    assert {name for name in widen.__all__ if not name.endswith("Error")} == described


def test_the_rules_in_the_package_are_those_of_the_page() -> None:
    page = (DOCS / "evolution-rules.md").read_text(encoding="utf-8")
    titles = re.findall(r"^### ([UD]\d+)\. (.+)$", page, re.MULTILINE)
    assert titles == [(rule.code, rule.title) for rule in evolution_rules().values() if rule.code[0] in "UD"]
    words = {word for rule in evolution_rules().values() for word in re.findall(r"\w+", rule.text)}
    assert words - set(re.findall(r"\w+", page)) == set()


def test_the_file_in_the_package_is_up_to_date() -> None:
    render = runpy.run_path(str(ROOT / "tools" / "rules.py"))["render"]
    made = render((DOCS / "evolution-rules.md").read_text(encoding="utf-8"))
    assert made == (ROOT / "src" / "widen" / "report" / "evolution_rules.json").read_text(encoding="utf-8")


def test_no_page_has_marks_that_a_tool_has_left() -> None:
    """A formatter divides the mark of an included file in a block of Python; a merge leaves its own marks."""
    marks = re.compile(r"^(?:--8 |<<<<<<<|>>>>>>>)", re.MULTILINE)
    assert [page for page in PAGES if marks.search(page.read_text(encoding="utf-8"))] == []
