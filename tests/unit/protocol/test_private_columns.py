"""Columns of hidden fields, and of those without statistics, have no bounds in the log, in footers and in manifests."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from widen.evolution.plan import Plan, Unmatched, policy_properties
from widen.evolution.policy import Policy
from widen.files.data_writer import PartSink, PartWriter
from widen.files.footers import footer_of
from widen.iceberg.file_metrics import COUNTS_ONLY, metrics_modes
from widen.model.column_path import Path
from widen.model.schema_json import parse_type
from widen.model.types import STRING, Field, StructType
from widen.protocol.file_statistics import HIDDEN_FIELDS, NO_STATS, indexed_leaves, private_columns


def table() -> StructType:
    found = parse_type(
        "struct<id: int, email: string, email_2: int, s: struct<email: string, n: int>, l: array<struct<Email: int>>,"
        " m: map<string,string>, t: string, `a.b`: int>"
    )
    assert isinstance(found, StructType)
    sources = {"email_2": ["eMail"], "t": ["s"]}
    columns = [f.with_metadata(**{"widen.source": sources[f.name]}) if f.name in sources else f for f in found]
    return StructType((*columns, Field("_rescued", STRING, metadata={"widen.role": "_rescued"})))


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({}, []),
        ({HIDDEN_FIELDS: "EMAIL"}, [("_rescued",), ("email",), ("email_2",)]),
        # A text beside a record may spell out its field.
        ({NO_STATS: "s.email"}, [("_rescued",), ("s", "email"), ("t",)]),
        ({NO_STATS: "l.email, m.key"}, [("_rescued",), ("l", "element", "Email"), ("m",)]),
        ({HIDDEN_FIELDS: "`A.b`", NO_STATS: "nothing"}, [("_rescued",), ("a.b",)]),
    ],
)
def test_private_columns_are_those_of_a_field_in_any_case(properties: dict[str, str], expected: list[Path]) -> None:
    schema = table()
    assert sorted(private_columns(schema, properties)) == expected
    left_out = indexed_leaves(schema, {}, ()) - indexed_leaves(schema, properties, ())
    assert {path for path in expected if "element" not in path} == left_out
    named = {**properties, "delta.dataSkippingStatsColumns": "email, id"}
    assert (("email",) in indexed_leaves(schema, named, ())) == (("email",) not in expected)


def test_manifests_have_counts_of_private_columns_only() -> None:
    numbered = parse_type("struct<id: int, email: string>")
    assert isinstance(numbered, StructType)
    key = "delta.columnMapping.id"
    columns = StructType(tuple(field.with_metadata(**{key: at}) for at, field in enumerate(numbered, 1)))
    assert metrics_modes(columns, {NO_STATS: "Email"}) == {1: 16, 2: COUNTS_ONLY}


class Store:
    def __init__(self) -> None:
        self.files: list[BytesIO] = []

    def create(self, _: str) -> BytesIO:
        file = BytesIO()
        file.close = lambda: None  # type: ignore[method-assign]
        self.files.append(file)
        return file


def test_footers_have_no_bounds_of_private_columns() -> None:
    rows = pa.table({"id": [1], "s": [{"email": "zacharias", "n": 7}], "l": [[{"Email": 9}]], "d": [float("nan")]})
    store: Any = Store()
    private = frozenset([("s", "email"), ("l",)])
    described: list[Any] = []

    def describe(metadata: pq.FileMetaData, _: object) -> tuple[str, str]:
        described.append(metadata)
        return footer_of(metadata, frozenset([("id",), ("s", "email"), ("s", "n"), ("d",)])).stats, ""

    writer = PartWriter(PartSink(store, "job", "none", describe, private=private), rows.schema)
    writer.write(rows.to_batches()[0])
    (part,) = writer.close()
    group = described[0].row_group(0)
    chunks = [group.column(at) for at in range(group.num_columns)]
    bounded = [chunk.path_in_schema for chunk in chunks if chunk.is_stats_set and chunk.statistics.has_min_max]
    assert bounded == ["id", "s.n"]
    assert "zacharias" not in part.stats
    assert '"n":7' in part.stats


def test_tables_record_what_a_batch_has() -> None:
    policy = Policy(
        masked=frozenset([("a",), ("typo",)]), excluded=frozenset([("b", "C")]), no_stats=frozenset([("d",)])
    )
    plan = Plan((), StructType(), unmatched=(Unmatched("mask", ("typo",), "no such field"),))
    recorded = policy_properties(policy, plan, {HIDDEN_FIELDS: "x, `B`.c"})
    assert recorded == {HIDDEN_FIELDS: "B.c, a, x", NO_STATS: "d"}
    assert policy_properties(policy, plan, recorded) == {}
