#!/bin/sh
# fastavro 1.13.1. A decoded value of a union does not tell from which branch it came, unless that is a record.
# Expected: with return_record_name=True, the option that names branches, a value of any branch comes with its type, since
# two branches may have values that look alike.
# Seen: of ["int", "long", "string", record] the bytes of the branches int and long both give 5; only the record is a pair of
# its name and its value. A reader that must know the branch has to wrap each one into a record of one field, which has the
# same bytes.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check fastavro==1.13.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import io
from importlib.metadata import version

import fastavro

assert version("fastavro") == "1.13.1"
record = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}
schema = {"type": "record", "name": "top", "fields": [{"name": "v", "type": ["int", "long", "string", record]}]}
# The branch, as a zigzag number, and the value: an int 5, a long 5, a text, a record.
found = []
for encoded in (b"\x00\x0a", b"\x02\x0a", b"\x04\x02x", b"\x06\x0a"):
    read = fastavro.schemaless_reader(io.BytesIO(encoded), schema, None, return_record_name=True)
    found.append(read["v"])
assert found == [5, 5, "x", ("r", {"a": 5})], found
print("fastavro 1.13.1: a union of int and long gives", found[0], "for both branches; a record gives", found[3])
END
