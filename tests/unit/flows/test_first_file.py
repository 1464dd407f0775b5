"""`widen init`: a first file of loads from a folder, and `--quiet`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from support.command_line import run
from widen.errors import SourceError
from widen.flows.first_file import draft_pipelines
from widen.flows.pipelines import read_pipelines


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    for name, text in {
        "orders/2024/1.json": '{"id": 1, "at": "2024-01-29"}',
        "mixed/a.csv": "a,b\n1,2",
        "mixed/b.json": '{"x": 1}',
        "mixed/c.json": '{"x": 1}',
        "cdc/1.json": '{"op": "c", "before": null, "after": {"id": 1}}',
        "iot-2024-01.json.gz": "",
        "iot-2024-02.json": '{"v": 1}',
        "iot-2024-03.json": '{"v": 1.5}',
        "iotx.json": '{"w": 1}',
        "_hidden/1.json": "{}",
        "readme.txt": "",
        'a ${HOME} "b".json': '{"q": 1}',
    }.items():
        path = tmp_path / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "landing/days").mkdir()
    pq.write_table(pa.table({"uuid": ["x"], "n": pa.array([1], pa.int64())}), tmp_path / "landing/days/1.parquet")
    return tmp_path / "landing"


def test_each_folder_and_each_series_gets_a_load(landing: Path, tmp_path: Path) -> None:
    text = draft_pipelines(landing, str(tmp_path / "lake"))
    (tmp_path / "p.toml").write_text(text)
    steps = {step.name: step for step in read_pipelines(tmp_path / "p.toml")}
    assert {name: step.source[0].removeprefix(f"{landing}/") for name, step in steps.items()} == {
        "a_home_b": 'a $\\{HOME\\} "b".json',
        "cdc": "cdc/",
        "days": "days/",
        "iot": "iot-*.json",
        "iot_json_gz": "iot-*.json.gz",
        "iotx": "iotx.json",
        "mixed": "mixed/",
        "orders": "orders/",
    }
    assert steps["mixed"].arguments == {"new": True, "format": "json"}
    assert "# 1.json: at string, id int\n" in text
    assert "# 1.parquet: n bigint, uuid string\n" in text
    assert '# key = ["id"]' in text
    assert '# key = ["uuid"]' in text
    assert '# envelope = "debezium"' in text
    assert "the folder also has 1 of csv" in text


def test_the_file_runs(landing: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (landing / 'a ${HOME} "b".json').unlink()
    (landing / "iot-2024-01.json.gz").unlink()
    done = run("init", "landing")
    assert done.exit_code == 0
    assert done.stdout == (tmp_path / "pipelines.toml").read_text()
    assert "next: widen plan pipelines.toml" in done.stderr
    assert run("init", "landing").exit_code == 1
    quiet = run("run", "pipelines.toml", "--quiet")
    assert (quiet.exit_code, quiet.stdout, quiet.stderr) == (0, "", "")
    assert widen.Table("lake/iot").to_arrow().num_rows == 2
    assert run("plan", "pipelines.toml").exit_code == 0


def test_quiet_leaves_warnings_and_json(landing: Path, tmp_path: Path) -> None:
    into = str(tmp_path / "t")
    words = ["ingest", str(landing / "iot-2024-02.json"), "--into", into, "--quiet"]
    assert (run(*words).stdout, run(*words, "--json").stdout[:1]) == ("", "{")
    again = run(*words)
    assert again.stdout == ""
    assert "loaded again" in again.stderr
    assert run("plan", str(landing / "iotx.json"), "--into", into, "--quiet").exit_code == 2
    assert run(*words[:-1]).stdout


def test_a_folder_without_files_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="no file in it has a known ending"):
        draft_pipelines(tmp_path)
    with pytest.raises(SourceError, match="not a local folder"):
        draft_pipelines(tmp_path / "none")
