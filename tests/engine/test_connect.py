"""Widen with a Spark Connect server that is a process of its own; one server and one client for all tests."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
import pytest

from conftest import ROOT, session_settings
from support import connect_client
from support.connect_server import connect_server
from support.fault import FULL
from support.iceberg_shop import OPERATIONS

Call = Callable[..., Any]


@pytest.fixture(scope="module")
def call(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Call]:
    """Run a function of `support.connect_client` in the process of the client, and return its result."""
    place = tmp_path_factory.mktemp("connect")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")]))
        with connect_server(place, {**session_settings(), "spark.log.level": "WARN"}) as url:
            patch.setenv("SPARK_REMOTE", url)
            spawn = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=spawn) as client:
                yield lambda work, *words: client.submit(work, *words).result()


FLOWS = [("silver", "k"), ("silver", ""), ("ns.silver", "k"), ("ns.silver", "")]
"""The target and the key of flows; a name with a dot is that of an Iceberg table."""


@pytest.mark.parametrize(("target", "key"), FLOWS if FULL in os.environ else FLOWS[:1])
def test_a_flow_that_is_killed_writes_each_row_once(call: Call, tmp_path: Path, target: str, key: str) -> None:
    kills = int(os.environ.get("WIDEN_FLOW_KILLS", 100 if FULL in os.environ else 1))
    report = call(connect_client.killed_flows, tmp_path, target, key, kills)
    assert (report["wrong"], report["kills"]) == ([], kills)


EACH_STARTS_PROCESSES = pytest.mark.skipif(
    FULL not in os.environ, reason=f"a client is killed at each step; {FULL}=1 asks for it"
)
"""Without a server, `test_iceberg_kill.py`, `test_keys_faults.py` and `test_kill.py` kill operations in each run."""

KEYED = {"status": 80, "partial": 40, "ns.status": 50, "history": 30}
"""Tables by key, one of partial records and one with history, and how often ingestions into them are killed."""


@EACH_STARTS_PROCESSES
@pytest.mark.parametrize("target", KEYED)
def test_an_ingestion_by_key_that_is_killed_leaves_no_key_twice(call: Call, tmp_path: Path, target: str) -> None:
    kills = KEYED[target]
    report = call(connect_client.killed_keys, tmp_path, target, kills)
    assert (report["wrong"], report["kills"]) == ([], kills)
    print(report)


STEPS = 10
"""How many steps of each operation are killed; the steps of its commit are among them."""


@EACH_STARTS_PROCESSES
@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_on_an_iceberg_table_is_killed_at_each_step(call: Call, tmp_path: Path, operation: str) -> None:
    report = call(connect_client.killed_shop, tmp_path, operation, STEPS)
    assert report["wrong"] == []
    assert {"before iceberg.commit_table", "after iceberg.commit_table"} <= {*report["kills"]}
    print(operation, report["steps"], report["kills"])


def test_the_client_has_no_driver(call: Call) -> None:
    assert call(connect_client.is_connect) == (True, False)


def test_a_stream_writes_each_record_once(call: Call, tmp_path: Path) -> None:
    rows = call(connect_client.stream, tmp_path)
    assert rows == [(1, 1, None), (5_000_000_000, 2, "5000000000"), (None, 3, "x")]
    assert (tmp_path / "told").read_text() == "1\n2\n"


def test_the_client_gets_the_error_of_an_interval(call: Call, tmp_path: Path) -> None:
    kind, message, fields = call(connect_client.stream_that_fails, tmp_path)
    assert kind == "EvolutionRefused"
    assert message.startswith("The batch needs schema changes that the policy fail does not allow")
    assert "new" in fields["plan"]


def test_the_command_line_shows_what_the_server_ingests(call: Call, tmp_path: Path) -> None:
    code, out, err = call(connect_client.follow, tmp_path)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["version"], told["records"], told["verification"]["lost"]) == (0, 2, 0)
    again = call(connect_client.follow, tmp_path)
    assert again == (0, "", "nothing to load: no new file has records.\n")


def test_a_chain_of_flows(call: Call, tmp_path: Path) -> None:
    first, second = call(connect_client.flow, tmp_path)
    assert first == [("d0", 12), ("d1", 8)]
    # Row 1 has 10 now, row 4 is gone, and row 9 has come: d0 has 2, d1 has 10 and 3, all of them doubled.
    assert second == [("d0", 4), ("d1", 26), ("d9", 10_000_000_000)]


def test_quarantine_verification_and_replay(call: Call, tmp_path: Path) -> None:
    quarantined, kept, verified, replayed, rows = call(connect_client.quarantine, tmp_path)
    assert (quarantined, kept, verified) == (1, [(1,)], (True, 2))
    assert (replayed, rows) == (1, [(1,), (50,)])


def test_iceberg_tables(call: Call, tmp_path: Path) -> None:
    done = call(connect_client.iceberg, tmp_path)
    assert (done["intervals"], done["clean"]) == ([(1, 0), (1, 1)], [True, True])
    assert (done["filtered"], done["past"]) == ([(2, None, "5")], [(1, 1)])
    assert done["replayed"] == 1
    assert done["rows"] == [(1, 1), (2, 5), (3, 7), (None, 9)]
    assert done["report"] == (0, 4)
    assert done["mirrored"] == [(1,)]
    assert done["folded"]["numUpdatedRows"] == 1


def test_the_data_source(call: Call, tmp_path: Path) -> None:
    count, filtered, copied = call(connect_client.data_source, tmp_path)
    assert (count, filtered) == (17, [16, 17, 18, 19])
    assert copied == sorted([(number, f"v{number}") for number in range(3, 20)], key=repr)


@pytest.mark.skipif(pyspark.__version__ < "4.1", reason="Spark 4.0 does not pass the rows of streams in Arrow")
def test_streams_with_names_append_ingest_and_load_by_key(call: Call, tmp_path: Path) -> None:
    found = call(connect_client.named_streams, tmp_path)
    every = [(1, 1, 1), (1, 2, 5_000_000_000), (2, 1, 2)]
    assert found == {"ingest": every, "append": every, "key": [(1, 2, 5_000_000_000), (2, 1, 2)]}
