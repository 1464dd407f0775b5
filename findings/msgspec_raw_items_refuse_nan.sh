#!/bin/sh
# msgspec 0.22.0. Raw leaves the text of a JSON value as it is, but NaN in it is refused.
# Expected: list[Raw] splits an array into the texts of its items, whatever numbers they hold: Raw is for decoding later, and
# Python's json reads NaN.
# Seen: MalformedJSON, also where NaN stands deep inside an item; the same text is taken by json.loads.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check msgspec==0.22.0
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import json

import msgspec

assert msgspec.__version__ == "0.22.0"
assert [bytes(each) for each in msgspec.json.decode(b'[{"a": [1.50]}, 2]', type=list[msgspec.Raw])] == [b'{"a": [1.50]}', b"2"]
for text in ('[{"a": [NaN]}]', "[NaN]", "[Infinity]"):
    json.loads(text)
    try:
        msgspec.json.decode(text, type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        assert "malformed" in str(error), error
    else:
        raise SystemExit(f"{text} is taken")
print("msgspec 0.22.0: Raw items with NaN or Infinity are refused, which json.loads reads")
END
