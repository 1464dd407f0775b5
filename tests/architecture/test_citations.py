"""Every ``Source:`` line of the package names an anchor of a page in docs, or a public document."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from architecture.source import modules

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT_OR_ANCHOR = re.compile(r"((?:docs/(?:[\w-]+/)*|protocol_rfcs/)?[\w-]+\.md)|#([\w-]+)")
CITATION = re.compile(
    r"(?:the error classes of )?"
    r"(?:docs/|PROTOCOL\.md|protocol_rfcs/|Delta Lake|Delta Spark|deltalake|Spark|Hive|Iceberg's table specification"
    r"|CloudEvents|OpenLineage|Open Data Contract Standard|PyIceberg|the Puffin specification"
    r"|the Parquet format|the Arrow format|the Avro specification|ECMA-376"
    r"|Amazon S3"
    r"|RFC \d+|PEP \d+|ISO \d+|TOML|Unicode|JSON Lines)"
)

# The headings of the public documents, as anchors of GitHub; the file has one document after another.
HEADINGS = Path(__file__).with_name("public_headings.txt").read_text(encoding="utf-8")
PUBLIC_HEADINGS = {
    part.split()[0]: frozenset(part.split()[1:]) for part in HEADINGS.strip().split("\n\n") if not part.startswith("#")
}


def citations() -> Iterator[tuple[str, str]]:
    """Each ``Source:`` paragraph of a docstring, with its place."""
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                docstring = ast.get_docstring(node) or ""
                for paragraph in re.findall(r"^Source:((?:.+\n?)+)", docstring, re.MULTILINE):
                    yield module.where(node), " ".join(paragraph.split())


@cache
def anchors(document: str) -> frozenset[str] | None:
    """The anchors of a document, or None for one that is not known."""
    page = ROOT / document
    if document.startswith("docs/") and page.exists():
        return frozenset(re.findall(r'<a id="([\w-]+)"></a>', page.read_text(encoding="utf-8")))
    return PUBLIC_HEADINGS.get(document)


def unresolved(text: str) -> list[str]:
    """The documents and anchors of a citation that do not exist; an anchor belongs to the document before it."""
    missing, document = [], ""
    for name, anchor in DOCUMENT_OR_ANCHOR.findall(text):
        document = name or document
        known = anchors(document)
        if known is None or (anchor and anchor not in known):
            missing.append(f"{document}#{anchor}" if anchor else document)
    return missing


def test_every_citation_begins_with_a_known_document() -> None:
    assert [(where, text) for where, text in citations() if not CITATION.match(text)] == []


def test_every_cited_anchor_exists() -> None:
    assert [(where, missing) for where, text in citations() if (missing := unresolved(text))] == []


def test_the_package_cites_its_sources() -> None:
    assert len(list(citations())) > 300


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("docs/evolution-rules.md#u8, #d24; PROTOCOL.md#type-widening", []),
        ("docs/evolution-rules.md#u8, #u21", ["docs/evolution-rules.md#u21"]),
        ("docs/nothing.md#u8", ["docs/nothing.md", "docs/nothing.md#u8"]),
        ("PROTOCOL.md#no-such-heading", ["PROTOCOL.md#no-such-heading"]),
        ("#u8", ["#u8"]),
    ],
)
def test_a_citation_that_does_not_resolve_is_found(text: str, missing: list[str]) -> None:
    assert unresolved(text) == missing


def test_the_rules_are_complete() -> None:
    codes = [f"{letter}{number}" for letter, last in (("u", 20), ("d", 24), ("v", 21)) for number in range(1, last + 1)]
    assert [code for code in codes if code not in (anchors("docs/evolution-rules.md") or ())] == []
