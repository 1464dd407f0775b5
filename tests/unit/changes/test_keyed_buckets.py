"""A load by key that is decided in buckets does the same as one that is decided at once."""

from __future__ import annotations

import itertools
import json
import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.changes import keyed_buckets, keyed_load
from widen.errors import KeyRepeated, SequenceRepeated
from widen.iceberg.catalog import to_table_name

Record = dict[str, Any]
BATCHES, KEYS = 3, 8
COLUMNS = "id bigint, at bigint, op string, f struct<x: int, y: int>, m map<string, int>, _rescued string"
BY = {"sequence_by": "at", "delete_when": "op = 'd'"}
NO_ORDER = {"delete_when": "op = 'd'"}
EVENTS = {"envelope": "debezium"}

LOADS: Mapping[str, tuple[Mapping[str, Any], str | None]] = {
    "newest records": (BY, None),
    "newest records in Iceberg": (BY, "iceberg"),
    "the last batch": (NO_ORDER, None),
    "partial records": ({**BY, "missing": "keep"}, None),
    "partial records with maps and rescued values": ({**BY, "missing": "keep", "evolve": "freeze"}, COLUMNS),
    "partial records of the last batch": ({**NO_ORDER, "missing": "keep"}, COLUMNS),
    "partial records in Iceberg": ({**BY, "missing": "keep"}, "iceberg"),
    "unchanged fields": (EVENTS, None),
    "unchanged fields with rescued values": (EVENTS, COLUMNS),
    "history": ({**BY, "history": True}, None),
    "history with unchanged fields": ({**EVENTS, "history": True}, None),
    "history of tracked fields with unchanged ones": ({**EVENTS, "history": True, "history_columns": ["a", "n"]}, None),
    "history in Iceberg": ({**BY, "history": True}, "iceberg"),
}
"""The options of each load, and the columns or the kind of its table."""


@pytest.mark.parametrize("name", LOADS)
def test_buckets_do_what_one_decision_does(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    options, created = LOADS[name]
    dice, numbers = random.Random(name), itertools.count()
    batches = [make_batch(dice, batch, numbers, options) for batch in range(BATCHES)]
    at_once = load_all(tmp_path / "at_once", batches, options, created)
    decided = list[int]()
    with monkeypatch.context() as patches:
        decide = keyed_buckets.Buckets.decide

        def count(self: keyed_buckets.Buckets, *given: Any) -> Any:
            decided.append(self.count)
            return decide(self, *given)

        patches.setattr(keyed_load, "KEYED_RECORDS", 0)
        patches.setattr(keyed_buckets, "BUCKET_RECORDS", 5)
        patches.setattr(keyed_buckets, "CHANGE_TASK_BYTES", 3_000)
        patches.setattr(keyed_buckets.Buckets, "decide", count)
        in_buckets = load_all(tmp_path / "buckets", batches, options, created)
    assert in_buckets == at_once
    assert len(decided) == BATCHES
    assert max(decided) > 1
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    staged = [file for file in files if re.fullmatch(r"[0-9a-f]{32}|new\d+", file.name)]
    assert not staged


def load_all(
    place: Path, batches: Sequence[Sequence[Record]], options: Mapping[str, Any], created: str | None
) -> list[Any]:
    """Return what loads do, and the rows that they lead to."""
    place.mkdir()
    words, target = dict(options), str(place / "t")
    if created == "iceberg":
        words["catalog"], target = str(place / "c.db"), "shop.t"
    elif created is not None:
        widen.create_table(target, created)
    done = []
    for number, records in enumerate(batches):
        folder = place / f"in{number}"
        folder.mkdir()
        for part in range(2):
            text = "".join(f"{json.dumps(each)}\n" for each in records[part::2])
            (folder / f"{part}.json").write_text(text)
        done.append(str(widen.ingest(folder, target, key=["id"], engine="local", **words).keys))
    if created == "iceberg":
        table = to_table_name(target, str(place / "c.db")).find()
        assert table is not None
        rows = table.scan().to_arrow()
    else:
        rows = widen.Table(target).to_arrow()
    return [*done, sorted(map(repr, rows.to_pylist()))]


def make_batch(
    dice: random.Random, batch: int, numbers: itertools.count[int], options: Mapping[str, Any]
) -> list[Record]:
    """Return records of some keys, many of which have equal sequences."""
    records = [make_record(dice, key, batch, next(numbers)) for key in range(KEYS) for _ in range(dice.randrange(4))]
    if "envelope" in options:
        return [make_event(dice, each) for each in records]
    if "sequence_by" not in options:  # one record for each key
        records = [
            {name: value for name, value in each.items() if name != "at"}
            for each in {str(each["id"]): each for each in records}.values()
        ]
    dice.shuffle(records)
    return records


def make_record(dice: random.Random, key: int, batch: int, number: int) -> Record:
    n = number % 4
    values: Record = {
        "n": n,
        "a": dice.choice([n, 2**35, f"t{n}", {"x": n}, {"y": {"z": n}}, [n]]),
        "m": {name: n if dice.random() < 0.7 else {"p": n} for name in "kl" if dice.random() < 0.5} or None,
        "f": {"x": n, "y": dice.choice([n, "s", {"u": 1}])},
    }
    record = {name: value for name, value in values.items() if dice.random() < 0.6}
    op = "d" if dice.random() < 0.15 else "u"
    return {
        "id": dice.choice([key, f"{key}"]) if batch else key,
        "at": dice.randrange(30) + 10 * batch,
        "op": op,
        **record,
    }


def make_event(dice: random.Random, record: Record) -> Record:
    """Return an event of Debezium that leaves some fields as they are."""
    row = {name: value for name, value in record.items() if name not in ("op", "at")}
    source = {"connector": "postgresql", "lsn": record["at"]}
    if record["op"] == "d":
        return {"before": {"id": record["id"]}, "after": None, "source": source, "op": "d"}
    unchanged = [name for name in ("n", "a", "f") if name not in row and dice.random() < 0.6]
    row |= dict.fromkeys(unchanged, "__debezium_unavailable_value")
    return {"before": None, "after": row, "source": source, "op": "u"}


@pytest.mark.parametrize("words", [NO_ORDER, {**BY, "strict": True}])
def test_buckets_count_the_keys_that_refuse_a_batch(
    tmp_path: Path, words: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyed_load, "KEYED_RECORDS", 0)
    monkeypatch.setattr(keyed_buckets, "BUCKET_RECORDS", 1)
    # A deletion beside an update shows without its contents, two updates only with theirs.
    records = [
        {"id": key, "at": 1, "n": n, "op": "d" if n and key % 4 == 1 else "u"}
        for key in range(20)
        for n in range(1 + key % 2)
    ]
    (tmp_path / "in.json").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    with pytest.raises((KeyRepeated, SequenceRepeated)) as refused:
        widen.ingest(tmp_path / "in.json", tmp_path / "t", key=["id"], engine="local", **words)
    assert refused.value.fields["count"] == 10
    assert not [each for each in (tmp_path / "t").rglob("*") if each.is_file()] if (tmp_path / "t").exists() else True


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("fault", ["refused", "stopped"])
def test_a_load_that_fails_leaves_no_lists_of_deleted_keys(
    tmp_path: Path, kind: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, words = str(tmp_path / "t"), {**BY, "strict": True}
    if kind == "iceberg":
        target, words = "ns.t", {**words, "to": "iceberg", "catalog": tmp_path / "c.db"}
    monkeypatch.setattr(keyed_load, "KEYED_RECORDS", 0)
    monkeypatch.setattr(keyed_buckets, "BUCKET_RECORDS", 1)
    (tmp_path / "old.json").write_text("".join(f'{{"id": {key}, "at": 1, "op": "u"}}\n' for key in range(20)))
    widen.ingest(tmp_path / "old.json", target, key=["id"], engine="local", **words)
    lines = [f'{{"id": {key}, "at": 2, "op": "{"ud"[key % 2]}"}}\n' for key in range(20)]
    lines += ['{"id": 4, "at": 2, "op": "u", "n": 1}\n'] if fault == "refused" else []
    (tmp_path / "new.json").write_text("".join(lines))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    if fault == "stopped":
        monkeypatch.setattr("widen.changes.deleted_keys.KeyLists.add", _stop)
    with pytest.raises(SequenceRepeated if fault == "refused" else RuntimeError):
        widen.ingest(tmp_path / "new.json", target, key=["id"], engine="local", **words)
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == before


def _stop(*_: Any) -> None:
    raise RuntimeError("stopped")
