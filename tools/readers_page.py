"""Write the table of tested readers in the guide, from the file that Widen predicts from.

    python tools/readers_page.py

A test fails if the page is not current.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from widen.report.reader_predictions import TRAITS

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "guide" / "readers.md"
DATA = ROOT / "src" / "widen" / "report" / "readers.json"
BEGIN, END = "<!-- tools/readers_page.py writes the {} tables: begin -->\n", "<!-- {} tables: end -->\n"
WORDS = {"equal": "`=`", "range": "`<`, `>`", "count": "counts", "null": "`IS NULL`"}


def main() -> int:
    """Write both parts of the page."""
    text = PAGE.read_text(encoding="utf-8")
    for table_format in ("delta", "iceberg"):
        before, _, rest = text.partition(BEGIN.format(table_format))
        _, _, after = rest.partition(END.format(table_format))
        text = f"{before}{BEGIN.format(table_format)}{render(table_format)}{END.format(table_format)}{after}"
    PAGE.write_text(text, encoding="utf-8")
    return 0


def render(table_format: str) -> str:
    """Return the table of a format: a row for each trait that some reader does not simply read."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    readers = {name: each for name, each in data["readers"].items() if each["format"] == table_format}
    return "\n".join(_lines(readers, data["answers"][table_format])) + "\n"


def _lines(readers: Mapping[str, Any], answers: Mapping[str, Any]) -> Iterator[str]:
    yield "| the table has | " + " | ".join(f"{each['title']} {each['version']}" for each in readers.values()) + " |"
    yield "|---" * (len(readers) + 1) + "|"
    for trait in TRAITS:
        if any(answers.get(trait, {}).values()):
            cells = " | ".join(_cell(answers[trait].get(name, {})) for name in readers)
            yield f"| {TRAITS[trait].text} | {cells} |"
    fine = [TRAITS[trait].text for trait in TRAITS if trait in answers and not any(answers[trait].values())]
    if fine:
        yield f"\nEvery tested reader reads tables that have: {'; '.join(fine)}."


def _cell(found: Mapping[str, str]) -> str:
    if not found:
        return "reads"
    if found.get("scan") == "wrong":
        return "**wrong values**"
    if found.get("scan") == "refuses":
        return "refuses"
    wrong = [WORDS[kind] for kind, text in found.items() if text == "wrong"]
    refused = [WORDS[kind] for kind, text in found.items() if text == "refuses"]
    parts = [f"**wrong: {', '.join(wrong)}**"] * bool(wrong) + [f"refuses {', '.join(refused)}"] * bool(refused)
    return "; ".join(parts)


if __name__ == "__main__":
    sys.exit(main())
