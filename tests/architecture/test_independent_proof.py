"""The proof shares no code with what it proves: neither in Python nor in Rust."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROOF = sorted((ROOT / "src/widen/proof").glob("*.py"))
KERNEL, NATIVE_PROOF = (ROOT / folder for folder in ("kernel/src", "kernel/proof/src"))

RUN = sorted((ROOT / "src/widen/verification").glob("*.py"))
"""What runs the proof over files, with Spark or without."""

MAKERS = (
    *("widen.json", "widen.rows", "widen.batches", "widen.changes"),
    *("widen.ingestion", "widen.targets", "widen.table", "widen.data_source"),
)
"""The packages that read records, make rows, and decide what becomes of a key."""

WRITERS = (*MAKERS, "widen.spark", "widen.sources", "widen.files", "widen.frames")
"""These, and the ones that read and write files."""

DECLARATIONS = {
    "widen.json.envelope": {
        *("Envelope", "EventForm", "UNSAID"),
        *("OTHER_POSITION", "POSITION", "POSITIONS", "PREFIX", "SNAPSHOT", "SORTED_TEXTS", "UNCHANGED"),
    },
    "widen.json.change_streams": {"SPANNER_NAMES", "SPANNER_OTHERS"},
    "widen.json.field_rules": {"IS_CURRENT", "VALID_FROM", "VALID_TO", "VERSION_FIELDS"},
    "widen.json.document": {"BOM"},
    "widen.json.record_path": {"RecordPath"},
    "widen.json.dialect": {"Dialect"},
    "widen.json.time_spellings": {"ISO", "TimeSpelling"},
}
"""What both sides are told by the policy: values and names, and no function."""

SHARED_CRATES = {"arrow-array", "arrow-pyarrow", "arrow-schema", "pyo3"}
"""What both crates may use: Arrow's arrays, and the way to Python. No parser, no numbers, no times."""


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            if names <= DECLARATIONS.get(node.module or "", set()):
                continue
            found.add(node.module or "")
    return found


def crates_of(manifest: Path) -> set[str]:
    """Return the crates that a crate depends on; Rust lets it use no others."""
    section = manifest.read_text(encoding="utf-8").partition("[dependencies]")[2].partition("\n[")[0]
    return set(re.findall(r"^([a-z0-9_-]+) = ", section, re.MULTILINE))


def shared_with(packages: Sequence[str], *paths: Path) -> list[tuple[str, str]]:
    """Return which module imports what of some packages."""
    assert len(paths) > 5
    return [(path.stem, name) for path in paths for name in imports_of(path) if name.startswith(tuple(packages))]


def test_no_module_of_the_proof_imports_what_makes_rows() -> None:
    assert shared_with(WRITERS, *PROOF) == []


def test_what_runs_the_proof_imports_nothing_that_makes_rows() -> None:
    assert shared_with(MAKERS, *RUN) == []


DECIDERS = (
    *(
        "widen.evolution.column_choice",
        "widen.evolution.type_lattice",
        "widen.evolution.evolve",
        "widen.evolution.plan",
    ),
    *("widen.files.conversions", "widen.files.row_rules", "widen.files.data_writer", "widen.files.iceberg_writer"),
    *("widen.files.predicates", "widen.files.row_tests", "widen.streams"),
)
"""The modules of shared packages that choose columns, convert values, check rows or write them."""


def test_the_proof_chooses_converts_and_checks_itself() -> None:
    """Also where a module imports inside of a function: the whole tree is searched."""
    assert shared_with(DECIDERS, *PROOF, *RUN) == []


def test_the_modules_that_the_proof_must_not_import_exist() -> None:
    """A name of a module that has moved would guard nothing."""
    root = ROOT / "src"
    missing = [
        name
        for name in (*WRITERS, *DECIDERS)
        if not (root / name.replace(".", "/")).is_dir() and not (root / f"{name.replace('.', '/')}.py").is_file()
    ]
    assert missing == []


KEYS = {"KeyRules"}
"""What the proof takes from the rules of keys: what the user has said, and no function that finds columns."""


def test_the_proof_finds_the_columns_of_keys_itself() -> None:
    for path in (*PROOF, *RUN):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "widen.evolution.key_rules":
                assert {alias.name for alias in node.names} <= KEYS, path


EVALUATORS = (
    "sqlglot",
    "widen.files.predicates",
    "widen.files.row_tests",
    "widen.files.expressions",
    "widen.protocol.data_skipping",
)
"""What parses conditions and evaluates them for the writer."""


def test_the_proof_evaluates_conditions_itself() -> None:
    assert shared_with(EVALUATORS, *PROOF, *RUN) == []
    calls = re.compile(r"\b(?:parse_expression|bind_condition|plan_test)\(")
    assert [path for path in (*PROOF, *RUN) if calls.search(path.read_text(encoding="utf-8"))] == []


def test_the_writer_imports_of_the_proof_only_what_runs_it() -> None:
    """What reads records and makes rows does not use the readers of the proof."""
    for package in ("json", "rows"):
        for path in (ROOT / "src/widen" / package).glob("*.py"):
            assert not {name for name in imports_of(path) if name.startswith("widen.proof")}, path


def test_the_native_crates_share_nothing_but_arrow_and_the_way_to_python() -> None:
    kernel, proof = (crates_of(folder.parent / "Cargo.toml") for folder in (KERNEL, NATIVE_PROOF))
    assert kernel & proof <= SHARED_CRATES
    assert proof - kernel == {"blake2b_simd"}
    assert "widen-proof" in kernel, "the module for Python adds that of the proof"
    naming = {path.name for path in KERNEL.glob("*.rs") if "widen_proof" in path.read_text(encoding="utf-8")}
    assert naming == {"python.rs"}


def test_no_file_is_in_both_crates() -> None:
    texts = {
        path: path.read_text(encoding="utf-8") for folder in (KERNEL, NATIVE_PROOF) for path in folder.glob("*.rs")
    }
    assert len(texts) > 10
    assert not any("#[path" in text or "include!" in text for text in texts.values())
    assert len(set(texts.values())) == len(texts)
