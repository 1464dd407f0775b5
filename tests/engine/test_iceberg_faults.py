"""What `tests/property/test_log_faults.py` shows for Delta tables, for operations on Iceberg tables.

The calls that go wrong are those to PyIceberg's files and catalog, and to the store of data files and records of loads.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from support.fault import FULL, Fault, OutsideError, Spot, chosen
from support.iceberg_shop import CALLS, KEEPING, OPERATIONS, PREPARED, WITHOUT_LATE, IcebergInjector, Shop
from widen.errors import WidenError
from widen.errors.tables import notes_of

CI_FAULTS = 3
"""How many faults of one operation a run takes that is not asked for all of them."""


def wrong_after(shop: Shop, name: str, spot: Spot) -> list[str]:
    """Return what is wrong after an operation in which one call went wrong, and after its retry."""
    shop.number += 1
    run = partial(OPERATIONS[name], shop)
    if name in PREPARED:
        PREPARED[name](shop, shop.number)
    injector, before, ended = IcebergInjector(spot.number, spot.fault), shop.newest(), None
    kept = shop.kept() if name in KEEPING else {}
    shop.seen = set(shop.numbers())
    try:
        with injector.active():
            run(shop.number)
    except (WidenError, OutsideError, MemoryError, KeyboardInterrupt) as error:
        ended = error
    for call in injector.late:
        with suppress(Exception):
            call()
    found, said = [], "; ".join([str(ended), *notes_of(ended)])
    is_visible, snapshot = shop.newest() != before, shop.table.version
    if ended is None and not is_visible:
        found.append("it was acknowledged, and nothing is visible")
    told = (f"napshot {snapshot}", f"ersion {snapshot}", "columns of", "snapshots of")
    if ended is not None and is_visible and not any(each in said for each in told):
        found.append(f"snapshot {snapshot} is visible, and the error does not say so: {said}")
    found += [f"{each} has lost rows" for each, rows in kept.items() if shop.numbers(each) != rows]
    shop.seen = set(shop.numbers())
    run(shop.number)
    found += [f"{each} has lost rows" for each, rows in kept.items() if shop.numbers(each) != rows]
    if name == "vacuum" and [*shop.place.rglob("orphan.parquet")]:
        found.append("the file of no snapshot is still there")
    if shop.numbers() != list(range(shop.number + 1)):
        found.append(f"the table has {shop.numbers()[-5:]} after number {shop.number}")
        shop.number = max(shop.numbers())
    return [f"{spot.call} {spot.number} {spot.fault.value}, {ended!r}: {wrong}" for wrong in found]


CASES = [
    pytest.param(name, is_server, id=f"{name}-{'server' if is_server else 'sqlite'}")
    for name in OPERATIONS
    for is_server in (False, True)
    if FULL in os.environ or name not in PREPARED or not is_server
]


@pytest.mark.parametrize(("name", "is_server"), CASES)
def test_no_fault_loses_anything(
    spark: SparkSession,
    tmp_path: Path,
    name: str,
    is_server: bool,
    monkeypatch: pytest.MonkeyPatch,
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    shop = Shop(spark, tmp_path)
    shop.ingest_txn(0)
    run = partial(OPERATIONS[name], shop)
    injector = IcebergInjector()
    shop.number = 1
    if name in PREPARED:
        PREPARED[name](shop, 1)
    with injector.active():
        run(1)
    if is_server:  # a catalog whose commits may arrive late
        monkeypatch.setattr("widen.iceberg.table_commit._is_sqlite", lambda _: False)
    spots = [
        Spot(number, call, fault)
        for number, call in enumerate(injector.calls)
        for fault in CALLS.get(call.rpartition(".")[2], (None, WITHOUT_LATE))[1]
        if is_server or fault is not Fault.LATE
    ]
    from_commit = min(number for number, call in enumerate(injector.calls) if call == "iceberg.commit_table")
    if FULL not in os.environ:
        spots = [spot for spot in spots if spot.number >= from_commit]
    spots = [*chosen(spots, CI_FAULTS, name)]
    random.Random(name).shuffle(spots)
    record_testsuite_property(f"faults of {name}, {'server' if is_server else 'sqlite'}", len(spots))
    assert len(spots) >= CI_FAULTS
    assert [wrong for spot in spots for wrong in wrong_after(shop, name, spot)] == []
