from __future__ import annotations

from collections.abc import Mapping

import pytest

from widen.json.field_rules import FileFields, merge_file_fields


@pytest.mark.parametrize(
    ("file", "fields"),
    [
        ("file:/data/f.json", {}),
        ("file:/data/dt=2026-01-01/region=eu/f.json", {"dt=": "2026-01-01", "region=": "eu"}),
        ("file:/data/dt=2026-01-01/k=v.json", {"dt=": "2026-01-01"}),
        ("s3a://bucket/dt=1/f.json from byte 100", {"dt=": "1"}),
        ("file:/at=10%253A30/who=a%20b/f.json", {"at=": "10:30", "who=": "a b"}),
        ("file:/share=100%25/sum=a+b/f.json", {"share=": "100%", "sum=": "a+b"}),
        ("file:/name=%C3%A9/odd=%25FF/f.json", {"name=": "é", "odd=": "%FF"}),
        ("file:/k=__HIVE_DEFAULT_PARTITION__/e=/f.json", {"k=": None, "e=": None}),
        ("file:/=x/a=b=c/f.json", {"a=": "b=c"}),
        ("file:/a=1/a=2/f.json", {"a=": "1", "a==": "2"}),
        ("", {}),
    ],
)
def test_folders_are_fields(file: str, fields: Mapping[str, str | None]) -> None:
    assert FileFields().of(file) == fields
    assert FileFields(has_folders=False).of(file) == {}


def test_the_file_and_the_time_of_the_load_are_fields() -> None:
    fields = FileFields(loaded_at="2026-01-01T00:00:00.000000Z").of("file:/a=1/f.json from byte 7")
    source_fields = {"_source_file=": "file:/a=1/f.json", "_loaded_at=": "2026-01-01T00:00:00.000000Z"}
    assert fields == {"a=": "1", **source_fields}


def test_the_names_of_fields_have_no_sign() -> None:
    assert FileFields().names(["file:/a=1/f", "file:/a=2/b=3/f"]) == {"a", "b"}


def test_a_record_keeps_its_own_keys() -> None:
    assert merge_file_fields({"a": 1, "b=": 2}, {"a=": "x", "b=": "y"}) == {"a": 1, "b=": 2, "a=": "x", "b==": "y"}
