"""With ``WIDEN_ENGINE=local`` no command and no public method starts Spark: it works, or says what needs Spark."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import pytest
from typer.main import get_command

import widen
from support.command_line import run
from widen.cli.app import app
from widen.errors import EngineUnsuitable
from widen.model.types import INTEGER
from widen.spark import engine, session
from widen.types import AddColumn, Field, StructType

WORKS = ""
FLOWS = "flows run on it"
SESSION = "it works on a session of Spark"
MAPPING = "delta.columnMapping.mode"
GENERATED = "it checks the expression of a generated column"
RETURNS = "it returns a DataFrame of Spark"
JOINS = "it writes the rows of a query, or joins rows"
QUERIES = "the query is more than a SELECT from one table"
ICEBERG = "--catalog c.db"

COMMANDS: Mapping[str, str] = {
    "ingest b.json --into T": WORKS,
    "ingest b.json --into K --key id --sequence-by v": WORKS,
    "ingest b.json --into T --evolve fail --quarantine q": WORKS,
    f"ingest b.json --into n.T {ICEBERG}": WORKS,
    "ingest data.orc --into new": "its readers read orc files",
    "ingest W --into new": "the source is a table",
    "ingest in --into T --follow --once --checkpoint cp": WORKS,
    "plan b.json --into T": WORKS,
    f"plan b.json --into n.T {ICEBERG}": WORKS,
    "flow W --into new --checkpoint cp --once": "flows run on it",
    "run load.toml": WORKS,
    "init in --file first.toml": WORKS,
    "plan load.toml": WORKS,
    "run flow.toml --dry-run": WORKS,
    "run flow.toml": "flows run on it",
    "show W": WORKS,
    f"show n.T {ICEBERG}": WORKS,
    "history W": WORKS,
    f"history n.T {ICEBERG}": WORKS,
    "contract W": WORKS,
    "diff W --from 0": WORKS,
    "loads W": WORKS,
    "readers W": WORKS,
    f"readers n.T {ICEBERG}": WORKS,
    "report W": WORKS,
    "report W --scan": "it counts values in all rows",
    f"report n.T {ICEBERG}": WORKS,
    f"report n.T {ICEBERG} --scan": "it counts values in all rows",
    "read W": WORKS,
    "read W --where 'v > 1.5' --select id --limit 1": WORKS,
    "read W --where 'hash(v) = 1'": "it evaluates HASH(v)",
    "read T --unified": WORKS,
    "read A --unified": "it combines the columns of a",
    f"read n.T {ICEBERG}": WORKS,
    f"read n.T {ICEBERG} --where 'hash(v) = 1'": "it evaluates HASH(v)",
    f"read n.T {ICEBERG} --row-lineage": "it reads row ids",
    "explain U8": WORKS,
    "alter W v --comment c": WORKS,
    "alter W v --not-null": WORKS,
    "alter W added --add --type int": WORKS,
    "alter D id --default 1": WORKS,
    "alter D id --default 'hash(1)'": "it evaluates HASH(1)",
    f"alter n.T v --comment c {ICEBERG}": WORKS,
    "properties W --set delta.checkpointInterval=5": WORKS,
    "properties M --set delta.columnMapping.mode=none": WORKS,
    "properties M --unset delta.columnMapping.mode": WORKS,
    f"properties n.T --set a=b {ICEBERG}": WORKS,
    "rewrite W": WORKS,
    "rewrite T": WORKS,
    f"rewrite n.W {ICEBERG}": WORKS,
    "optimize T": WORKS,
    "optimize T --dry-run": WORKS,
    "optimize T --zorder-by id --zorder-by v": WORKS,
    "optimize P --where 'p = 1'": WORKS,
    "optimize P --where 'hash(p) = 1'": "it evaluates HASH(p)",
    f"optimize n.T {ICEBERG}": WORKS,
    f"optimize n.sorted --sort {ICEBERG}": WORKS,
    "vacuum W": WORKS,
    f"vacuum n.T {ICEBERG}": WORKS,
    "forget K --key id=7": WORKS,
    "restore W --version 0": WORKS,
    f"branch n.T --create b {ICEBERG}": WORKS,
    f"layout n.T --sort-by id {ICEBERG}": WORKS,
    "drop-feature W typeWidening": WORKS,
    "drop-feature T typeWidening": WORKS,
    "drop-feature V deletionVectors": WORKS,
    "handover W --to deltalake": WORKS,
    "handover W --to deltalake --dry-run": WORKS,
    "handover V --to deltalake": WORKS,
    "handover M --to deltalake": WORKS,
    "mirror C --catalog mirror.db --identifier n.C": WORKS,
    "sql 'SELECT id FROM delta.`T` WHERE id > 1'": WORKS,
    "sql 'SELECT count(*), id FROM delta.`T` GROUP BY id'": QUERIES,
    "sql 'SELECT * FROM some_name'": "its catalog knows where the table is",
    "sql 'DESCRIBE some_name'": "its catalog knows where the table is",
    "sql 'DESCRIBE delta.`T`'": WORKS,
    "sql 'SHOW TBLPROPERTIES delta.`T`'": WORKS,
    "sql 'CREATE TABLE delta.`new` (id int)'": WORKS,
    "sql 'CREATE TABLE delta.`new` (id int DEFAULT 1)'": WORKS,
    "sql 'CREATE TABLE delta.`new` (id int, n int GENERATED ALWAYS AS (id + 1))'": GENERATED,
    "sql 'CREATE TABLE delta.`new` AS SELECT 1 AS id'": JOINS,
    "sql 'CREATE TABLE some_name (id int)'": "its catalog knows where the table is",
    "sql 'DELETE FROM delta.`T` WHERE id = 1'": WORKS,
    "sql 'DELETE FROM delta.`T` WHERE hash(id) = 1'": "it evaluates HASH(id)",
    "sql 'UPDATE delta.`T` SET v = id + 1'": WORKS,
    "sql 'UPDATE delta.`T` SET v = hash(id)'": "it evaluates HASH(id)",
    "sql 'INSERT INTO delta.`T` VALUES (3, 3, NULL)'": JOINS,
    "sql 'MERGE INTO delta.`T` t USING delta.`W` s ON t.id = s.id WHEN MATCHED THEN DELETE'": JOINS,
    "sql 'OPTIMIZE delta.`T`'": WORKS,
    "sql 'VACUUM delta.`T` DRY RUN'": WORKS,
    "sql 'RESTORE TABLE delta.`W` TO VERSION AS OF 0'": WORKS,
    "sql 'ALTER TABLE delta.`T` ADD COLUMNS (c int)'": WORKS,
    "sql 'ALTER TABLE delta.`T` ALTER COLUMN id SET NOT NULL'": WORKS,
    "sql 'ALTER TABLE delta.`T` ADD CONSTRAINT c CHECK (id > 0)'": WORKS,
    "sql 'ALTER TABLE delta.`T` ADD CONSTRAINT c CHECK (hash(id) > 0)'": "it evaluates HASH(id)",
    "sql 'ALTER TABLE delta.`N` ALTER COLUMN number SYNC IDENTITY'": WORKS,
    f"sql 'SELECT id FROM n.T' {ICEBERG}": WORKS,
    f"sql 'SELECT max(id) FROM n.T' {ICEBERG}": "it evaluates MAX(id)",
    f"sql 'DELETE FROM n.T WHERE id = 1' {ICEBERG}": WORKS,
    f"sql 'DELETE FROM n.T WHERE hash(id) = 1' {ICEBERG}": "it evaluates HASH(id)",
    f"sql 'UPDATE n.T SET v = id' {ICEBERG}": WORKS,
    f"sql 'INSERT INTO n.T VALUES (3, 3, NULL)' {ICEBERG}": JOINS,
    f"sql 'MERGE INTO n.T t USING n.W s ON t.id = s.id WHEN MATCHED THEN DELETE' {ICEBERG}": JOINS,
    f"sql 'ALTER TABLE n.T ADD COLUMNS (c int)' {ICEBERG}": WORKS,
    "view T": WORKS,
    f"view n.T {ICEBERG}": WORKS,
    "fold T v_string --rest lose": WORKS,
    "fold T v_string --dry-run": WORKS,
    f"fold n.T v_string --rest lose {ICEBERG}": WORKS,
    "replay Q --into R": WORKS,
}
"""Calls of every command, and why they need Spark. T has a second column, W a wider one, M mapped columns."""


class Call(NamedTuple):
    """A call of a method, and why it needs Spark.

    Args:
        on: The table: see `make_tables`.
    """

    method: str
    call: Callable[[Any], Any]
    need: str = WORKS
    on: str = "T"


BOTH = (
    Call("acknowledge", lambda table: table.acknowledge("tags")),
    Call("add_columns", lambda table: table.add_columns({"c": "int"})),
    Call("alter_column", lambda table: table.alter_column("id", comment="c")),
    Call("change_columns", lambda table: table.change_columns([AddColumn((), Field("c", INTEGER))])),
    Call("contract", lambda table: table.contract()),
    Call("delete", lambda table: table.delete("id = 1")),
    Call("delete", lambda table: table.delete("hash(id) = 1"), "it evaluates HASH(id)"),
    Call("diff", lambda table: table.diff(first_version(table))),
    Call("drop_columns", lambda table: table.drop_columns("nothing", if_exists=True)),
    Call("files", lambda table: table.files()),
    Call("fold", lambda table: table.fold("v_string", rest="lose")),
    Call("forget", lambda table: table.forget([{"id": 7}]), on="K"),
    Call("history", lambda table: table.history()),
    Call("loads", lambda table: table.loads()),
    Call("readers", lambda table: table.readers()),
    Call("plan_columns", lambda table: table.plan_columns([AddColumn((), Field("c", INTEGER))])),
    Call("plan_fold", lambda table: table.plan_fold("v_string")),
    Call("read", lambda table: table.read(), RETURNS),
    Call("refresh", lambda table: table.refresh()),
    Call("rename_column", lambda table: table.rename_column("id", "number"), on="M"),
    Call("restore", lambda table: table.restore(first_version(table))),
    Call("rewrite", lambda table: table.rewrite()),
    Call("set_properties", lambda table: table.set_properties({"a": "b"})),
    Call("unset_properties", lambda table: table.set_properties({"a": "b"}).unset_properties(["a"])),
    Call("update", lambda table: table.update({"v": "id"}, "id = 1")),
    Call("update", lambda table: table.update({"v": "hash(id)"}), "it evaluates HASH(id)"),
    Call("vacuum", lambda table: table.vacuum()),
    Call("view_sql", lambda table: table.view_sql("orders")),
)
"""Methods of tables of either format."""

DELTA = (
    *BOTH,
    Call("add_constraint", lambda table: table.add_constraint("c", "id > 0")),
    Call("add_constraint", lambda table: table.add_constraint("c", "hash(id) > 0"), "it evaluates HASH(id)"),
    Call("add_feature", lambda table: table.add_feature("deletionVectors")),
    Call("alter_column", lambda table: table.alter_column("id", nullable=False)),
    Call("alter_columns", lambda table: table.alter_columns({"id": {"nullable": False}})),
    Call("changes", lambda table: table.changes(0), RETURNS),
    Call("cluster_by", lambda table: table.cluster_by("id")),
    Call("drop_constraint", lambda table: table.drop_constraint("c", if_exists=True)),
    Call("drop_feature", lambda table: table.drop_feature("typeWidening")),
    Call("drop_feature", lambda table: table.drop_feature("typeWidening"), on="W"),
    Call("drop_feature", lambda table: table.drop_feature("columnMapping"), on="M"),
    Call("drop_feature", lambda table: table.drop_feature("deletionVectors"), on="V"),
    Call("mirror", lambda table: table.mirror(catalog="mirror.db", identifier="n.C"), on="C"),
    Call("old_types", lambda table: table.old_types(), on="W"),
    Call("optimize", lambda table: table.optimize()),
    Call("optimize", lambda table: table.optimize(zorder_by=["id"])),
    Call("replace_columns", lambda table: table.replace_columns("id int, v int, c int"), on="V"),
    Call("rewrite", lambda table: table.rewrite(), on="W"),
    Call("rewrite", lambda table: table.rewrite(clear_history=True), on="W"),
    Call("set_properties", lambda table: table.set_properties({MAPPING: "none"}), on="M"),
    Call("sync_identity", lambda table: table.sync_identity("number"), on="N"),
    Call("to_arrow", lambda table: table.to_arrow()),
    Call("to_arrow", lambda table: table.to_arrow("hash(id) = 1"), "it evaluates HASH(id)"),
    Call("to_pandas", lambda table: table.to_pandas()),
    Call("to_pandas", lambda table: table.to_pandas("hash(id) = 1"), "it evaluates HASH(id)"),
    Call("to_polars", lambda table: table.to_polars()),
    Call("to_polars", lambda table: table.to_polars("hash(id) = 1"), "it evaluates HASH(id)"),
    Call("unset_properties", lambda table: table.unset_properties([MAPPING]), on="M"),
)

ICEBERG_TABLES = (
    *BOTH,
    Call("change_partitioning", lambda table: table.change_partitioning(add=["id"])),
    Call("create_branch", lambda table: table.create_branch("two")),
    Call("create_tag", lambda table: table.create_tag("two")),
    Call("drop_branch", lambda table: table.drop_branch("one")),
    Call("drop_tag", lambda table: table.drop_tag("first")),
    Call("fast_forward", lambda table: table.fast_forward("one", "main")),
    Call("optimize", lambda table: table.optimize()),
    Call("optimize", lambda table: table.optimize(sort=True), on="sorted"),
    Call("optimize", lambda table: table.optimize(zorder_by=["id"])),
    Call("schema_at", lambda table: table.schema_at(first_version(table))),
    Call("set_sort_order", lambda table: table.set_sort_order("id")),
    Call("to_arrow", lambda table: table.to_arrow()),
    Call("to_arrow", lambda table: table.to_arrow("hash(id) = 1"), "it evaluates HASH(id)"),
    Call("to_pandas", lambda table: table.to_pandas("id = 1")),
    Call("to_polars", lambda table: table.to_polars("id = 1")),
)

FUNCTIONS: Mapping[str, tuple[Callable[[], Any], str]] = {
    "check_contract": (lambda: widen.check_contract("b.json", widen.Table("T").contract()), WORKS),
    "create_table": (lambda: widen.create_table("new", "id int"), WORKS),
    "flow": (lambda: widen.flow("W", "new", checkpoint="cp", once=True), FLOWS),
    "flow_chain": (lambda: widen.flow_chain("chain.toml", once=True), FLOWS),
    "ingest": (lambda: widen.ingest("b.json", "T"), WORKS),
    "ingest_stream": (lambda: widen.ingest_stream("in", "T", checkpoint="cp", once=True).wait(), WORKS),
    "plan": (lambda: widen.plan("b.json", "T"), WORKS),
    "register": (lambda: widen.register(), SESSION),
    "replay": (lambda: widen.replay("Q", "R"), WORKS),
    "run": (lambda: widen.run("load.toml"), WORKS),
    "plan_run": (lambda: widen.plan_run("load.toml"), WORKS),
    "ship": (lambda: widen.ship(), SESSION),
    "sql": (lambda: widen.sql("SELECT 1"), QUERIES),
}


def first_version(table: Any) -> int:
    return int(table.history()[-1].version)


def make_tables() -> None:
    """Make tables in the current folder, those of Iceberg in the catalog c.db.

    T has a second column, W one that was widened, M mapped columns, V a deletion vector, N an identity column, K rows
    by key, P partitions, and A two columns of arrays. D may have defaults, C can be mirrored, sorted is an Iceberg
    table with a sort order, and Q is the quarantine of R.
    """
    lines = {"a": '{"id": 1, "v": 1}', "b": '{"id": 2, "v": 2}', "t": '{"id": 2, "v": "a"}', "w": '{"id": 2, "v": 0.5}'}
    Path("in").mkdir()
    lines["p"] = '{"id": 1, "p": 1}'
    arrays = {"ints": '{"a": [1]}', "texts": '{"a": ["x"]}'}
    for name, line in {**lines, **arrays, "in/c": lines["b"], "null": '{"id": null}'}.items():
        Path(f"{name}.json").write_text(line + "\n")
    Path("data.orc").write_bytes(b"ORC")
    Path("load.toml").write_text('[[load]]\nsource = "b.json"\ninto = "T"\n')
    Path("flow.toml").write_text('[[flow]]\nsource = "W"\ninto = "new"\ncheckpoint = "cp"\n')
    Path("chain.toml").write_text('[[step]]\nsource = "W"\ninto = "new"\ncheckpoint = "cp"\n')
    local: dict[str, Any] = {"engine": "local"}
    iceberg: dict[str, Any] = {**local, "catalog": "c.db"}
    widen.create_table("M", "id int, v int", properties={MAPPING: "name"})
    vectors = {"delta.enableDeletionVectors": "true", "delta.enableTypeWidening": "true"}
    widen.create_table("V", "id int, v int", properties=vectors)
    widen.create_table("P", "id int, p int", partition_by=["p"])
    widen.create_table("D", "id int", properties={"delta.feature.allowColumnDefaults": "supported"})
    widen.create_table("C", "id int", properties={"delta.enableIcebergCompatV2": "true", MAPPING: "name"})
    for name, sources in {"T": "at", "W": "aw", "M": "a", "P": "pp"}.items():
        for source in sources:
            widen.ingest(f"{source}.json", name, **local)
    widen.ingest(["a.json", "b.json"], "V", **local)
    widen.Table("V").delete("id = 1")
    for source in arrays:
        widen.ingest(f"{source}.json", "A", **local)
    widen.create_table("R", StructType((Field("id", INTEGER, nullable=False),)))
    widen.ingest("null.json", "R", quarantine="Q", **local)
    for name, sources in {"T": "at", "W": "aw", "M": "a", "sorted": "a"}.items():
        for source in sources:
            widen.ingest(f"{source}.json", f"n.{name}", **iceberg)
    widen.IcebergTable("n.sorted", catalog="c.db").set_sort_order("id")
    widen.IcebergTable("n.T", catalog="c.db").create_branch("one").create_tag("first")
    widen.sql(f"CREATE TABLE delta.`{os.getcwd()}/N` (number bigint GENERATED ALWAYS AS IDENTITY, id int)")
    for into, more in (("K", local), ("n.K", iceberg)):
        widen.ingest("a.json", into, key=["id"], sequence_by="v", **more)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables; the catalog has absolute paths, so tests change them there and get them anew."""
    place = tmp_path_factory.mktemp("kept")
    with pytest.MonkeyPatch.context() as patch:
        (place / "now").mkdir()
        patch.chdir(place / "now")
        patch.setattr(session, "find_active", lambda: None)
        patch.setattr(engine, "find_active", lambda: None)
        make_tables()
    (place / "now").rename(place / "kept")
    return place


@pytest.fixture
def folder(kept: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The tables, and an environment in which no Java may start."""
    place = kept / "now"
    shutil.copytree(kept / "kept", place)
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(java.parent), prepend=os.pathsep)
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    for name in ("MASTER", "SPARK_REMOTE"):  # these do not win over it
        monkeypatch.setenv(name, "local[1]")
    starts: list[int] = []
    for module in (session, engine):  # tests before these may have a session
        monkeypatch.setattr(module, "find_active", lambda: None)

    def start() -> NoReturn:
        starts.append(1)
        raise AssertionError("Spark starts")

    monkeypatch.setattr(session, "_start_session", start)
    monkeypatch.chdir(place)
    yield place
    place.rename(tmp_path / "used")
    assert not starts
    assert not (tmp_path / "started").exists()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("call", COMMANDS)
def test_command(call: str, folder: Path) -> None:
    before = contents(folder)
    done = run(*shlex.split(call.replace("delta.`", f"delta.`{folder}/")))
    assert done.exit_code == (1 if COMMANDS[call] else 0), done.stderr
    if COMMANDS[call]:
        assert f"This call needs Spark, because {COMMANDS[call]}" in done.stderr
        assert "WIDEN_ENGINE_UNSUITABLE" in done.stderr
        assert contents(folder) == before


OPTIONS = {call.split()[0]: call for call, need in COMMANDS.items() if need}
"""One call of each command that may need Spark."""


@pytest.mark.parametrize("call", OPTIONS.values(), ids=OPTIONS)
def test_the_option_says_the_same(call: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "spark")
    done = run(*shlex.split(call.replace("delta.`", f"delta.`{folder}/")), "--engine", "local")
    assert f"This call needs Spark, because {COMMANDS[call]}" in done.stderr


def check(call: Callable[[], Any], need: str, folder: Path) -> None:
    before = contents(folder)
    if not need:
        call()
        return
    with pytest.raises(EngineUnsuitable, match=re.escape(f"This call needs Spark, because {need}")):
        call()
    assert contents(folder) == before


def names(calls: Sequence[Call]) -> list[str]:
    return [f"{number}-{call.method}" for number, call in enumerate(calls)]


@pytest.mark.parametrize("call", DELTA, ids=names(DELTA))
def test_method_of_delta_table(call: Call, folder: Path) -> None:
    if call.method == "to_polars":
        pytest.importorskip("polars")
    check(lambda: call.call(widen.Table(call.on)), call.need, folder)


@pytest.mark.parametrize("call", ICEBERG_TABLES, ids=names(ICEBERG_TABLES))
def test_method_of_iceberg_table(call: Call, folder: Path) -> None:
    check(lambda: call.call(widen.IcebergTable(f"n.{call.on}", catalog="c.db")), call.need, folder)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_function(name: str, folder: Path) -> None:
    check(*FUNCTIONS[name], folder)


def test_every_command_and_every_method_is_asked() -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    assert {call.split()[0] for call in COMMANDS} == set(commands)
    takes_engine = {name for name, command in commands.items() if any(each.name == "engine" for each in command.params)}
    assert {call.split()[0] for call, need in COMMANDS.items() if need} <= takes_engine
    assert set(FUNCTIONS) == {name for name in widen.__all__ if inspect.isfunction(getattr(widen, name))}
    for owner, calls in ((widen.Table, DELTA), (widen.IcebergTable, ICEBERG_TABLES)):
        methods = {
            name
            for name, method in inspect.getmembers(owner, inspect.isfunction)
            if not name.startswith("_") and not takes_frame(method)
        }
        assert {call.method for call in calls} == methods


def takes_frame(method: Callable[..., Any]) -> bool:
    """Return whether a method takes a frame, whose session it works in."""
    return "DataFrame" in [each.annotation for each in inspect.signature(method).parameters.values()]
