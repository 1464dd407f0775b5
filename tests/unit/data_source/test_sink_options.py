"""The options of a sink are those of ingestions; what makes no sense for a sink is refused by name."""

from __future__ import annotations

from typing import Any, ForwardRef

import pytest

from widen.data_source.batch_reader import SourceOptions
from widen.data_source.ingest_sink import _REFUSED, IngestSink, parse_option, parse_sink, sink_options
from widen.errors import InvalidOption
from widen.ingestion.ingest_options import IngestOptions, StreamOptions
from widen.model.argument_types import has_type
from widen.model.keyword_options import declared


def sink(*, is_overwrite: bool = False, **given: str) -> IngestSink:
    options = {"path": "/t", "ingest": "json", **given}
    return parse_sink(
        SourceOptions({name.lower(): value for name, value in options.items()}), is_overwrite=is_overwrite
    )


SAMPLES = {"partition_by": "day, bucket(4, id)", "verify": "0.5", "pins": '{"a": "text"}', "epoch_unit": '{"a": "ms"}'}


def test_every_option_of_ingestions_has_a_value_in_text_or_is_refused_by_name() -> None:
    every = {**declared(IngestOptions), **declared(StreamOptions)}
    assert {*sink_options()} == {*every} - {*_REFUSED}
    for name, (kind, option) in sink_options().items():
        text = SAMPLES.get(name) or next(iter(option.choices), "true" if has_type(True, kind) else "1")
        value = parse_option(name, kind, text)
        assert isinstance(kind, ForwardRef) or has_type(value, kind), (name, value)


@pytest.mark.parametrize("name", [name for name in _REFUSED if name in declared(IngestOptions)])
def test_what_makes_no_sense_for_a_sink_is_refused_with_what_to_do(name: str) -> None:
    with pytest.raises(InvalidOption, match=f"{name} cannot be") as caught:
        sink(**{name: "x"})
    assert caught.value.advice == _REFUSED[name]


def test_names_are_written_as_in_spark_or_as_in_python() -> None:
    given: dict[str, str] = {"key": "id, ns", "sequenceBy": "at", "max_corrupt": "1%", "sourceColumns": "TRUE"}
    options = sink(**given, evolve="split", mask='["a,b", "c"]', pins='{"d": "json"}', verify="0.5").options
    chosen = {name: options[name] for name in ("key", "sequence_by", "max_corrupt", "source_columns", "mask", "pins")}
    assert chosen == {
        "key": ["id", "ns"],
        "sequence_by": "at",
        "max_corrupt": "1%",
        "source_columns": True,
        "mask": ["a,b", "c"],
        "pins": {"d": "json"},
    }
    assert (options["verify"], options["evolve"]) == (0.5, "split")


def test_options_that_spark_adds_and_those_of_the_store_are_left_alone() -> None:
    found = sink(queryName="orders", checkpointLocation="/c", AWS_ACCESS_KEY_ID="me", path="s3://bucket/t")
    assert found.options["storage_options"] == {"aws_access_key_id": "me"}


@pytest.mark.parametrize(
    ("given", "message", "advice"),
    [
        ({"ingest": "csv"}, "ingest cannot be 'csv'.", "Must be json"),
        ({"sequnce_by": "at"}, "an option cannot be 'sequnce_by'.", "Did you mean sequenceby?"),
        ({"mergeSchema": "true"}, "mergeSchema cannot be 'true'.", "adds and widens columns by itself"),
        ({"delta.appendOnly": "true"}, "delta.appendonly cannot be 'true'.", "Create it first"),
        ({"strict": "perhaps"}, "strict cannot be 'perhaps'.", "Must be true or false."),
        ({"max_columns": "many"}, "max_columns cannot be 'many'.", "Must be a number."),
        ({"pins": "a=json"}, "pins cannot be 'a=json'.", 'a JSON object, e.g. {"a.b": "json"}'),
        ({"pins": '{"a"'}, "pins cannot be '{\"a\"'.", "Must be JSON"),
        ({"verify": "2"}, "verify cannot be 2.0.", "between 0 and 1"),
        ({"max_corrupt": "-1"}, "max_corrupt cannot be '-1'.", "Must be a whole number"),
        ({"max_columns": "0"}, "max_columns cannot be 0.", "an integer >= 1"),
        ({"evolve": "grow"}, "evolve cannot be 'grow'.", "widen"),
        ({"maxBatchBytes": "0"}, "maxBatchBytes cannot be '0'.", "an integer >= 1"),
        ({"ingest": "rows", "column": "a"}, "column cannot be 'a'.", "ingest = json"),
        ({"txnAppId": "widen.mine", "txnVersion": "1"}, "txnAppId and txnVersion cannot be ('widen.mine', 1).", "own"),
        ({"txnAppId": "a", "txnVersion": "x"}, "txnVersion cannot be 'x'.", "an integer >= 0"),
        ({"txnAppId": "a"}, "txnVersion is missing.", "together they name a batch"),
        ({"txnVersion": "1"}, "txnAppId is missing.", "together they name a batch"),
        ({"path": ""}, "path cannot be ''.", "Give the location of the table"),
    ],
)
def test_what_cannot_be_used_is_refused(given: dict[str, str], message: str, advice: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        sink(**given)
    assert caught.value.message == message
    assert advice in str(caught.value.advice)


def test_a_write_that_replaces_everything_is_refused() -> None:
    with pytest.raises(InvalidOption, match="mode cannot be") as caught:
        sink(is_overwrite=True)
    assert "outputMode" in str(caught.value.advice)


def test_what_a_list_separates() -> None:
    kind: Any = declared(StreamOptions)["partition_by"][0]
    assert parse_option("partition_by", kind, "bucket(16, id), day(at)") == ["bucket(16, id)", "day(at)"]
    assert parse_option("key", declared(StreamOptions)["key"][0], "`a,b`, c") == ["`a,b`", "c"]
