"""Write the pages of the documentation that come from the code: commands, SQL and the protocol map.

mkdocs-gen-files runs this while it builds the site; `pages` gives the same pages without mkdocs.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import EnumMeta
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import typer  # noqa: E402

from widen.cli.app import app  # noqa: E402
from widen.sql_commands.grammar import FORMS, PARTS  # noqa: E402
from widen.sql_commands.statements import ROW_FORMS  # noqa: E402

PROTOCOL = "https://github.com/delta-io/delta/blob/master/PROTOCOL.md"
CHAPTERS: Mapping[str, tuple[str, ...]] = {
    "Type widening": (
        "type-widening",
        "type-change-metadata",
        "writer-requirements-for-type-widening",
        "reader-requirements-for-type-widening",
    ),
    "Column mapping": (
        "column-mapping",
        "writer-requirements-for-column-mapping",
        "reader-requirements-for-column-mapping",
    ),
    "Columns": (
        "schema-serialization-format",
        "primitive-types",
        "void-type",
        "column-invariants",
        "check-constraints",
        "default-columns",
        "generated-columns",
        "identity-columns",
        "partition-value-serialization",
    ),
    "Compatibility with Iceberg": (
        "iceberg-compatibility-v1",
        "writer-requirements-for-icebergcompatv1",
        "iceberg-compatibility-v2",
        "writer-requirements-for-icebergcompatv2",
    ),
}
_CITED = re.compile(r"(PROTOCOL\.md|[\w/-]+\.md)|#([\w-]+)")


def pages() -> Iterator[tuple[str, str]]:
    """Each page with its path below docs."""
    yield "reference/cli.md", command_page()
    yield "reference/sql.md", sql_page()
    yield "protocol-map.md", protocol_page()


def command_page() -> str:
    """Every command with its arguments and options."""
    lines = ["# Command line", "", "`widen COMMAND --help` shows the same. Most commands take `--json`.", ""]
    group = typer.main.get_command(app)
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        lines += [f"## widen {name}", "", _escape(command.help or ""), "", "| option | meaning |", "|---|---|"]
        lines += [f"| `{_spelling(option)}` | {_escape(option.help or '')} |" for option in command.params]
        lines.append("")
    return "\n".join(lines)


def sql_page() -> str:
    """Every form of a statement, as the parser has it."""
    lines = [
        "# SQL",
        "",
        "`widen sql` and `widen.sql` understand these statements; they are those of Delta Lake and Spark. A word in",
        "capitals stands for itself, a word in small letters for a part that is listed below.",
        "",
        "## Rows",
        "",
        *(f"```text\n{form}\n```" for form in ROW_FORMS.values()),
        "",
        "A table in a query can also be a view or a table of the session. `INSERT` matches values to columns by",
        "position, unless it says `BY NAME`; values are cast where Spark's store assignment allows it. `WITH SCHEMA",
        "EVOLUTION` adds columns and widens types. What stands between the keywords is Spark SQL.",
        "",
        "## Tables",
        "",
        *(f"```text\n{form}\n```" for form in FORMS.values()),
        "",
        "## Parts",
        "",
        "```text",
        *(f"{name.lstrip('?')}: {form}" for name, form in PARTS.items()),
        "```",
        "",
    ]
    return "\n".join(lines)


def protocol_page() -> str:
    """Where each chapter of the protocol is enforced, and the tests of these modules."""
    lines = [
        "# Protocol map",
        "",
        f"Where the code enforces the chapters of [Delta Lake's protocol]({PROTOCOL}), and the tests of that code. The",
        "page is made from the `Source:` lines of docstrings.",
        "",
    ]
    cited = _citations()
    for title, chapters in CHAPTERS.items():
        lines += [f"## {title}", "", "| requirement | enforced in | tests |", "|---|---|---|"]
        for chapter in chapters:
            places = sorted(cited[chapter])
            modules = sorted({module for module, _ in places})
            tests = sorted({test for module in modules for test in _tests_of(module)})
            code = "<br>".join(f"`{module}`: {names}" for module, names in _joined(places))
            lines.append(f"| [{chapter}]({PROTOCOL}#{chapter}) | {code} | {'<br>'.join(f'`{t}`' for t in tests)} |")
        lines.append("")
    return "\n".join(lines)


def _citations() -> Mapping[str, set[tuple[str, str]]]:
    cited: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for path in sorted((ROOT / "src" / "widen").rglob("*.py")):
        module = str(path.relative_to(ROOT / "src" / "widen"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                for chapter in _chapters(ast.get_docstring(node) or ""):
                    cited[chapter].add((module, getattr(node, "name", "")))
    return cited


def _chapters(docstring: str) -> Iterator[str]:
    document = ""
    for paragraph in re.findall(r"^Source:((?:.+\n?)+)", docstring, re.MULTILINE):
        for name, anchor in _CITED.findall(paragraph):
            document = name or document
            if anchor and document == "PROTOCOL.md":
                yield anchor


def _joined(places: list[tuple[str, str]]) -> list[tuple[str, str]]:
    names: dict[str, list[str]] = defaultdict(list)
    for module, name in places:
        names[module].append(f"`{name}`" if name else "the module")
    return [(module, ", ".join(each)) for module, each in names.items()]


def _tests_of(module: str) -> Iterator[str]:
    path = Path(module)
    test = ROOT / "tests" / "unit" / path.parent / f"test_{path.stem}.py"
    if test.exists():
        yield str(test.relative_to(ROOT / "tests"))
    dotted = "widen." + module.removesuffix(".py").replace("/", ".")
    for folder in ("spec", "engine", "property", "golden"):
        for each in sorted((ROOT / "tests" / folder).rglob("test_*.py")):
            if dotted in each.read_text(encoding="utf-8"):
                yield str(each.relative_to(ROOT / "tests"))


def _spelling(option: object) -> str:
    names = getattr(option, "secondary_opts", [])
    spellings = ", ".join([*getattr(option, "opts", []), *names])
    kind = getattr(getattr(option, "type_descriptor", None), "annotation", None)  # in newer versions of typer
    choices = kind if isinstance(kind, EnumMeta) else getattr(getattr(option, "type", None), "choices", ())
    metavar = getattr(option, "metavar", None) or "|".join(str(getattr(each, "value", each)) for each in choices)
    if not spellings.startswith("-"):
        return str(metavar or spellings.upper())
    return f"{spellings} {metavar}" if metavar else spellings


def _escape(text: str) -> str:
    """Text for a cell of a table: one line, no tags, no column of its own."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*")


def write() -> None:
    """Give the pages to mkdocs."""
    import mkdocs_gen_files

    for path, text in pages():
        with mkdocs_gen_files.open(path, "w") as file:
            file.write(text)


if __name__ == "<run_path>":  # the name that mkdocs-gen-files runs its scripts under
    write()
