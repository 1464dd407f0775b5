from __future__ import annotations

import pytest

from widen.log.log_store import LogStore
from widen.spark.session import hadoop_options


def options(location: str, **given: str) -> dict[str, str]:
    """Return the options without the prefix of the bucket, which all of them must have."""
    result = hadoop_options(LogStore(location, given))
    assert all(key.startswith("fs.s3a.bucket.lake.") for key in result)
    return {key.removeprefix("fs.s3a.bucket.lake."): value for key, value in result.items()}


def test_keys_and_the_endpoint_become_those_of_hadoop() -> None:
    given = {"AWS_ACCESS_KEY_ID": "me", "aws_secret_access_key": "s", "AWS_REGION": "eu-west-1"}
    assert options("s3://lake/t", **given) == {
        "access.key": "me",
        "secret.key": "s",
        "endpoint.region": "eu-west-1",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    assert options("s3a://lake/t", endpoint_url="http://127.0.0.1:9000", session_token="t", access_key_id="me") == {
        "access.key": "me",
        "session.token": "t",
        "endpoint": "http://127.0.0.1:9000",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
    }


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"timeout": "3s"}, {}),
        ({"aws_virtual_hosted_style_request": "true"}, {"path.style.access": "false"}),
        (
            {"aws_skip_signature": "true"},
            {"aws.credentials.provider": "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"},
        ),
    ],
)
def test_other_options(given: dict[str, str], expected: dict[str, str]) -> None:
    assert options("s3://lake/t", **given) == expected


def test_other_stores_have_none() -> None:
    assert hadoop_options(LogStore("/lake/t", {"AWS_ACCESS_KEY_ID": "me"})) == {}
    assert hadoop_options(LogStore("gs://lake/t", {"google_service_account": "me"})) == {}
