from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark import cloudpickle

from widen.errors import InvalidOption
from widen.model import native_kernel
from widen.spark import ship

BATCH = pa.RecordBatch.from_pydict({"id": [1]})


def test_the_archive_is_the_package(tmp_path: Path) -> None:
    archive = ship._zip_package(tmp_path / "widen.zip")
    names = zipfile.ZipFile(archive).namelist()
    assert {"widen/__init__.py", "widen/batches/text_tasks.py", "widen/report/evolution_rules.json"} <= set(names)
    assert [name for name in names if "__pycache__" in name] == []
    code = "import sys, widen.log.log_store as module; print(module.__file__.startswith(sys.argv[1]))"
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {code}", str(archive)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "True\n"


def test_the_probe_says_what_cannot_be_imported() -> None:
    (found,) = ship._probe(["pyarrow", "surely_missing"], [BATCH, BATCH])
    assert found.to_pylist() == [
        {"python": f"{sys.version_info[0]}.{sys.version_info[1]}", "missing": "surely_missing"}
    ]


def test_an_executor_may_lack_the_kernel_but_no_other_package() -> None:
    (found,) = ship._probe(["pyarrow", "surely_missing", "no_kernel"], [BATCH])
    missing = found.to_pylist()[0]["missing"]
    assert ship._split_missing(["", missing], ["no_kernel"]) == (["surely_missing"], ["no_kernel"])
    assert ship._split_missing(["", "no_kernel"], ["no_kernel"]) == ([], ["no_kernel"])
    assert ship._split_missing([""], ["no_kernel"]) == ([], [])


def test_the_probe_asks_what_finds_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    for kernel, missing in ((object(), ""), (None, ship.KERNEL)):
        monkeypatch.setattr(native_kernel, "find_kernel", lambda kernel=kernel: kernel)
        (found,) = ship._probe([ship.KERNEL], [BATCH])
        assert found.to_pylist()[0]["missing"] == missing


def test_executors_without_the_package_can_run_the_probe(tmp_path: Path) -> None:
    sent = tmp_path / "probe"
    sent.write_bytes(cloudpickle.dumps(ship._probe))
    code = (
        "import sys, pickle, pyarrow as pa; sys.modules['widen'] = None; "
        "probe = pickle.load(open(sys.argv[1], 'rb')); batch = pa.RecordBatch.from_pydict({'id': [1]}); "
        "print([part.to_pylist()[0]['missing'] for part in probe(['pyarrow', 'widen'], [batch])])"
    )
    done = subprocess.run([sys.executable, "-c", code, str(sent)], capture_output=True, text=True, check=True)
    assert "widen" in done.stdout
    assert "pyarrow" not in done.stdout


class _Session:
    """A session that can be held weakly."""


@pytest.mark.parametrize(("lacks", "sent"), [("", 0), ("widen", 1), ("pyroaring, widen", 1), ("pyroaring", 0)])
def test_executors_without_widen_get_it_once(monkeypatch: pytest.MonkeyPatch, lacks: str, sent: int) -> None:
    """Only `ship` says what they lack beside Widen."""
    asked: list[str] = []

    def probe(*_: object) -> tuple[list[str], list[str]]:
        asked.append("probe")
        return ship._split_missing([lacks], ())

    monkeypatch.setattr(ship, "_find_missing", probe)
    monkeypatch.setattr(ship, "ship", lambda _: asked.append("ship"))
    monkeypatch.setattr(ship, "_runs_this_python", lambda _: False)
    session: Any = _Session()
    if lacks and not sent:
        with pytest.raises(InvalidOption, match="cannot import pyroaring"):
            ship.ensure_shipped(session)
        return
    ship.ensure_shipped(session)
    ship.ensure_shipped(session)
    assert asked == ["probe", *["ship"] * sent]


def test_a_local_master_with_this_python_needs_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widen.spark.session.is_driver", lambda _: True)
    context = SimpleNamespace(master="local[2]", pythonExec=sys.executable)
    assert ship._runs_this_python(cast(Any, SimpleNamespace(sparkContext=context)))
    for master, python in (("local[2]", "/no/other/python3"), ("spark://host:7077", sys.executable)):
        context = SimpleNamespace(master=master, pythonExec=python)
        assert not ship._runs_this_python(cast(Any, SimpleNamespace(sparkContext=context)))
