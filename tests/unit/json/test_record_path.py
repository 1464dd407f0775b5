"""Records below a path: what a document has there, cut byte by byte, and what it is if it is damaged."""

from __future__ import annotations

import io
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from widen.errors import CorruptFile, InvalidOption
from widen.json import record_path
from widen.json.record_path import PathStep, RecordFinder, RecordPath, parse_record_path
from widen.proof import nested_records
from widen.proof.nested_records import nested_texts, read_nested_file

PATHS = ("Records[*]", "data.items[*]", "a[*].b[*].c[*]", "entry[*].resource", "data", "a[*].a[*].a[*]")
KEEPS = (frozenset[str](), None, frozenset({"k", "résumé", "data"}))


def find(text: bytes, path: str = "Records[*]", keep: frozenset[str] | None = frozenset()) -> list[tuple[bytes, str]]:
    found = RecordFinder(parse_record_path(path, keep)).find(text)
    return [(text, each.reason) for each in found for text in each.texts]


def prove(text: bytes, path: RecordPath) -> list[tuple[bytes, bool]]:
    return sorted(map(tuple, nested_texts(text, path)))


def test_a_path_is_names_and_lists() -> None:
    assert parse_record_path("Records[*]").steps == (PathStep("Records", True),)
    path = parse_record_path("a.`x.[y]``z`[*].b")
    assert path.steps == (PathStep("a", False), PathStep("x.[y]`z", True), PathStep("b", False))
    assert str(path) == "a.`x.[y]``z`[*].b"
    assert parse_record_path(str(path)) == path


@pytest.mark.parametrize("text", ["", "[*]", "a.", ".a", "a[0]", "a[*]b", "a[*][*]", "a..b", "`a", "$.a", "a[*].[*]"])
def test_what_is_not_a_path(text: str) -> None:
    if text == "$.a":
        assert parse_record_path(text).steps[0].name == "$"  # a field can have this name
        return
    with pytest.raises(InvalidOption, match="field names with dots"):
        parse_record_path(text)


def test_records_are_cut_byte_by_byte() -> None:
    text = b'\xef\xbb\xbf {"n": 1, "Records" : [ {"a": 1.10, "b":"]}\\"" } ,{"a":1e400},\n{}] }'
    assert find(text) == [(b'{"a": 1.10, "b":"]}\\"" }', ""), (b'{"a":1e400}', ""), (b"{}", "")]


@pytest.mark.parametrize("text", [b'{"Records":null}', b'{"Records":[]}', b"[]", b"", b" ", b'[{"Records": [ ]}]'])
def test_null_and_an_empty_list_have_no_records(text: bytes) -> None:
    assert find(text) == []
    assert prove(text, parse_record_path("Records[*]")) == []


def test_several_documents_in_a_text() -> None:
    one, two = b'{"Records":[{"a":1}]}', b'{"Records":[{"a":2},null,3]}'
    both = [(b'{"a":1}', ""), (b'{"a":2}', ""), (b"null", ""), (b"3", "")]
    for text in (one + two, one + b" \n" + two, b"[" + one + b"," + two + b"]"):
        assert find(text) == both


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"records":[]}', "it has no Records[*]"),
        (b"{}", "it has no Records[*]"),
        (b'{"Records":{"a":1}}', "Records is not a list"),
        (b'{"Records":"x"}', "Records is not a list"),
        (b"5", "a document is not an object at byte 1"),
        (b"null", "a document is not an object at byte 1"),
        (b"[1]", "a document is not an object at byte 2"),
        (b'{"Records":[{"a":1}', "it ends inside of a value"),
        (b'{"Records":[{"a":1}]', "it ends inside of a value"),
        (b'{"Records":[{"a":1]}]}', "a bracket does not match at byte 19"),
        (b'{"Records":[{"a":1} {"a":2}]}', "a comma is missing at byte 21"),
        (b'{"Records":[{"a":1},]}', "a value is missing at byte 21"),
        (b'{"Records" [{"a":1}]}', "a colon is missing at byte 12"),
        (b'{Records:[{"a":1}]}', "a name is missing at byte 2"),
        (b'{"Records":[]} x', "a document is not an object at byte 16"),
    ],
)
def test_a_document_without_records_is_corrupt_as_it_is(text: bytes, reason: str) -> None:
    assert find(text) == [(text, f"not a JSON document with records: {reason}")]
    assert prove(text, parse_record_path("Records[*]")) == [(text, False)]


def test_only_the_object_in_which_the_path_ends_is_corrupt() -> None:
    text = b'{"a":[{"b":[{"c":1}]},{"x":1},7,null,{"b":5}]}'
    assert find(text, "a[*].b[*]") == [
        (b'{"c":1}', ""),
        (b'{"x":1}', "not a JSON document with records: it has no a[*].b[*]"),
        (b"7", "not a JSON record: an item of a[*] is not an object"),
        (b'{"b":5}', "not a JSON document with records: a[*].b is not a list"),
    ]


def test_a_damaged_record_is_one_text_of_its_own() -> None:
    assert find(b'{"Records":[{"a":tru},{"b":NaN},{"a":1,"a":2}]}') == [
        (b'{"a":tru}', ""),
        (b'{"b":NaN}', ""),
        (b'{"a":1,"a":2}', ""),
    ]


def test_kept_fields_have_the_names_of_their_levels() -> None:
    text = b'{"v":1,"r":[{"s":[{"l":[{"a":1},{ }],"scope":{"n":1.0}}],"res":"x"}],"late":[1, 2]}'
    every = b'"_parent_s_scope":{"n":1.0},"_parent_r_res":"x","_parent_v":1,"_parent_late":[1, 2]}'
    assert find(text, "r[*].s[*].l[*]", None) == [(b'{"a":1,' + every, ""), (b"{" + every, "")]
    some = b'"_parent_r_res":"x","_parent_late":[1, 2]}'
    assert find(text, "r[*].s[*].l[*]", frozenset({"res", "late"})) == [(b'{"a":1,' + some, ""), (b"{" + some, "")]


def test_levels_with_one_name_are_told_apart() -> None:
    text = b'{"k":0,"a":[{"k":1,"a":[{"k":2,"a":[{"k":3}]}]}]}'
    assert find(text, "a[*].a[*].a[*]", None) == [(b'{"k":3,"_parent_a_a_k":2,"_parent_a_k":1,"_parent_k":0}', "")]


def test_a_field_twice_is_not_lost() -> None:
    assert find(b'{"Records":[{"a":1}],"Records":[{"a":2}]}') == [(b'{"a":1}', ""), (b'{"a":2}', "")]
    assert find(b'{"x":1,"Records":[{"a":1}],"x":2}', keep=None) == [(b'{"a":1,"_parent_x":1,"_parent_x":2}', "")]
    assert find(b'{"Records":[],"Records":5}') == [
        (b'{"Records":[],"Records":5}', "not a JSON document with records: Records is not a list")
    ]


# ---- the writer and the proof agree, whatever a document has -------------------------------------


def some_value(chance: random.Random, depth: int) -> Any:
    kinds = ["n", "s", "z"] if depth <= 0 else ["n", "s", "z", "o", "l"]
    match chance.choice(kinds):
        case "o":
            return {chance.choice("kabc]x"): some_value(chance, depth - 1) for _ in range(chance.randrange(3))}
        case "l":
            return [some_value(chance, depth - 1) for _ in range(chance.randrange(4))]
        case "n":
            return chance.choice((1, -2.5, 10**20, True, 1e300))
        case "s":
            return chance.choice(("", 'a"b', "}{][", "\\", "é€", "a,b:c", " "))
    return None


def some_level(chance: random.Random, steps: list[PathStep], *, wrong: float) -> Any:
    if not steps:
        return some_value(chance, 3)
    if chance.random() < wrong:
        return some_value(chance, 2)
    step, rest = steps[0], steps[1:]
    below = [some_level(chance, rest, wrong=wrong) for _ in range(chance.randrange(4))]
    pairs = [(step.name, below if step.is_list else (below or [None])[0])]
    pairs += [(chance.choice(("k", "résumé", "data", "z")), some_value(chance, 2)) for _ in range(chance.randrange(3))]
    chance.shuffle(pairs)
    if chance.random() < wrong:
        pairs = pairs[1:]
    return Pairs(pairs)


class Pairs(list[tuple[str, Any]]):
    """An object whose keys may repeat."""


def spell(value: Any, chance: random.Random) -> str:
    space = chance.choice(("", "", "", " ", "\n\t"))
    if isinstance(value, (Pairs, dict)):
        items = value if isinstance(value, Pairs) else value.items()
        inner = [f"{json.dumps(key, ensure_ascii=chance.random() < 0.5)}:{space}{spell(v, chance)}" for key, v in items]
        return "{" + space + f",{space}".join(inner) + space + "}"
    if isinstance(value, list):
        return "[" + space + f"{space},".join(spell(each, chance) for each in value) + space + "]"
    return json.dumps(value, ensure_ascii=chance.random() < 0.5)


def damage(text: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(text) + 1)
    match chance.randrange(4):
        case 0:
            return text[:at]
        case 1:
            return text[:at] + text[at + 1 :]
        case 2:
            return text[:at] + bytes([chance.choice(b'{}[],:"\\x \xff')]) + text[at:]
    return text[:at] + bytes([chance.choice(b'{}[],:"\\x \xff')]) + text[at + 1 :]


@pytest.mark.parametrize("seed", range(30))
def test_the_proof_finds_what_the_writer_finds(seed: int) -> None:
    chance, counts = random.Random(seed), [0, 0]
    for _ in range(100):
        path = parse_record_path(chance.choice(PATHS), chance.choice(KEEPS))
        documents = [some_level(chance, [*path.steps], wrong=0.1) for _ in range(chance.randrange(1, 3))]
        text = chance.choice((" ", "\n", "")).join(spell(each, chance) for each in documents).encode()
        if chance.random() < 0.5:
            text = damage(text, chance)
        found = [(text, not each.reason) for each in RecordFinder(path).find(text) for text in each.texts]
        assert sorted(found) == prove(text, path), (str(path), path.keep, text)
        for _, is_record in found:
            counts[is_record] += 1
    assert min(counts) > 20


def test_the_records_are_those_that_a_parser_finds() -> None:
    chance = random.Random(5)
    for _ in range(300):
        document = some_level(chance, [*parse_record_path("a[*].b[*]").steps], wrong=0)
        text = spell(document, chance).encode()
        expected = [c for b in dict(document)["a"] for c in dict(b)["b"]]
        assert [json.loads(each) for each, _ in find(text, "a[*].b[*]")] == expected


# ---- documents larger than memory ----------------------------------------------------------------


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> int:
    """Read in blocks of a few bytes, so that every place is once at the end of one."""
    monkeypatch.setattr(record_path, "_BLOCK_BYTES", 7)
    monkeypatch.setattr(record_path, "HELD_BYTES", 90)
    monkeypatch.setattr(nested_records, "_BLOCK", 11)
    monkeypatch.setattr(nested_records, "LARGE", 90)
    monkeypatch.setattr(nested_records, "_WAITING", 40)
    monkeypatch.setattr(nested_records, "_MANY", 3)
    return 90


@pytest.mark.parametrize("seed", range(20))
def test_a_large_file_has_the_same_records(seed: int, small_windows: int) -> None:
    chance, large, damaged = random.Random(seed), 0, 0
    for _ in range(40):
        path = parse_record_path(chance.choice(PATHS), chance.choice(KEEPS))
        wrong = chance.choice((0, 0, 0.05))
        documents = [some_level(chance, [*path.steps], wrong=wrong) for _ in range(chance.randrange(1, 3))]
        documents = [each for each in documents if isinstance(each, (Pairs, dict))]
        text = "\n,".join(spell(each, chance) for each in documents).encode()
        text = b"[" + text + b"]"
        if chance.random() < 0.2:
            text = damage(text, chance)
        large += len(text) > small_windows
        whole = sorted((each, not found.reason) for found in RecordFinder(path).find(text) for each in found.texts)
        try:
            streamed = sorted(
                (each, not found.reason)
                for found in RecordFinder(path).stream(io.BytesIO(text), "f")
                for each in found.texts
            )
        except CorruptFile:
            damaged += 1
            continue
        assert streamed == whole
        if len(text) > small_windows:
            assert sorted(map(tuple, read_nested_file(Headed(text), path))) == whole
    assert large > 10
    assert damaged


class Headed(io.BytesIO):
    """A file whose first line is never a document."""


def test_many_records_with_a_separator_inside_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """The text between two records is also inside of a record, or changes: no record is cut there."""
    monkeypatch.setattr(record_path, "_BLOCK_BYTES", 4_000)
    records: list[Any] = [{"k": at, "s": [{"k": 1, "t": '},{"k":'}, {"k": 2}] * (at % 5)} for at in range(500)]
    records[77:77] = [1, None, [{"k": 1}, {"k": 2}], {}]
    records[200:300] = [{"other": each} for each in records[200:300]]
    for indent in (None, 1):
        text = json.dumps(
            {"Records": records, "n": 1}, indent=indent, separators=None if indent else (",", ":")
        ).encode()
        for found in (
            RecordFinder(parse_record_path("Records[*]")).find(text),
            list(RecordFinder(parse_record_path("Records[*]")).stream(io.BytesIO(text), "f")),
        ):
            assert [json.loads(each) for group in found for each in group.texts] == records
    assert len(found) < len(records)  # most of them were cut together


def test_late_fields_wait_in_a_file_that_goes_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(record_path, "HELD_BYTES", 10)
    monkeypatch.setattr(record_path, "_BLOCK_BYTES", 10)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    text = json.dumps({"Records": [{"a": at} for at in range(50)], "late": 1}).encode()
    found = RecordFinder(parse_record_path("Records[*]", None)).stream(io.BytesIO(text), "f")
    records = [json.loads(each) for group in found for each in group.texts]
    assert records == [{"a": at, "_parent_late": 1} for at in range(50)]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"x":1}', "has no Records"),
        (b'{"Records":[{"a":1}', "ends inside of the document"),
        (b'{"Records":[{"a":1}]}x', "is not an object at byte"),
        (b'{"Records":[{"a":1}}', "a comma is missing at byte"),
        (b'{"Records":7}', "Records is not a list"),
    ],
)
def test_a_large_damaged_document_makes_the_file_unreadable(text: bytes, reason: str, small_windows: int) -> None:
    padded = text.replace(b"{", b'{"pad":"' + b"." * 200 + b'",', 1)
    path = parse_record_path("Records[*]")
    with pytest.raises(CorruptFile, match=reason):
        list(RecordFinder(path).stream(io.BytesIO(padded), "f"))
    with pytest.raises(CorruptFile):
        list(read_nested_file(Headed(padded), path))


def test_a_record_over_the_limit() -> None:
    text = b'{"Records":[{"a":1},{"a":"' + b"x" * 5_000 + b'"}]}'
    for block in (10, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(record_path, "_BLOCK_BYTES", block)
            with pytest.raises(CorruptFile, match="longer than max_record_size"):
                list(RecordFinder(parse_record_path("Records[*]"), 1_000).stream(io.BytesIO(text), "f"))


def test_a_field_of_any_size_that_is_not_kept_is_passed(small_windows: int) -> None:
    other = json.dumps({"x": ["]}" * 20, {"y": "\\" * 9}] * 30}).encode()
    text = b'{"big":' + other + b',"Records":[{"a":1}],"end":' + other + b"}"
    path = parse_record_path("Records[*]")
    found = list(RecordFinder(path, 200).stream(io.BytesIO(text), "f"))
    assert [each for group in found for each in group.texts] == [b'{"a":1}']
    assert list(map(tuple, read_nested_file(Headed(text), path))) == [(b'{"a":1}', True)]
