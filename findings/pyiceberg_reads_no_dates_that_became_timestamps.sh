#!/bin/sh
# PyIceberg 0.12.0 with pyarrow 26.0.1. Iceberg's format version 3 allows a date to become a timestamp without a rewrite of files.
# Expected: PyIceberg reads metadata of version 3 and the new type, so that it reads a day of an old file as its midnight, and
# takes a bound of 4 bytes for a day, as the specification says in "Schema Evolution".
# Seen: a scan of all rows fails in the conversion of values, and a filter fails in the bounds, which it expects to have 8 bytes.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check "pyiceberg[sql-sqlite,pyarrow]==0.12.0" pyarrow==26.0.1
"$place/venv/bin/python" - "$place" 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import copy, datetime, json, sys
import pyarrow as pa, pyiceberg
from pathlib import Path
from pyiceberg.catalog.sql import SqlCatalog

assert (pyiceberg.__version__, pa.__version__) == ("0.12.0", "26.0.1")
place = sys.argv[1]
catalog = SqlCatalog("c", uri=f"sqlite:///{place}/c.db", warehouse=f"file://{place}/warehouse")
catalog.create_namespace("n")
table = catalog.create_table("n.t", pa.schema([("day", pa.date32())]))
table.append(pa.table({"day": [datetime.date(2024, 1, 1)]}))
path = Path(table.metadata_location.removeprefix("file://"))
metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0}
changed = copy.deepcopy(metadata["schemas"][0]) | {"schema-id": 1}
changed["fields"][0]["type"] = "timestamp"
path.write_text(json.dumps(metadata | {"schemas": [*metadata["schemas"], changed], "current-schema-id": 1}))
table = catalog.load_table("n.t")
assert str(table.schema().find_type("day")) == "timestamp"
seen = []
for options in ({}, {"row_filter": "day > '2000-01-01T00:00:00'"}):
    try:
        seen.append(table.scan(**options).to_arrow().to_pylist())
    except Exception as error:
        seen.append(f"{type(error).__name__}: {error}")
assert seen == [
    "AttributeError: 'pyarrow.lib.DataType' object has no attribute 'tz'",
    "error: unpack requires a buffer of 8 bytes",
], seen
print("PyIceberg 0.12.0 reads a date that became a timestamp neither without a filter nor with one:", seen)
END
