"""What is predicted of readers, and what a handover proves, can be wrong, and then tests and proofs say so.

Each fact of the data file that explains a table here is taken away, and facts that are not so are added: a comparison
with what the readers do must fail. And each bound in the log is made wrong: a handover must find the filter that then
loses rows.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import widen
from support.command_line import run
from widen.report import reader_predictions

sys.path.append(str(Path(__file__).resolve().parents[3] / "tools"))
import reader_clients

CLIENTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "deltalake": reader_clients.deltalake_dataset,
    "deltalake-sql": reader_clients.deltalake_queries,
    "polars": reader_clients.polars_delta,
}
LONG, SMALL = Decimal("90071992547409.93"), Decimal("-0.0000001")
KINDS = {"long": "decimal(18,2)", "small": "decimal(9,7)", "plain": "long", "new": "long"}


def make_tables(folder: Path) -> dict[str, str]:
    """Tables that some readers refuse or filter wrongly, and two that all of them read."""
    values = {"long": pa.array([LONG], pa.decimal128(18, 2)), "small": pa.array([SMALL], pa.decimal128(9, 7))}
    for name, column in values.items():
        write_deltalake(folder / name, pa.table({"v": column}))
    widen.ingest(pa.table({"v": [7]}), str(folder / "plain"), engine="local")
    widen.ingest(pa.table({"v": [7]}), str(folder / "new"), engine="local", enable_type_widening=True)
    return {name: str(folder / name) for name in KINDS}


def observe(name: str, place: str, client: str) -> dict[str, str]:
    """Return what a reader does with the one row of a table, by question."""
    value = str({"long": LONG, "small": f"{SMALL:f}"}.get(name, 7))
    comparison = {"column": "v", "type": KINDS[name], "value": value}
    asked = {"scan": None, "equal": comparison | {"op": "="}, "range": comparison | {"op": ">="}}
    found = {}
    for kind, question in asked.items():
        request = {"table": place, "name": "", "columns": ["v"], "question": question}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows = reader_clients.rows_of(CLIENTS[client](request), ["v"])
        except Exception:  # each client has errors of its own
            found[kind] = "refuses"
        else:
            found[kind] = "reads" if len(rows) == 1 else "wrong"
    return found


def wrong_predictions(places: dict[str, str], observed: dict[tuple[str, str], dict[str, str]]) -> Iterator[Any]:
    for name, place in places.items():
        for each in widen.Table(place).readers(*CLIENTS):
            if each.reader.name in CLIENTS:
                found = observed[name, each.reader.name]
                predicted = {kind: each.answers[kind].value for kind in found}
                if predicted != found:
                    yield name, each.reader.name, predicted, found


def test_a_fact_that_is_not_so_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = make_tables(tmp_path)
    observed = {(name, client): observe(name, places[name], client) for name in places for client in CLIENTS}
    assert {text for found in observed.values() for text in found.values()} == {"reads", "refuses", "wrong"}
    assert list(wrong_predictions(places, observed)) == []
    data = copy.deepcopy(reader_predictions._data())
    answers, traits = data["answers"]["delta"], set()
    monkeypatch.setattr(reader_predictions, "_data", lambda: data)
    for place in places.values():
        for each in widen.Table(place).readers(*CLIENTS):
            traits |= {(trait.name, each.reader.name) for trait in each.reasons if each.reader.name in CLIENTS}
    assert len(traits) >= 6
    for trait, reader in sorted(traits):
        fact = answers[trait].pop(reader)
        assert list(wrong_predictions(places, observed)), (trait, reader)
        answers[trait][reader] = fact
    for trait in sorted({trait for trait, _ in traits}):
        for other in set(CLIENTS) - set(answers[trait]):
            answers[trait][other] = {"scan": "wrong"}
            assert list(wrong_predictions(places, observed)), (trait, other)
            del answers[trait][other]
    assert list(wrong_predictions(places, observed)) == []


BOUNDS = {
    ("minValues", "n"): 8,
    ("maxValues", "n"): 6,
    ("minValues", "s"): "z",
    ("maxValues", "s"): "a",
    ("minValues", "d"): 9.5,
    ("maxValues", "d"): -1.5,
    ("nullCount", "m"): 0,
}


@pytest.mark.parametrize("client", ["deltalake", "polars"])
def test_a_handover_notices_each_bound_that_is_not_so(tmp_path: Path, client: str) -> None:
    place = tmp_path / "t"
    rows = {"n": [7, 7], "s": ["m", "m"], "d": [0.25, 0.25], "m": [1, None]}
    widen.ingest(pa.table(rows), str(place), engine="local")
    log = place / "_delta_log" / f"{0:020}.json"
    right = log.read_text()
    assert run("handover", str(place), "--to", client).exit_code == 0
    for (key, column), bound in BOUNDS.items():
        lines = [json.loads(line) for line in right.splitlines()]
        (add,) = (line["add"] for line in lines if "add" in line)
        stats = json.loads(add["stats"])
        stats[key][column] = bound
        add["stats"] = json.dumps(stats)
        for path in log.parent.iterdir():
            path.unlink()
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        done = run("handover", str(place), "--to", client)
        assert done.exit_code == 1, (key, column)
        assert f"{column} " in done.stderr
