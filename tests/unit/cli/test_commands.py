"""The commands that need no Spark, on a log written by hand: output, JSON, errors and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from support.command_line import run
from support.drift_log import write_drift

ENTRY = [sys.executable, "-c", "from widen.cli import main; main()"]


@pytest.fixture
def table(tmp_path: Path) -> str:
    return str(write_drift(tmp_path / "orders"))


def process(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*ENTRY, *words], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


def test_show(table: str) -> None:
    done = run("show", table)
    assert done.exit_code == 0
    assert "int → double" in done.stdout
    value = json.loads(run("show", table, "--json").stdout)
    assert (value["version"], value["files"], value["bytes"]) == (2, 2, 4000)
    assert value["columns"][0]["typeHistory"] == [{"path": "", "from": "int", "to": "double"}]
    assert value["columns"][2]["evolvedFrom"] == "tags"
    assert "delta.typeChanges" not in json.dumps(value["schema"])


def test_show_of_an_older_version(table: str) -> None:
    value = json.loads(run("show", table, "--version", "0", "--json").stdout)
    assert [column["column"] for column in value["columns"]] == ["total", "tags"]


def test_history(table: str) -> None:
    assert "widened total from int to double" in run("history", table).stdout
    value = json.loads(run("history", table, "--limit", "2", "--json").stdout)
    assert [(entry["version"], entry["operation"]) for entry in value] == [(2, "CHANGE COLUMN"), (1, "WRITE")]


def test_report_in_every_form(table: str, tmp_path: Path) -> None:
    assert "30 rows" in run("report", table).stdout
    assert json.loads(run("report", table, "--json").stdout)["rows"] == 30
    done = run("report", table, "--html", str(tmp_path / "report.html"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_properties_and_describe_history(table: str) -> None:
    assert json.loads(run("properties", table, "--json").stdout) == {"delta.enableTypeWidening": "true"}
    value = json.loads(run("sql", f"DESCRIBE HISTORY delta.`{table}` LIMIT 1", "--json").stdout)
    assert [entry["version"] for entry in value] == [2]


def test_statements_that_ask_are_answered(table: str) -> None:
    name = f"delta.`{table}`"
    head, _, first, *_ = run("sql", f"DESCRIBE {name}").stdout.splitlines()
    assert (head.split(), first.split()) == (["col_name", "data_type", "comment"], ["total", "double", "·"])
    assert "tableFeatures" in run("sql", f"DESCRIBE DETAIL {name}").stdout
    detail = json.loads(run("sql", f"DESCRIBE DETAIL {name}", "--json").stdout)[0]
    assert (detail["location"], detail["numFiles"], detail["sizeInBytes"]) == (table, 2, 4000)
    key = json.loads(run("sql", f"SHOW TBLPROPERTIES {name} ('Delta.x')", "--json").stdout)[0]["key"]
    assert key == "Delta.x"


def test_a_statement_makes_a_table(tmp_path: Path) -> None:
    create = f"CREATE TABLE IF NOT EXISTS delta.`{tmp_path}/t` (id int) USING delta"
    assert "created the table with 1 column" in run("sql", create).stdout
    assert json.loads(run("sql", create, "--json").stdout) == {"version": 0, "changed": False, "changes": []}


def test_a_statement_that_is_none_is_shown_with_a_caret() -> None:
    done = run("sql", "ALTER TABLE delta.`t`\n  DROP COLUM x")
    assert done.exit_code == 1
    assert done.stderr.splitlines() == [
        "error: The statement cannot be parsed at line 2, column 8:",
        "    DROP COLUM x",
        "         ^",
        "expected BRANCH, COLUMN, COLUMNS, CONSTRAINT, FEATURE, PARTITION or TAG, not 'COLUM'.",
        "hint: The nearest form is:",
        "  ALTER TABLE table DROP (COLUMN | COLUMNS) [IF EXISTS] (column, ... | ( column, ... ))",
        "WIDEN_INVALID_STATEMENT",
    ]


def test_a_name_needs_spark_and_spark_needs_java() -> None:
    done = process("sql", "DESCRIBE orders", JAVA_HOME="/nonexistent")
    assert done.returncode == 1
    assert "WIDEN_SPARK_MISSING" in done.stderr
    assert "Traceback" not in done.stderr


def test_what_is_changed_is_told(table: str) -> None:
    done = run("alter", table, "total", "--comment", "in euro", "--json")
    told = {"change": "changed", "column": "total", "grade": "additive", "reasons": []}
    change = {**told, "from": "no comment", "to": "comment 'in euro'"}
    assert json.loads(done.stdout) == {"version": 3, "changed": True, "changes": [change]}
    added = run("sql", f"ALTER TABLE delta.`{table}` ADD COLUMN note string")
    assert "added note string" in added.stdout
    again = run("alter", table, "total", "--comment", "in euro")
    assert "Nothing to change" in again.stdout
    set_one = run("properties", table, "--set", "owner=shop")
    assert "set owner = shop" in set_one.stdout
    assert "unset owner" in run("properties", table, "--unset", "owner").stdout
    assert json.loads(run("history", table, "--json").stdout)[0]["version"] == 6


def test_every_kind_of_change_of_a_column(table: str) -> None:
    assert "removed tags" not in run("alter", table, "tags", "--drop", "--dry-run").stdout
    run("properties", table, "--set", "delta.columnMapping.mode=name")
    for words, said in [
        (("note", "--add", "--type", "string", "--comment", "why", "--first"), "added note string"),
        (("note", "--rename", "re`mark"), "renamed note to `re``mark`"),
        (("`re``mark`", "--after", "tags"), "moved `re``mark` AFTER tags"),
        (("`re``mark`", "--nullable"), "Nothing to change"),
        (("`re``mark`", "--drop"), "removed `re``mark`"),
    ]:
        done = run("alter", table, *words)
        assert (done.exit_code, said in done.stdout) == (0, True), done.output
    assert "[WIDEN" not in run("history", table).stdout


def test_a_dry_run_shows_the_plan_and_changes_nothing(table: str) -> None:
    words = ("alter", table, "total", "--comment", "a\tb", "--first", "--dry-run")
    assert run(*words).stdout == "would comment on total: 'a\\tb'\n"
    value = json.loads(run(*words, "--json").stdout)
    assert value == {
        "version": 2,
        "changed": False,
        "operations": [{"operation": "SetComment", "path": ["total"], "comment": "a\tb"}],
    }
    assert "Nothing to change" in run("alter", table, "total", "--type", "double", "--dry-run").stdout
    refused = run("alter", table, "total", "--type", "int", "--dry-run")
    assert (refused.exit_code, "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP" in refused.stderr) == (1, True)
    assert json.loads(run("history", table, "--json").stdout)[0]["version"] == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "{tmp}/nothing"), "DELTA_TABLE_NOT_FOUND"),
        (("show", "{table}", "--version", "9"), "DELTA_VERSION_NOT_FOUND"),
        (("alter", "{table}", "total", "--type", "int"), "DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP"),
        (("alter", "{table}", "nothing", "--type", "int"), "DELTA_COLUMN_NOT_FOUND_IN_SCHEMA"),
        (("sql", "SELEC 1"), "WIDEN_INVALID_STATEMENT"),
        (("properties", "{table}", "--unset", "nothing"), "WIDEN_INVALID_OPTION"),
        (("report", "{table}", "--html", "{tmp}/no/folder.html"), "WIDEN_STORAGE"),
        (("show",), "Missing argument"),
        (("show", "{table}", "--nothing"), "No such option"),
        (("history", "{table}", "--limit", "0"), "Invalid value for '--limit'"),
        (("alter", "{table}", "total"), "No change given"),
        (("alter", "{table}", "total", "--drop", "--rename", "x"), "need a commit each"),
        (("alter", "{table}", "total", "--rename", "x"), "DELTA_UNSUPPORTED_RENAME_COLUMN"),
        (("alter", "{table}", "total", "--add", "--type", "int"), "FIELD_ALREADY_EXISTS"),
        (("alter", "{table}", "new", "--add"), "A new column needs a type"),
        (("properties", "{table}", "--set", "nothing"), "KEY=VALUE"),
        (("ingest", "x", "--into", "y", "--evolve", "melt"), "'melt' is not one of"),
    ],
)
def test_errors_go_to_stderr_and_end_with_1(table: str, tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run(*(word.format(table=table, tmp=tmp_path) for word in words))
    assert done.exit_code == 1
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_no_word_at_all_asks_for_help() -> None:
    done = process()
    assert (done.returncode, "Usage: widen" in done.stdout, done.stderr) == (1, True, "")


def test_debugging_shows_the_traceback(tmp_path: Path) -> None:
    quiet, loud = (process("show", str(tmp_path), WIDEN_DEBUG=value) for value in ("", "1"))
    assert (quiet.returncode, loud.returncode) == (1, 1)
    assert "Traceback" not in quiet.stderr
    assert "Traceback" in loud.stderr


def test_a_reader_that_goes_away_is_nobodys_error(table: str) -> None:
    with subprocess.Popen([*ENTRY, "show", table], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert running.stdout is not None
        running.stdout.close()
        assert running.stderr is not None
        assert running.stderr.read() == b""
    assert running.returncode == 141


@pytest.mark.parametrize("words", [("--help",), ("show", "{table}"), ("history", "{table}"), ("report", "{table}")])
def test_looking_needs_no_spark(table: str, words: tuple[str, ...]) -> None:
    without = (
        "import sys; sys.modules['pyspark'] = sys.modules['py4j'] = None; sys.argv[1:] = %r; "
        "from widen.cli import main; main()"
    )
    code = without % ([word.format(table=table) for word in words],)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_spark_the_error_says_how_to_get_it(table: str) -> None:
    code = (
        "import sys; sys.modules['pyspark'] = None; sys.argv[1:] = ['read', %r, '--unified']; "
        "from widen.cli import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code % table], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'widen[spark]'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "words", [("--new",), ("--plan-hash", "abc"), ("--new", "--park-over-limit"), ("--new-by", "content")]
)
def test_a_condition_of_one_batch_does_not_apply_to_a_stream(words: tuple[str, ...]) -> None:
    done = run("ingest", "in", "--into", "t", "--once", *words)
    assert (done.exit_code, "cannot be used together with --follow or --once." in done.stderr) == (1, True)


def test_a_stream_without_such_conditions_asks_for_its_checkpoint() -> None:
    done = run("ingest", "in", "--into", "t", "--once")
    assert (done.exit_code, "--checkpoint" in done.stderr) == (1, True)
