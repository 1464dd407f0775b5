"""Deleted keys that a table forgets: the lists without them, their files, and loads at the same time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import widen
from support.command_line import run, run_json
from widen.changes import forgotten_keys
from widen.errors import InvalidOption
from widen.evolution.key_rules import KEY_TEXT
from widen.log import commit_files

WORDS: Any = {"key": ["id"], "sequence_by": "n", "delete_when": "op = 'd'", "engine": "local"}
FORMATS = pytest.mark.parametrize("form", ["delta", "iceberg"])


class Shop:
    """A table of one of the formats, loaded by key."""

    def __init__(self, folder: Path, form: str) -> None:
        self.folder, self.into = folder, str(folder / "t") if form == "delta" else "shop.t"
        self.catalog = {} if form == "delta" else {"catalog": str(folder / "c.db")}
        self.words = (self.into, *(f"--catalog={each}" for each in self.catalog.values()))

    def load(self, *records: dict[str, Any], **more: Any) -> Any:
        (self.folder / "a.json").write_text("".join(f"{json.dumps(each)}\n" for each in records))
        return widen.ingest(self.folder / "a.json", self.into, **{**WORDS, **self.catalog, **more})

    def open(self) -> Any:
        return widen.IcebergTable(self.into, self.catalog["catalog"]) if self.catalog else widen.Table(self.into)

    def ids(self) -> list[Any]:
        return sorted(json.loads(line)["id"] for line in run("read", *self.words, "--json").stdout.splitlines())

    def stored(self) -> list[str]:
        """The keys in all files of lists, whether or not a list names them."""
        files = [*self.folder.rglob("_widen/keys/**/*.parquet")]
        return sorted(text for file in files for text in pq.read_table(file)[KEY_TEXT].to_pylist())


@pytest.fixture
def shop(tmp_path: Path, form: str) -> Shop:
    shop = Shop(tmp_path, form)
    shop.load(*({"id": number, "n": 1, "op": "u"} for number in range(4)))
    shop.load({"id": 1, "n": 5, "op": "d"}, {"id": 2, "n": 5, "op": "d"})
    shop.load({"id": 3, "n": 5, "op": "d"})
    return shop


@FORMATS
def test_a_forgotten_key_is_in_no_file(shop: Shop) -> None:
    version = shop.open().version
    told = run_json("forget", *shop.words, "--key", "id=1", "--dry-run")
    assert (told["version"], told["dryRun"], told["keys"]) == (version, True, 1)
    assert shop.stored() == ["n:1", "n:2", "n:3"]
    done = run_json("forget", *shop.words, "--key", "id=1", "--key", "id=77")
    assert done["keys"] == 1
    assert done["files"] == told["files"]
    assert done["version"] == shop.open().version != version
    assert shop.stored() == ["n:2", "n:3"]
    assert run_json("forget", *shop.words, "--key", "id=1") == {**done, "keys": 0, "files": 0}
    late = [{"id": number, "n": 2, "op": "u"} for number in (1, 2, 3)]
    assert str(shop.load(*late, verify=True).keys) == "1 inserted, 0 updated, 0 deleted, 2 late"
    assert shop.ids() == [0, 1]


@FORMATS
def test_every_key_can_be_forgotten(shop: Shop) -> None:
    change = shop.open().forget([{"id": 1}, {"id": 2}, {"id": 3}])
    assert change.metrics["numForgottenKeys"] == 3
    assert shop.stored() == []
    shop.load({"id": 2, "n": 9, "op": "d"})
    assert shop.load({"id": 2, "n": 8, "op": "u"}).keys.late == 1


@FORMATS
def test_older_lists_do_not_keep_a_key(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widen.changes.deleted_keys.MAX_LISTS", 1)
    shop.load({"id": 0, "n": 5, "op": "d"})
    assert len(shop.stored()) > 4
    shop.open().forget([{"id": 1}])
    assert shop.stored() == ["n:0", "n:2", "n:3"]


@FORMATS
def test_no_key_is_lost_if_a_load_deletes_others_at_the_same_time(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    write, calls = forgotten_keys.write_without, 0

    def load_meanwhile(*words: Any) -> Any:
        nonlocal calls
        calls += 1
        done = write(*words)
        if calls == 1:
            shop.load({"id": 0, "n": 5, "op": "d"})
        return done

    monkeypatch.setattr(forgotten_keys, "write_without", load_meanwhile)
    shop.open().forget([{"id": 1}])
    assert calls == 2
    assert shop.stored() == ["n:0", "n:2", "n:3"]


@FORMATS
def test_a_load_that_began_before_is_planned_again(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    from widen.changes.deleted_keys import KeyLists

    add, calls = KeyLists.add, 0

    def forget_meanwhile(*words: Any) -> Any:
        nonlocal calls
        calls += 1
        head = add(*words)
        if calls == 1:
            shop.open().forget([{"id": 1}])
        return head

    monkeypatch.setattr(KeyLists, "add", forget_meanwhile)
    shop.load({"id": 0, "n": 5, "op": "d"}, verify=True)
    assert calls == 2
    assert shop.stored() == ["n:0", "n:2", "n:3"]


@FORMATS
@pytest.mark.parametrize(
    ("keys", "said"),
    [([{"id": "x"}], "of the type int"), ([{"n": 1}], "Must name each field of the key: id"), ([], "at least one key")],
)
def test_a_key_that_cannot_be_one_is_refused(shop: Shop, keys: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        shop.open().forget(keys)
    assert shop.stored() == ["n:1", "n:2", "n:3"]


@pytest.mark.parametrize("form", ["delta"])
def test_a_key_without_a_value_is_refused(shop: Shop) -> None:
    assert "Must be FIELD=VALUE" in run("forget", *shop.words, "--key", "id").stderr
    assert run("forget", *shop.words, "--key", "id=2").stdout.startswith("forgot 1 deleted key, deleted ")


def test_a_key_of_several_fields_is_an_object(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "delta")
    words: Any = {"key": ["id", "c.d"]}
    for op in "ud":
        shop.load(*({"id": 'a"b', "c": {"d": day}, "n": 1, "op": op} for day in ("2024-01-01", 7)), **words)
    assert len(shop.stored()) == 2
    done = run_json("forget", shop.into, "--key", json.dumps({"id": 'a"b', "c.d": 7}))
    assert done["keys"] == 1
    assert len(shop.stored()) == 1


def test_a_table_without_keys_remembers_none(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    widen.ingest(tmp_path / "a.json", str(tmp_path / "t"), engine="local")
    with pytest.raises(InvalidOption, match="not loaded by key"):
        widen.Table(tmp_path / "t").forget([{"id": 1}])


DAY_MS = 24 * 60 * 60 * 1000


def pass_days(monkeypatch: pytest.MonkeyPatch, days: int) -> None:
    """Let the clock of lists and of forgetting run ahead."""
    now = commit_files.current_ms()
    for module in ("deleted_keys", "forgotten_keys"):
        monkeypatch.setattr(f"widen.changes.{module}.current_ms", lambda: now + days * DAY_MS)


@FORMATS
@pytest.mark.parametrize("merged", [False, True])
def test_keys_are_forgotten_by_age(shop: Shop, monkeypatch: pytest.MonkeyPatch, merged: bool) -> None:
    if merged:  # lists that become one keep the times of their keys
        monkeypatch.setattr("widen.changes.deleted_keys.MAX_LISTS", 1)
    pass_days(monkeypatch, 60)
    shop.load({"id": 0, "n": 5, "op": "d"}, {"id": 2, "n": 7, "op": "u"})
    shop.load({"id": 2, "n": 9, "op": "d"})
    pass_days(monkeypatch, 100)
    told = run_json("forget", *shop.words, "--older-than", "90d", "--dry-run")
    assert (told["dryRun"], told["keys"]) == (True, 2)
    assert set(shop.stored()) == {"n:0", "n:1", "n:2", "n:3"}
    assert shop.open().forget(older_than="101 days", dry_run=True).metrics["numForgottenKeys"] == 0
    done = run_json("forget", *shop.words, "--older-than", "90d")
    assert (done["keys"], done["files"]) == (2, told["files"])
    assert shop.stored() == ["n:0", "n:2"]
    assert run_json("forget", *shop.words, "--older-than", "90d")["keys"] == 0
    late = [{"id": number, "n": 2, "op": "u"} for number in range(4)]
    assert str(shop.load(*late, verify=True).keys) == "2 inserted, 0 updated, 0 deleted, 2 late"
    assert shop.ids() == [1, 3]
    assert run("forget", *shop.words, "--older-than", "5w").stdout.startswith("forgot 2 deleted keys, deleted ")
    assert shop.stored() == []


@FORMATS
def test_lists_without_times_are_as_old_as_their_files(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in shop.folder.rglob("_widen/keys/**/*.parquet"):
        pq.write_table(pq.read_table(file).select([KEY_TEXT, "__widen_number", "__widen_text"]), file)
    pass_days(monkeypatch, 3)
    shop.load({"id": 0, "n": 5, "op": "d"}, verify=True)
    assert shop.open().forget(older_than="4d", dry_run=True).metrics["numForgottenKeys"] == 0
    assert shop.open().forget(older_than="2d").metrics["numForgottenKeys"] == 3
    assert shop.stored() == ["n:0"]


@FORMATS
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--older-than", "90"], "Must be a time such as 90d"),
        (["--older-than", "1 month"], "Must be a time such as 90d"),
        (["--older-than", "-1d"], "Must be a time such as 90d"),
        (["--older-than", "90d", "--key", "id=1"], "not both"),
        ([], "at least one key, or use older_than"),
    ],
)
def test_an_age_that_is_none_is_refused(shop: Shop, words: list[str], said: str) -> None:
    assert said in " ".join(run("forget", *shop.words, *words).stderr.split())
    assert shop.stored() == ["n:1", "n:2", "n:3"]


def test_a_table_with_history_needs_its_deletions(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "delta")
    for op in "ud":
        shop.load({"id": 1, "n": ord(op), "op": op}, history=True)
    with pytest.raises(InvalidOption, match="keeps every version"):
        shop.open().forget(older_than="1d")


# Tables with history, which need the deletions of keys that still have versions.


def versions(shop: Shop) -> list[tuple[Any, ...]]:
    rows = [json.loads(line) for line in run("read", *shop.words, "--json").stdout.splitlines()]
    return sorted((row["n"], row.get("_valid_to")) for row in rows)


KEYS: dict[str, list[dict[str, Any]]] = {
    "one column": [{"id": 1}, {"id": 2}],
    "numbers and texts": [{"id": "1"}, {"id": 2}],
    "two fields": [{"id": 1, "r": {"x": "a"}}, {"id": 1, "r": {"x": "b"}}],
}

FIRST = {"one column": "id = 1", "numbers and texts": "id = '1'", "two fields": "r.x = 'a'"}


@FORMATS
@pytest.mark.parametrize("kind", KEYS)
def test_a_key_is_not_forgotten_as_long_as_it_has_versions(tmp_path: Path, form: str, kind: str) -> None:
    shop, (one, other) = Shop(tmp_path, form), KEYS[kind]
    names = ["id", "r.x"] if "r" in one else ["id"]
    words: dict[str, Any] = {"key": names, "history": True, "verify": True}
    for n, op in ((1, "u"), (5, "d"), (8, "u")):
        shop.load({**one, "n": n, "op": op}, {**other, "n": n, "op": op}, **words)
    before, stored = versions(shop), shop.stored()
    assert before == [(1, 5), (1, 5), (8, None), (8, None)]
    keys = [{"id": each["id"], **({"r.x": each["r"]["x"]} if "r" in each else {})} for each in (one, other)]
    for call in ({"dry_run": True}, {}):
        with pytest.raises(InvalidOption, match=r"still has versions of 2 of these keys.*Delete all rows") as refused:
            shop.open().forget(keys, **call)
        assert str(refused.value.fields["value"]) == ", ".join(names)
    assert (versions(shop), shop.stored()) == (before, stored)
    shop.open().delete(FIRST[kind])
    assert len(versions(shop)) == 2
    with pytest.raises(InvalidOption, match=r"versions of 1 of these keys"):
        shop.open().forget(keys)
    assert shop.open().forget(keys[:1]).metrics["numForgottenKeys"] == 1
    proof = shop.load({**one, "n": 9, "op": "u"}, {**other, "n": 9, "op": "u"}, **words).verification
    assert proof.is_clean
    assert versions(shop) == [(1, 5), (8, 9), (9, None), (9, None)]


@FORMATS
def test_a_key_without_a_deletion_is_not_searched_for(tmp_path: Path, form: str) -> None:
    shop = Shop(tmp_path, form)
    shop.load({"id": 1, "n": 1, "op": "u"}, {"id": 2, "n": 1, "op": "u"}, history=True)
    shop.load({"id": 2, "n": 5, "op": "d"}, history=True)
    assert shop.open().forget([{"id": 1}]).metrics["numForgottenKeys"] == 0
