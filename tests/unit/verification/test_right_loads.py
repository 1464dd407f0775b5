"""Right loads that the proof once objected to: each has a rule that it read in another way than the writer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import widen

SOURCE = '"op":"u","ts_ms":1,"source":{"lsn":1,"table":"t"}'
KEYED = {"key": ["id"], "sequence_by": "s"}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")


def load(folder: Path, records: list[str], **words: Any) -> widen.IngestResult:
    source = folder / "in.json"
    source.write_text("\n".join(records), encoding="utf-8")
    done = widen.ingest(source, folder / "t", verify=True, allow_unmatched=True, **words)
    assert done.verification is not None
    assert done.verification.is_clean, (done.verification.places, str(done.verification))
    return done


def rows(folder: Path) -> list[dict[str, Any]]:
    return widen.Table(str(folder / "t")).to_arrow().to_pylist()


@pytest.mark.parametrize("second", ["7.0", "-19846620800460055.0", "1.5e3", "0.0", "-0.0", "7.5"])
@pytest.mark.parametrize("first", [["9", '"x"'], ["9.5", '"x"', '["y"]'], ["12345678901234567890", "true"]])
def test_an_integral_double_is_a_time_in_a_column_of_times(tmp_path: Path, first: list[str], second: str) -> None:
    texts = [f'{{"id":1,"at":{each}}}' for each in (*first, '"2026-01-02T03:04:05Z"')]
    load(tmp_path, texts, detect_dates=True, evolve="split")
    load(tmp_path, [f'{{"id":2,"at":{second}}}'], detect_dates=True, evolve="split", integral_doubles="convert")


def test_a_fraction_is_rounded_to_an_integer(tmp_path: Path) -> None:
    words = {"numbers": "double", "evolve": "split", "integral_doubles": "convert"}
    load(tmp_path, ['{"id":1,"s":1,"n":7}', '{"id":2,"s":1,"n":8}'], **KEYED, **words)
    load(tmp_path, ['{"id":1,"s":2,"n":-77813031662214672.5}', '{"id":2,"s":2,"n":9.0}'], **KEYED, **words)
    assert {(row["n"], row["n_double"]) for row in rows(tmp_path)} == {(None, -77813031662214672.0), (9, 9.0)}


def test_an_integral_double_is_not_rounded_beside_integers(tmp_path: Path) -> None:
    words = {"numbers": "double", "evolve": "split", "integral_doubles": "convert", "pins": {"n": "bigint"}}
    load(tmp_path, ['{"n":7}', '{"n":0.5}', '{"n":-45532928953368183.0}', '{"n":-45532928953368183.5}'], **words)


@pytest.mark.parametrize(
    "record",
    ['{"id":"1","s":2,"v":1}', '{"id":2,"s":"x","v":1}', '{"id":2,"s":123456789012345678901,"v":1}', '{"id":[],"s":1}'],
)
def test_a_key_or_a_sequence_without_a_place_is_a_reason(tmp_path: Path, record: str) -> None:
    load(tmp_path, ['{"id":1,"s":1.5,"v":0,"w":0}'], **KEYED)
    assert load(tmp_path, [record], **KEYED, max_columns=3).quarantined == 1


@pytest.mark.parametrize("words", [{}, {"history": True}])
def test_sequences_are_compared_with_18_digits_after_the_point(tmp_path: Path, words: dict[str, Any]) -> None:
    load(tmp_path, ['{"id":1,"s":1.5}', '{"id":2,"s":99999999999999999999}'], **KEYED, **words)
    numbers = ["1e-30", "-1e-30", "0.1234567890123456789012345", "5e19", "-1e20", "1e300"]
    texts = [f'{{"id":{at},"s":{number}}}' for at, number in enumerate(numbers, 10)]
    assert load(tmp_path, texts, **KEYED, **words).quarantined == 3


def test_an_empty_text_is_the_oldest_sequence(tmp_path: Path) -> None:
    load(tmp_path, ['{"id":1,"s":"b"}', '{"id":1,"s":""}'], **KEYED, history=True)
    load(tmp_path, ['{"id":1,"s":"","v":1}', '{"id":1,"s":"","v":2}', '{"id":2,"s":""}'], **KEYED, history=True)


def test_a_record_with_a_field_of_versions_is_in_the_quarantine(tmp_path: Path) -> None:
    load(tmp_path, ['{"id":1,"s":1}'], **KEYED, history=True)
    texts = ['{"id":1,"s":2,"_valid_from":4}', '{"id":2,"s":2,"_is_current":null}', '{"id":1,"s":3,"_VALID_TO":5}']
    assert load(tmp_path, texts, **KEYED, history=True).quarantined == 2


def test_a_time_beside_texts_has_no_place_in_their_order(tmp_path: Path) -> None:
    values = ["a", "b", True, 123456789012345678901, "2026-01-02", "2026-01-02T03:04:05Z", "2026-01-02T03:04:05+00:00"]
    texts = [json.dumps({"id": at, "s": value}) for at, value in enumerate(values)]
    assert load(tmp_path, texts, **KEYED, detect_dates=True).quarantined == 5


def test_a_row_without_its_hidden_operation_is_still_a_row(tmp_path: Path) -> None:
    row = '{"before":null,"after":{"id":%d%s,"v":{"k":"x"},"n":[]},' + SOURCE + "}"
    texts = [row % (1, ',"s":1'), row % (2, "")]
    assert load(tmp_path, texts, envelope="debezium", exclude=["_op"], max_columns=4, **KEYED).quarantined == 1


@pytest.mark.parametrize("words", [{"pins": {"a": "freeze"}}, {"pins": {"a": "bigint"}, "evolve": "freeze"}])
def test_a_name_in_another_case_is_that_of_the_policy(tmp_path: Path, words: dict[str, Any]) -> None:
    load(tmp_path, ['{"x":1}'])
    load(tmp_path, ['{"x":1,"a":3}', '{"A":"2598-04-22","x":2}'], **words)
    assert json.loads(rows(tmp_path)[1]["_rescued"] or "{}").keys() <= {"a", "x"}


@pytest.mark.parametrize(
    "values",
    [
        [2.0],
        [2.5, 1.0],
        [2**70, 1],
        [[2.0]],
        [{"c": 2.0}],
        pa.array([0.1], pa.float32()),
        pa.array([2], pa.decimal128(9, 2)),
    ],
    ids=str,
)
def test_rescued_numbers_of_sources_with_types(tmp_path: Path, values: Any) -> None:
    records: Any = [{"a": at, "b": value} for at, value in enumerate(values)]
    if isinstance(values, pa.Array):
        records = pa.table({"a": [0], "b": values})
    done = widen.ingest(records, tmp_path / "t", max_columns=1, verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    assert "_rescued" in widen.Table(str(tmp_path / "t")).schema.names


def test_a_field_of_a_source_with_types_has_no_role(tmp_path: Path) -> None:
    done = widen.ingest([{"_corrupt_record": "x", "id": 1}, {"_rescued": "y", "id": 2}], tmp_path / "t", verify=True)
    assert done.verification is not None
    assert done.verification.is_clean


@pytest.mark.parametrize("pin", [{}, {"pins": {"c": "map"}}])
@pytest.mark.parametrize("other", ['[{"k":"4"}]', '[[{"k":"4"}],[]]'])
def test_partial_records_are_merged_in_arrays_that_repeat_them(tmp_path: Path, other: str, pin: dict[str, Any]) -> None:
    """An array of records also holds the record of a field as its only item."""
    words = {**KEYED, **pin, "missing": "keep"}
    load(tmp_path, ['{"id":5,"s":2,"c":{"k":"t","w":"a"}}', f'{{"id":3,"s":1,"c":{other}}}'], **words)
    load(tmp_path, ['{"id":5,"s":3,"c":{"w":"e"}}'], **words)
    [row] = [row for row in rows(tmp_path) if row["id"] == 5]
    found = [dict(each) for each in map(innermost, row.values()) if isinstance(each, (dict, list))]
    assert found == [{"k": "t", "w": "e"}] * 2


@pytest.mark.parametrize("record", ["-34", "[-34]", "[[-34]]"])
def test_an_integer_beside_arrays_of_times_and_of_numbers(tmp_path: Path, record: str) -> None:
    first = '["9095-01-23T14:07:59.123Z","0236-06-21",[-97,"2024-05-01T00:00:00Z"]]'
    load(tmp_path, [f'{{"v":{first}}}'], detect_dates=True)
    load(tmp_path, [f'{{"v":{record}}}'], detect_dates=True)


@pytest.mark.parametrize("other", ['"5444-03-23T17:07:59.5Z"', '["5444-03-23T17:07:59.5Z","a"]', '"2026-01-02"'])
@pytest.mark.parametrize(
    "number", ["9007199254740993", "-58154025463617613", "1700000000000000123", "1700000000123456000"]
)
def test_an_integer_is_a_time_where_doubles_round_it(tmp_path: Path, number: str, other: str) -> None:
    texts = [f'{{"at":{each}}}' for each in (number, other, "318848088541010.2", '"2026-01-02T03:04:05Z"')]
    load(tmp_path, texts, detect_dates=True, numbers="double")
    load(tmp_path, [f'{{"at":{number}}}'], detect_dates=True, numbers="double")


def test_integral_doubles_beside_texts_keep_their_spelling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the kernel, each form of JSON says which column takes a value, if no text needs its spelling."""
    monkeypatch.setenv("WIDEN_KERNEL", "off")
    load(tmp_path, ['{"id":"x"}', '{"id":91}'])
    texts = ['{"id":false}', '{"id":1.0}', '{"id":2}', '{"id":"2026-01-02"}'] * 20
    load(tmp_path, [f"[{','.join(texts)}]"], integral_doubles="convert")
    assert {row["id"] for row in rows(tmp_path)} == {"x", "91", "false", "1.0", "2", "2026-01-02"}


def innermost(value: Any) -> Any:
    return innermost(value[0]) if isinstance(value, list) and not isinstance(value[0], tuple) else value
