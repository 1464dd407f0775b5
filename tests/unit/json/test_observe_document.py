from __future__ import annotations

from widen.json.document import parse_document
from widen.json.kinds import Kind
from widen.json.observation import Observation, RecordObservation, observation_signature, observe_record


def observe(*texts: bytes) -> RecordObservation:
    root: RecordObservation = {}
    for number, text in enumerate(texts, 1):
        observe_record(root, parse_document(text), ("f", number))
    return root


def test_values_are_counted_by_kind() -> None:
    field = observe(b'{"a":1}', b'{"a":2147483648}', b'{"a":"x"}', b'{"a":true}', b'{"a":2.5}', b'{"a":1e400}')["a"]
    counts = {str(kind): values.count for kind, values in field.kinds.items()}
    assert counts == {"long": 2, "string": 2, "boolean": 1, "double": 1}
    assert field.kinds[Kind("long")].fits_int32 is False


def test_a_mixed_array_gives_the_kind_of_each_element() -> None:
    field = observe(b'{"a":[1,"x",[2],{"b":1},null,[],{}]}')["a"]
    assert set(map(str, field.kinds)) == {"long[]", "string[]", "long[][]", "record[]"}
    assert (field.nulls, field.empty, field.empty_records) == ({1: 1}, {2: 1}, {1: 1})
    assert set(field.records[1]) == {"b"}


def test_nulls_and_empty_values_have_no_kind() -> None:
    field = observe(b'{"a":null}', b'{"a":[]}', b'{"a":{}}', b'{"a":[[]]}')["a"]
    assert field.kinds == {}
    assert (field.nulls, field.empty, field.empty_records) == ({0: 1}, {1: 1, 2: 1}, {0: 1})


def test_records_of_different_dims_are_observed_separately() -> None:
    field = observe(b'{"a":{"x":1}}', b'{"a":[{"y":1}]}')["a"]
    assert {dim: set(record) for dim, record in field.records.items()} == {0: {"x"}, 1: {"y"}}


def test_the_first_position_and_sample_are_kept() -> None:
    values = observe(b'{"a":"first"}', b'{"a":"second"}')["a"].kinds[Kind("string")]
    assert (values.first, values.sample) == (("f", 1), "first")


def test_the_signature_has_what_a_plan_depends_on() -> None:
    one = observation_signature(Observation(1, 0, observe(b'{"a":1}')))
    assert observation_signature(Observation(2, 0, observe(b'{"a":7}', b'{"a":8}'))) == one
    assert observation_signature(Observation(1, 1, observe(b'{"a":1}'))) != one
    assert observation_signature(Observation(1, 0, observe(b'{"a":2147483648}'))) != one
    assert observation_signature(Observation(1, 0, observe(b'{"a":1}', b'{"a":[]}'))) != one
    assert observation_signature(Observation(1, 0, observe(b'{"b":1}'))) != one
