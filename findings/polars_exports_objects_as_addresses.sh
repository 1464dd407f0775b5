#!/bin/sh
# polars 2.1.0. A column of dtype Object goes through Arrow's C interface as fixed_size_binary[8]: bytes of memory, not values.
# Expected: an error, as for other types that Arrow does not have, or a type that says what it is.
# Seen: no error and no mark of an extension type; two equal objects may have other bytes. A reader that takes any table of
# Arrow stores them as binary values. to_arrow() of polars does the same.
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check polars==2.1.0 pyarrow==22.0.0
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import polars
import pyarrow as pa

assert polars.__version__ == "2.1.0"
frame = polars.DataFrame({"o": polars.Series([{1, 2}, {3}], dtype=polars.Object)})
for table in (pa.table(frame), frame.to_arrow()):
    (field,) = table.schema
    assert field.type == pa.binary(8), field
    assert not (field.metadata or {}), field.metadata
    assert all(len(value) == 8 for value in table["o"].to_pylist())
print("polars 2.1.0: objects are exported as", field.type, "without a mark")
END
