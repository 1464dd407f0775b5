"""A wide table that drifts for weeks, as a log without data files: seeded, to look at reports and to measure them."""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from support.drift_log import DAY_MS, PROTOCOL
from support.drift_log import field as column
from support.log_table import write_commit
from widen.model.column_path import leaves
from widen.model.schema_json import from_json
from widen.protocol.actions import Add
from widen.protocol.parquet_files import LEAF_COUNTS, file_tag, move_to_commit_info

FIRST_MS = 1_746_072_000_000
GROUPS = ("customer", "payment", "delivery", "cart", "device", "campaign", "loyalty", "invoice", "store", "audit")
FIELDS = (
    "id",
    "name",
    "state",
    "amount",
    "started_at",
    "ended_at",
    "score",
    "source",
    "code",
    "region",
    "note",
    "rank",
)
TYPES = ("long", "string", "string", "double", "timestamp", "timestamp", "integer", "string", "string", "string")
DRIFTS = (
    (5, "total", "integer", "string", "conflict", "U8", "12.50 EUR"),
    (
        9,
        "tags",
        "string",
        {"type": "array", "elementType": "string", "containsNull": True},
        "structural",
        "U8",
        '["a"]',
    ),
    (14, "discount", "double", "string", "conflict", "U8", "10 percent"),
    (21, "channel", "long", "string", "conflict", "U8", "web-7"),
    (30, "weight", "double", "string", "conflict", "U8", "2kg"),
)
"""When a field gets a second kind: interval, field, its type, the type beside it, grade, rule, first value."""

WIDENINGS = ((3, "customer", "rank"), (11, "payment", "score"), (17, "cart", "score"), (27, "device", "rank"))


@dataclass
class _Table:
    dice: random.Random
    groups: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    plain: list[dict[str, Any]] = field(default_factory=list)

    def schema(self) -> str:
        nested = [column(name, {"type": "struct", "fields": list(items)}) for name, items in self.groups.items()]
        return json.dumps({"type": "struct", "fields": [*self.plain, *nested]})

    def metadata(self) -> dict[str, Any]:
        content = {"id": "7d0c", "format": {"provider": "parquet", "options": {}}, "schemaString": self.schema()}
        return {"metaData": {**content, "partitionColumns": [], "configuration": {"delta.enableTypeWidening": "true"}}}


def write_wide(table: Path, columns: int = 137, intervals: int = 34, seed: int = 7) -> Path:
    """Write a table with a number of leaf columns, one commit a day, and return its place."""
    dice = random.Random(seed)
    state = _start(dice, columns)
    for day in range(intervals):
        events = [] if day == 0 else _drift(state, day, intervals, columns)
        _write_day(table, day, state, events, is_changed=bool(events) or day == 0)
    return table


def _start(dice: random.Random, columns: int) -> _Table:
    state = _Table(dice)
    sources = [(name, kind) for _, name, kind, *_ in DRIFTS]
    state.plain = [column("order_id", "long"), column("day", "date")]
    state.plain += [column(name, kind, **{"widen.source": [name]}) for name, kind in sources]
    wanted = (columns - len(state.plain) - len(DRIFTS) - 1) // len(GROUPS)
    for group in GROUPS:
        late = max(1, wanted // 6)
        state.groups[group] = [_field(group, number) for number in range(wanted - late)]
    return state


def _field(group: str, number: int) -> dict[str, Any]:
    name = FIELDS[number % len(FIELDS)] + (f"_{number // len(FIELDS) + 1}" if number >= len(FIELDS) else "")
    return column(name, TYPES[number % len(TYPES)], **{"widen.source": [group, name]})


def _drift(state: _Table, day: int, intervals: int, columns: int) -> list[dict[str, Any]]:
    events = []
    for when, name, _, kind, grade, rule, sample in DRIFTS:
        if day == max(1, when * intervals // 34):
            word = "array_string" if isinstance(kind, dict) else kind
            beside = f"{name}_{word}"
            state.plain.append(
                column(
                    beside, kind, comment=f"evolved_from:{name}", **{"widen.source": [name], "widen.evolvedFrom": name}
                )
            )
            events.append(
                _event([beside], [name], str(word).removeprefix("array_"), grade, rule, sample, day, state.dice)
            )
    for when, group, name in WIDENINGS:
        for item in state.groups[group] if day == max(1, when * intervals // 34) else ():
            if item["name"] == name and item["type"] == "integer":
                item["metadata"]["delta.typeChanges"] = [{"fromType": "integer", "toType": "long"}]
                item["type"] = "long"
                events.append(
                    _event([group, name], [group, name], "long", "widening", "D1", "4611686018", day, state.dice)
                )
    if day == max(1, 7 * intervals // 34):
        state.plain.append(column("_corrupt_record", "string", **{"widen.role": "_corrupt_record"}))
    left = columns - len(list(leaves(from_json(state.schema()))))
    later = sum(1 for when, *_ in DRIFTS if day < max(1, when * intervals // 34))
    if left > later and state.dice.random() < 0.6:
        for group in state.dice.sample(GROUPS, min(3, left - later)):
            state.groups[group].append(_field(group, len(state.groups[group])))
            path = [group, state.groups[group][-1]["name"]]
            events.append(_event(path, path, "string", "additive", "U6", "new", day, state.dice))
    return events


def _event(
    path: list[str], source: list[str], kind: str, grade: str, rule: str, sample: str, day: int, dice: random.Random
) -> dict[str, Any]:
    told = {"rules": [rule], "source": source, "kinds": [kind], "column": path, "count": dice.randrange(1, 900)}
    first = [f"file:/landing/day={day:03d}/orders-{dice.randrange(9)}.json", dice.randrange(1, 40_000)]
    return {**told, "first": first, "sample": sample, "grade": grade}


def _write_day(table: Path, day: int, state: _Table, events: list[dict[str, Any]], *, is_changed: bool) -> None:
    dice, time_ms = state.dice, FIRST_MS + day * DAY_MS
    rows = 40_000 + dice.randrange(25_000) + (60_000 if day % 7 == 4 else 0)
    is_bad = day % 34 == 19
    corrupt = dice.randrange(200, 900) if is_bad else dice.choice((0, 0, 0, 0, 3))
    paths = [path for path, _ in leaves(from_json(state.schema()))]
    values: dict[tuple[str, ...], int] = {}
    for path in paths:
        plain = values.get((path[0].removesuffix("_array_string").removesuffix("_string"),), 0)
        values[path] = _count(path, rows, corrupt, day, dice) + plain * (path[0] != "_corrupt_record")
    types = dict(leaves(from_json(state.schema())))
    stats = _statistics({path: str(types[path]) for path in paths[:32]}, values, rows)
    add = Add(
        path=f"part-{day:05d}.parquet",
        partition_values={},
        size=rows * 210,
        modification_time=time_ms,
        data_change=True,
        tags={LEAF_COUNTS: file_tag(values)},
    )
    _, counts = move_to_commit_info([add])
    metrics = {"numOutputRows": str(rows), "numCorruptRecords": str(corrupt)}
    metrics |= {"numQuarantinedRecords": "312"} if is_bad else {}
    parameters = {"mode": "Append", "evolve": "widen", "events": json.dumps(events)}
    info = {"timestamp": time_ms, "operation": "WRITE", "operationParameters": parameters, "operationMetrics": metrics}
    content = {"path": add.path, "partitionValues": {}, "size": add.size, "modificationTime": time_ms}
    lines: list[dict[str, Any]] = [{"commitInfo": {**info, **counts}}]
    lines += [PROTOCOL] if day == 0 else []
    lines += [state.metadata()] if is_changed else []
    path = write_commit(table, day, *lines, {"add": {**content, "dataChange": True, "stats": json.dumps(stats)}})
    os.utime(path, (time_ms / 1000, time_ms / 1000))


def _count(path: tuple[str, ...], rows: int, corrupt: int, day: int, dice: random.Random) -> int:
    name = path[0]
    if name == "_corrupt_record":
        return corrupt
    if name.startswith("discount_"):  # the source was repaired a week later
        return 0 if day > 21 else rows // 9
    if name.endswith("_string"):
        return rows * dice.randrange(5, 60) // 100
    if name in ("order_id", "day"):
        return rows - corrupt
    return (rows - corrupt) * (95, 60, 100, 3, 100, 30)[sum(map(len, path)) % 6] // 100


BOUNDS = {
    "long": (17, 9_812_345),
    "integer": (1, 4_200),
    "double": (0.5, 129.95),
    "date": ("2025-05-01", "2025-06-03"),
    "timestamp": ("2025-05-01T00:00:04.120Z", "2025-06-03T23:59:58.002Z"),
}


def _statistics(paths: dict[tuple[str, ...], str], values: dict[tuple[str, ...], int], rows: int) -> dict[str, Any]:
    nulls: dict[str, Any] = {}
    low: dict[str, Any] = {}
    high: dict[str, Any] = {}
    for path in paths:
        if "element" in path:
            continue
        least, most = BOUNDS.get(paths[path], (f"a{path[-1]}", f"y{path[-1]}"))
        for target, value in ((nulls, rows - values[path]), (low, least), (high, most)):
            for step in path[:-1]:
                target = target.setdefault(step, {})
            target[path[-1]] = value
    return {"numRecords": rows, "minValues": low, "maxValues": high, "nullCount": nulls}
