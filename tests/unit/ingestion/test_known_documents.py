"""Documents of well-known formats, with the values that their specifications show, below their paths."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import widen

# AWS CloudTrail user guide, "CloudTrail log file examples"; files are gzipped.
CLOUDTRAIL = {
    "Records": [
        {
            "eventVersion": "1.08",
            "userIdentity": {"type": "IAMUser", "accountId": "888888888888", "userName": "Mary"},
            "eventTime": "2023-07-19T21:17:28Z",
            "eventName": "StartInstances",
            "requestParameters": {
                "instancesSet": {"items": [{"instanceId": "i-EXAMPLE1"}, {"instanceId": "i-EXAMPLE2"}]}
            },
            "responseElements": None,
            "readOnly": False,
        },
        {
            "eventVersion": "1.08",
            "userIdentity": {"type": "AWSService", "invokedBy": "ec2.amazonaws.com"},
            "eventTime": "2023-07-19T21:18:00Z",
            "eventName": "GetBucketAcl",
            "requestParameters": None,
            "readOnly": True,
        },
    ]
}
# OpenTelemetry protocol, examples/logs.json: 64-bit integers are strings.
OPENTELEMETRY = {
    "resourceLogs": [
        {
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "my.service"}}]},
            "scopeLogs": [
                {
                    "scope": {"name": "my.library", "version": "1.0.0"},
                    "logRecords": [
                        {
                            "timeUnixNano": "1544712660300000000",
                            "severityNumber": 10,
                            "severityText": "Information",
                            "traceId": "5B8EFFF798038103D269B633813FC60C",
                            "body": {"stringValue": "Example log record"},
                            "attributes": [
                                {"key": "boolean.attribute", "value": {"boolValue": True}},
                                {"key": "int.attribute", "value": {"intValue": "10"}},
                                {"key": "double.attribute", "value": {"doubleValue": 637.704}},
                            ],
                        }
                    ],
                }
            ],
        },
        {"resource": {"attributes": []}, "scopeLogs": [{"scope": {}, "logRecords": []}]},
    ]
}
# HL7 FHIR R4, Bundle, example of a searchset.
FHIR = {
    "resourceType": "Bundle",
    "id": "bundle-example",
    "type": "searchset",
    "total": 3,
    "entry": [
        {
            "fullUrl": "https://example.com/base/MedicationRequest/3123",
            "resource": {
                "resourceType": "MedicationRequest",
                "id": "3123",
                "subject": {"reference": "Patient/347"},
                "status": "unknown",
            },
            "search": {"mode": "match", "score": 1},
        },
        {
            "fullUrl": "https://example.com/base/Medication/example",
            "resource": {"resourceType": "Medication", "id": "example"},
            "search": {"mode": "include"},
        },
    ],
}
# Elasticsearch reference, "Run a search".
ELASTICSEARCH = {
    "took": 5,
    "timed_out": False,
    "_shards": {"total": 1, "successful": 1, "skipped": 0, "failed": 0},
    "hits": {
        "total": {"value": 20, "relation": "eq"},
        "max_score": 1.3862942,
        "hits": [
            {
                "_index": "my-index-000001",
                "_id": "0",
                "_score": 1.3862942,
                "_source": {
                    "@timestamp": "2099-11-15T14:12:12",
                    "http": {"response": {"status_code": 200, "bytes": 1070000}, "version": "1.1"},
                    "user": {"id": "kimchy"},
                },
            }
        ],
    },
}
# Pages of a REST service, as Django REST framework and others write them.
REST = {
    "count": 1023,
    "next": "https://api.example.org/accounts/?page=5",
    "previous": None,
    "results": [{"id": 7, "email": "a@example.org"}, {"id": 8, "email": None}],
}
# RFC 7946, section 1.5.
GEOJSON = {
    "type": "FeatureCollection",
    "features": [
        {
            "type": "Feature",
            "geometry": {"type": "Point", "coordinates": [102.0, 0.5]},
            "properties": {"prop0": "value0"},
        },
        {
            "type": "Feature",
            "geometry": {"type": "LineString", "coordinates": [[102.0, 0.0], [103.0, 1.0], [104.0, 0.0], [105.0, 1.0]]},
            "properties": {"prop0": "value0", "prop1": 0.0},
        },
        {
            "type": "Feature",
            "geometry": {
                "type": "Polygon",
                "coordinates": [[[100.0, 0.0], [101.0, 0.0], [101.0, 1.0], [100.0, 1.0], [100.0, 0.0]]],
            },
            "properties": {"prop0": "value0", "prop1": {"this": "that"}},
        },
    ],
}

Row = dict[str, Any]


def load(place: Path, document: Any, records: str, keep: Any = None, **words: Any) -> list[Row]:
    """Return the rows of a document on one line, and check that its other framings give the same."""
    found = []
    for number, data in enumerate(
        (
            json.dumps(document).encode() + b"\n",
            gzip.compress(json.dumps(document, indent=2).encode()),
            json.dumps([document]).encode(),
        )
    ):
        source = place / (f"{number}.json.gz" if number == 1 else f"{number}.json")
        source.write_bytes(data)
        into = place / f"t{number}"
        result = widen.ingest(source, into, records=records, keep=keep, verify=True, engine="local", **words)
        assert result.verification is not None
        assert result.verification.is_clean
        found.append(sorted(widen.Table(into).to_arrow().to_pylist(), key=str))
    assert found[0] == found[1] == found[2]
    return [without_nulls(row) for row in found[0]]


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_nulls(each) for key, each in value.items() if each is not None}
    return [*map(without_nulls, value)] if isinstance(value, list) else value


def test_cloudtrail(tmp_path: Path) -> None:
    second, first = sorted(load(tmp_path, CLOUDTRAIL, "Records[*]"), key=lambda row: row["eventName"])
    assert first == without_nulls(CLOUDTRAIL["Records"][0])
    assert second == without_nulls(CLOUDTRAIL["Records"][1])


def test_opentelemetry(tmp_path: Path) -> None:
    path = "resourceLogs[*].scopeLogs[*].logRecords[*]"
    (row,) = load(tmp_path, OPENTELEMETRY, path, ["resource", "scope"])
    assert row["timeUnixNano"] == "1544712660300000000"
    assert (row["severityNumber"], row["body"]) == (10, {"stringValue": "Example log record"})
    assert row["attributes"][2] == {"key": "double.attribute", "value": {"doubleValue": 637.704}}
    assert row["_parent_scopeLogs_scope"] == {"name": "my.library", "version": "1.0.0"}
    (attribute,) = row["_parent_resourceLogs_resource"]["attributes"]
    assert attribute == {"key": "service.name", "value": {"stringValue": "my.service"}}


def test_bundles_of_fhir(tmp_path: Path) -> None:
    rows = load(tmp_path, FHIR, "entry[*].resource", ["fullUrl", "search", "id"])
    second, first = sorted(rows, key=lambda row: row["resourceType"])
    assert (first["id"], first["subject"], first["_parent_id"]) == (
        "3123",
        {"reference": "Patient/347"},
        "bundle-example",
    )
    assert first["_parent_entry_search"] == {"mode": "match", "score": 1}
    assert second == {
        "resourceType": "Medication",
        "id": "example",
        "_parent_id": "bundle-example",
        "_parent_entry_fullUrl": "https://example.com/base/Medication/example",
        "_parent_entry_search": {"mode": "include"},
    }


@pytest.mark.parametrize("path", ["hits.hits[*]", "hits.hits[*]._source"])
def test_hits_of_elasticsearch(tmp_path: Path, path: str) -> None:
    is_source = path.endswith("_source")
    (row,) = load(tmp_path, ELASTICSEARCH, path, ["took", "total", *(["_id"] if is_source else [])])
    source = row if is_source else row["_source"]
    assert source["http"] == {"response": {"status_code": 200, "bytes": 1070000}, "version": "1.1"}
    assert source["@timestamp"] == "2099-11-15T14:12:12"
    assert row["_parent_took"] == 5
    assert row["_parent_hits_total"] == {"value": 20, "relation": "eq"}
    assert (row["_parent_hits_hits__id"] if is_source else row["_id"]) == "0"


def test_pages_of_a_rest_service(tmp_path: Path) -> None:
    rows = sorted(load(tmp_path, REST, "results[*]", "all"), key=lambda row: row["id"])
    above = {"_parent_count": 1023, "_parent_next": "https://api.example.org/accounts/?page=5"}
    assert rows == [{"id": 7, "email": "a@example.org", **above}, {"id": 8, **above}]


def test_features_of_geojson(tmp_path: Path) -> None:
    """Coordinates of points, lines and polygons have one, two and three levels: each has a column of its own."""
    features: Any = GEOJSON["features"]
    rows = load(tmp_path, GEOJSON, "features[*]", ["type"])
    kinds = [feature["geometry"]["type"] for feature in features]
    point, line, polygon = sorted(rows, key=lambda row: kinds.index(row["geometry"]["type"]))
    assert point["_parent_type"] == "FeatureCollection"
    shapes = [point["geometry"], line["geometry"], polygon["geometry"]]
    names = ["coordinates_array_double", "coordinates_array2_double", "coordinates"]
    found = [shape[name] for shape, name in zip(shapes, names, strict=True)]
    assert found == [feature["geometry"]["coordinates"] for feature in features]
    assert line["properties"] == {"prop0": "value0", "prop1_double": 0.0}
    assert polygon["properties"] == {"prop0": "value0", "prop1": {"this": "that"}}
