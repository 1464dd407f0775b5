"""Write the rules of docs/evolution-rules.md into the package, for ``widen explain``.

python3 tools/rules.py
"""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evolution-rules.md"
RULES = ROOT / "src" / "widen" / "report" / "evolution_rules.json"
SECTION = re.compile(r"^### ([UD]\d+)\. (.+)\n\n((?:(?!^#|^<a id).*\n)+)", re.MULTILINE)
VECTOR = re.compile(r'^\| <a id="v\d+"></a>(V\d+) \| (.+?) (?<!\\)\| (.+) \|$', re.MULTILINE)
LINK = re.compile(r"\[([^\]]+)\]\(#[\w-]+\)")


def rules(page: str) -> list[dict[str, str]]:
    """The code, the title and the text of each rule, decision and test vector, in the order of the page."""
    found = [{"code": code, "title": title, "text": _text(body)} for code, title, body in SECTION.findall(page)]
    vectors = [
        {"code": code, "title": _text(kinds), "text": f"Columns in the mode split: {_text(columns)}"}
        for code, kinds, columns in VECTOR.findall(page)
    ]
    return found + vectors


def render(page: str) -> str:
    """The content of the file in the package."""
    return json.dumps(rules(page), ensure_ascii=False, indent=1) + "\n"


def _text(markdown: str) -> str:
    plain = LINK.sub(r"\1", markdown).replace("\\|", "|").replace("**", "")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in plain.strip().split("\n\n"))


if __name__ == "__main__":
    RULES.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
