from __future__ import annotations

import pytest

from widen.data_source.batch_reader import parse_source_options
from widen.errors import InvalidOption


def test_options_are_text_numbers_flags_and_credentials() -> None:
    given = {
        "path": "s3://bucket/t",
        "MAXFILESPERTRIGGER": "3",
        "mergeschema": "TRUE",
        "partitionBy": "a, b",
        "delta.enableTypeWidening": "true",
        "aws_access_key_id": "me",
        "queryname": "orders",
        "checkpointlocation": "/c",
    }
    options = parse_source_options(given)
    assert options.number("maxFilesPerTrigger", 1) == 3
    assert (options.flag("mergeSchema"), options.flag("ignoreDeletes")) == (True, False)
    assert options.partition_by == ["a", "b"]
    assert options.properties == {"delta.enabletypewidening": "true"}
    assert options.open_store().storage_options == {"aws_access_key_id": "me"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "/t", "versonAsOf": "1"}, "an option cannot be 'versonasof'."),
        ({"versionAsOf": "1", "timestampAsOf": "2024"}, "timestampAsOf cannot be '2024'."),
        ({"startingVersion": "1", "startingTimestamp": "2024"}, "startingTimestamp cannot be '2024'."),
        ({"paths": '["/a","/b"]'}, 'path cannot be \'["/a","/b"]\'.'),
        ({"owner": "me", "provider": "widen", "path": "file:/t"}, "USING cannot be 'widen'."),
    ],
)
def test_unknown_and_contradicting_options_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_source_options(given)
    assert caught.value.message == message


def test_values_of_the_wrong_form_are_refused() -> None:
    options = parse_source_options({"versionAsOf": "-1", "mergeSchema": "perhaps", "maxFilesPerTrigger": "0"})
    for read in (
        lambda: options.number("versionAsOf"),
        lambda: options.flag("mergeSchema"),
        lambda: options.number("maxFilesPerTrigger", 1),
        options.open_store,
    ):
        with pytest.raises(InvalidOption):
            read()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"txnAppId": "nightly"}, "txnVersion is missing."),
        ({"txnVersion": "1"}, "txnAppId is missing."),
        ({"txnAppId": "", "txnVersion": "1"}, "txnAppId and txnVersion cannot be ('', 1)."),
        ({"txnAppId": "widen.loads", "txnVersion": "1"}, "txnAppId and txnVersion cannot be ('widen.loads', 1)."),
        ({"txnAppId": "nightly", "txnVersion": "-1"}, "txnVersion cannot be '-1'."),
        ({"txnAppId": "nightly", "txnVersion": str(2**63)}, f"txnAppId and txnVersion cannot be ('nightly', {2**63})."),
    ],
)
def test_the_batch_of_an_application_has_an_id_and_a_number(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        parse_source_options(given).transaction()
    assert caught.value.message == message


def test_a_stream_has_a_batch_of_its_own() -> None:
    parse_source_options({"path": "/t"}).ensure_no_transaction()
    for given in ({"txnAppId": "nightly", "txnVersion": "1"}, {"txnVersion": "1"}):
        with pytest.raises(InvalidOption) as caught:
            parse_source_options(given).ensure_no_transaction()
        assert "foreachBatch" in str(caught.value.advice)
