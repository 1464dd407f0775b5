#!/bin/sh
# pyiceberg 0.12.0. A geometry or geography type with a reference system is parsed only if it stands in quotes.
# Expected: geometry(srid:3857) and geography(srid:4326,spherical), as Iceberg's specification writes types in JSON. A
# table with one such column cannot be opened at all, not even for its other columns.
# Seen: "Could not parse"; geometry('srid:3857'), which other clients do not write, is parsed.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyiceberg==0.12.0
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import pyiceberg
from pyiceberg.types import NestedField

assert pyiceberg.__version__ == "0.12.0"
def parses(text):
    try:
        NestedField.model_validate({"id": 1, "name": "a", "type": text, "required": False})
        return True
    except Exception:
        return False
found = [parses(text) for text in ("geometry", "geometry('srid:3857')", "geometry(srid:3857)", "geography(srid:4326,spherical)")]
assert found == [True, True, False, False], found
print("pyiceberg 0.12.0: geometry(srid:3857) parses:", found[2])
END
