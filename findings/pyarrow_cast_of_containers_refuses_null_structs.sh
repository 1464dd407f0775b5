#!/bin/sh
# pyarrow 26.0.1. A cast of a list to a large list with the same items: structs of which one is null, with a field that is
# declared as not nullable. The child of the null struct is null, too, which the format allows, and validate(full=True) passes.
# Expected: the cast changes the container only.
# Seen: ArrowInvalid: nulls in input cannot be viewed as non-nullable. With any other value behind the null struct it works. Spark
# hands such arrays to mapInArrow, e.g. for array(struct(1 AS a), null).
set -eu
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check pyarrow==26.0.1
"$place/venv/bin/python" - 2>"$place/errors" <<'END' || { tail -5 "$place/errors"; exit 1; }
import pyarrow as pa

assert pa.__version__ == "26.0.1"


def cast(child):
    item = pa.StructArray.from_arrays(
        [child], fields=[pa.field("a", pa.int32(), nullable=False)], mask=pa.array([False, True])
    )
    values = pa.ListArray.from_arrays([0, 2], item)
    values.validate(full=True)
    try:
        return values.cast(pa.large_list(item.type)).to_pylist()
    except pa.ArrowInvalid as error:
        return str(error).rpartition(": ")[2]


found = [cast(pa.array([1, 0], pa.int32())), cast(pa.array([1, None], pa.int32()))]
assert found == [[[{"a": 1}, None]], "nulls in input cannot be viewed as non-nullable"], found
print("pyarrow 26.0.1: behind a null struct, a 0 can be cast to a large list, and a null gives:", found[1])
END
