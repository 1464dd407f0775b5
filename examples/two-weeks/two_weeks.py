"""Two weeks of a coffee shop's orders: drifting files, a bad day, a repair and a hand-over, ending with the report.

Run it with ``python examples/two-weeks/two_weeks.py [FOLDER]`` where Widen and PySpark are installed. The files come
from a seed, so that every run is the same.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import widen

DAYS = 14
FRACTIONS, LISTS, LARGE_IDS, BAD_DAY, REPAIRED = 3, 5, 7, 9, 10
"""The days on which totals get fractions, tags become lists, ids outgrow 32 bits, the source breaks and is repaired."""

SEED = 2024
CORRUPT_SHARE = 0.05


def write_day(folder: Path, day: int, records: int) -> Path:
    """Write the orders of one day, from 1 on, as JSON lines, and return their folder."""
    place = folder / f"day={day:02d}"
    place.mkdir(parents=True)
    dice = random.Random(SEED * 100 + day)
    lines = (make_line(dice, day, number) for number in range(records))
    (place / "orders.json").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return place


def make_line(dice: random.Random, day: int, number: int) -> str:
    """Return an order as a line; on the bad day, some lines break off."""
    line = json.dumps(make_order(dice, day, number))
    return line[: len(line) // 2] if day == BAD_DAY and dice.random() < CORRUPT_SHARE else line


def make_order(dice: random.Random, day: int, number: int) -> dict[str, Any]:
    """Return an order as the source sends it on a day."""
    total: Any = dice.randrange(3, 60)
    if day >= FRACTIONS:
        total += dice.choice((0, 0.5, 0.25))
    if day == BAD_DAY:
        total = str(total)
    tags = [dice.choice(("new", "gift", "vip")) for _ in range(dice.randrange(1, 3))]
    order = {
        "order_id": (2**40 if day >= LARGE_IDS else 0) + day * 10_000 + number,
        "total": total,
        "tags": tags if day >= LISTS else tags[0],
        "customer": {"id": dice.randrange(900), "name": dice.choice(("Ada", "Bo", "Cy")), "city": "Ghent"},
    }
    if day > 2 and dice.random() < 0.3:
        order["coupon"] = {"code": f"C{dice.randrange(99)}", "percent": dice.choice((5, 10))}
    return order


def run(folder: Path, records: int = 500) -> Iterator[str]:
    """Live the two weeks in a folder, and yield what happens.

    Args:
        folder: An empty folder.
        records: The number of orders a day.
    """
    table_path, report = str(folder / "orders"), folder / "report.html"
    for day in range(1, DAYS + 1):
        landed = write_day(folder / "landing", day, records)
        result = widen.ingest(str(landed), into=table_path, verify=day == BAD_DAY)
        changes = "; ".join(str(change) for change in result.plan.operations) or "nothing changes"
        yield f"day {day:2}: {result.records} orders, {result.corrupt} corrupt lines; {changes}"
        if result.verification is not None:
            yield f"        verified: {result.verification}"
        if day == REPAIRED:
            folded = widen.Table(table_path).fold("total_string", rest="keep")
            yield f"        the source is repaired: total_string goes back into total, version {folded.table.version}"
    table = widen.Table(table_path).drop_feature("typeWidening")
    yield f"handed over without type widening: version {table.version}"
    counted = table.to_arrow(limit=None).num_rows
    yield f"{counted} rows are read without Spark"
    subprocess.run([sys.executable, "-m", "widen", "report", table_path, "--html", str(report)], check=True)
    yield f"the report: {report}"


if __name__ == "__main__":
    for text in run(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="two-weeks-"))):
        print(text)
