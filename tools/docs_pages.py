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

from widen.cli.app import EXAMPLES, app  # noqa: E402
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


OPTION_EXAMPLES: Mapping[str, str] = {
    "--acknowledge": "tags",
    "--add": "'day(placed_at)'",
    "--after": "id",
    "--branch": "audit",
    "--catalog": "prod",
    "--changed": "skip",
    "--checkpoint": "shop/orders_checkpoint",
    "--comment": "'in euro'",
    "--config": "orders.toml",
    "--contract": "orders.json",
    "--create": "audit",
    "--dead-letter": "undelivered.jsonl",
    "--date-spellings": "any",
    "--default": "0",
    "--dialect": "mongodb",
    "--drop-source": "total",
    "--delete-when": "\"op = 'd'\"",
    "--drop": "audit",
    "--envelope": "debezium",
    "--epoch-unit": "placed_at=ms",
    "--events": "loads.jsonl",
    "--events-from": "conflict",
    "--every": "60",
    "--engine": "local",
    "--evolve": "split",
    "--exclude": "customer.ssn",
    "--include": "id",
    "--fail-on": "structural",
    "--fast-forward": "main",
    "--file": "loads.toml",
    "--format": "csv",
    "--format-version": "3",
    "--from": "3",
    "--history-columns": "status",
    "--history-except": "updated_at",
    "--html": "report.html",
    "--identifier": "shop.orders",
    "--into": "shop/orders",
    "--jobs": "4",
    "--keep": "all",
    "--keep-hours": "168",
    "--keep-last": "10",
    "--key": "id",
    "--keys": "'day=to_date(placed_at)'",
    "--lake": "s3://lake",
    "--layout-of": "shop/orders",
    "--limit": "10",
    "--mask": "customer.email",
    "--max-bytes": "1000000000",
    "--nanos": "truncate",
    "--integral-doubles": "convert",
    "--max-columns": "500",
    "--max-corrupt": "1%",
    "--max-files": "1000",
    "--max-keys": "50000",
    "--max-quarantined": "100",
    "--max-record-size": "256MB",
    "--missing": "keep",
    "--name": "orders_by_field",
    "--names": "exact",
    "--new-by": "content",
    "--order": "name",
    "--audit": "1d",
    "--queue": "sqs://landing",
    "--no-stats": "customer.name",
    "--numbers": "decimal",
    "--older-than": "90d",
    "--only": "orders",
    "--option": "sep=';'",
    "--partition-by": "'day(placed_at)'",
    "--pin": "total='decimal(18,4)'",
    "--plan-hash": "b39af82e…",
    "--quarantine": "shop/rejected",
    "--readers": "polars,duckdb",
    "--records": "'data.items[*]'",
    "--removed": "skip",
    "--rename": "gross_total",
    "--rest": "keep",
    "--retention-hours": "720",
    "--samples": "none",
    "--select": "customer.id",
    "--sequence-by": "updated_at",
    "--set": "delta.appendOnly=true",
    "--sort-by": "'id DESC'",
    "--source-catalog": "prod",
    "--sql": "'SELECT id, amount FROM source'",
    "--source": "gross",
    "--storage-option": "AWS_REGION=eu-west-1",
    "--tag": "day-1",
    "--target-bytes": "268435456",
    "--time-zone": "Europe/Berlin",
    "--timestamp": "'2026-11-24 12:00:00Z'",
    "--to": "iceberg",
    "--type": "bigint",
    "--unset": "delta.appendOnly",
    "--verify-share": "0.1",
    "--version": "3",
    "--where": "'total > 100'",
    "--zorder-by": "customer.id",
}
"""A value for each option that takes one. The page shows it where the option first occurs."""


def command_page() -> str:
    """Every command with its examples, and its arguments and options with their defaults."""
    lines = [
        "# Command line",
        "",
        "`widen COMMAND --help` shows the same. Options can come before or after the arguments; an option that *can be",
        "repeated* is given once for each value. Most commands take `--json`; see [JSON output](json.md).",
        "",
    ]
    group = typer.main.get_command(app)
    shown: set[str] = set()
    for name, command in group.commands.items():  # type: ignore[attr-defined]
        lines += [f"## widen {name}", "", _escape(command.help or ""), ""]
        lines += ["```text", *EXAMPLES.get(name, ()), "```", "", "| option | meaning | default |", "|---|---|---|"]
        lines += [f"| `{_spelling(each)}` | {_meaning(each, shown)} | {_default(each)} |" for each in command.params]
        lines.append("")
    return "\n".join(lines)


def _meaning(option: object, shown: set[str]) -> str:
    """The help of an option, and an example where it is the first of its name."""
    name, text = _name(option), re.sub(r" ?Default: [^.]+\.", "", getattr(option, "help", None) or "")
    example = OPTION_EXAMPLES.get(name)
    if example is None or name in shown or not takes_value(option):
        return _escape(text)
    shown.add(name)
    return f"{_escape(text)} Example: `{name} {example}`".replace("|", "\\|")


def _default(option: object) -> str:
    if getattr(option, "required", False):
        return "**required**"
    stated = re.search(r"Default: ([^.]+)\.", getattr(option, "help", None) or "")
    value = getattr(option, "default", None)
    if stated is not None:
        return f"`{stated[1]}`"
    if value is None or value is False or value == () or callable(value):
        return ""
    return "on" if value is True else f"`{getattr(value, 'value', value)}`"


def _name(option: object) -> str:
    return str(getattr(option, "opts", [""])[0])


def takes_value(option: object) -> bool:
    """Return whether it is an option that has a value, not a switch and not an argument."""
    return _name(option).startswith("--") and not getattr(option, "is_flag", False)


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
