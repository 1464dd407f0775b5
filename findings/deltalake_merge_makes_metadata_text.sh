#!/bin/sh
# deltalake 1.6.6. An append that merges schemas writes all metadata of all columns back as text.
# Expected: metadata of columns that the append does not touch stay as they are; the protocol has lists, numbers and booleans
# there (delta.typeChanges, delta.columnMapping.id, delta.identity.allowExplicitInsert).
# Seen: after write_deltalake(..., schema_mode="merge") the list ["id"] is the text '["id"]', 7 is '7' and true is 'true'.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import json, tempfile
from pathlib import Path
import deltalake, pyarrow as pa

assert deltalake.__version__ == "1.6.6"
place = tempfile.mkdtemp() + "/t"
deltalake.write_deltalake(place, pa.table({"a": [1]}))
first = Path(place) / "_delta_log" / "00000000000000000000.json"
lines = [json.loads(line) for line in first.read_text().splitlines()]
for line in lines:
    if "metaData" in line:
        schema = json.loads(line["metaData"]["schemaString"])
        schema["fields"][0]["metadata"] = {"list": ["id"], "number": 7, "flag": True}
        line["metaData"]["schemaString"] = json.dumps(schema)
first.write_text("".join(json.dumps(line) + "\n" for line in lines))
deltalake.write_deltalake(place, pa.table({"a": [2], "b": [3]}), mode="append", schema_mode="merge")
second = (Path(place) / "_delta_log" / "00000000000000000001.json").read_text()
meta = next(json.loads(line)["metaData"] for line in second.splitlines() if "metaData" in line)
found = json.loads(meta["schemaString"])["fields"][0]["metadata"]
assert found == {"list": '["id"]', "number": "7", "flag": "true"}, found
print("deltalake 1.6.6: metadata after a merge of schemas:", json.dumps(found, sort_keys=True))
END
