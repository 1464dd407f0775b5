"""NaN, Infinity and -Infinity in JSON: corrupt by default, and doubles with ``allow_nan``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

import widen
from widen import IngestResult
from widen.cli.app import app
from widen.errors import SourceError
from widen.model.native_kernel import KERNEL_VARIABLE, find_kernel

NAN, INFINITY = float("nan"), float("inf")


class Loader:
    """Loads batches of lines into one table, and proves each load."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.folder, self.options, self.batches = folder, options, 0
        self.location: Any = str(folder / "t")

    def load(self, *lines: str, **options: Any) -> IngestResult:
        self.batches += 1
        source = self.folder / f"{self.batches}.json"
        source.write_text("\n".join(lines))
        done = widen.ingest(source, self.location, verify=True, **{"allow_nan": True, **self.options, **options})
        assert done.verification is not None
        assert done.verification.is_clean
        return done

    @property
    def table(self) -> widen.Table:
        return widen.Table(self.location)

    @property
    def types(self) -> dict[str, str]:
        return {field.name: field.type.sql.lower() for field in self.table.schema}

    def rows(self) -> list[str]:
        """The rows as texts, in which each NaN equals the other, without their nulls."""
        return sorted(
            repr({name: value for name, value in row.items() if value is not None})
            for row in self.table.to_arrow().to_pylist()
        )


@pytest.fixture(params=["on", "off"])
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Records with NaN take the same way with the native code and without it."""
    monkeypatch.setenv(KERNEL_VARIABLE, request.param)
    find_kernel.cache_clear()
    if request.param == "on" and find_kernel() is None:
        pytest.skip("this process has no native code")
    yield str(request.param)
    find_kernel.cache_clear()


CASES: dict[str, tuple[Sequence[str], str, dict[str, Any], dict[str, str], list[dict[str, Any]]]] = {
    "a new field": ((), '{"v":NaN}', {}, {"v": "double"}, [{"v": NAN}]),
    "doubles": (['{"v":0.5}'], '{"v":-Infinity}', {}, {"v": "double"}, [{"v": 0.5}, {"v": -INFINITY}]),
    # As 1.5 would be: an int becomes a double in place, a long gets one beside it.
    "integers": (['{"v":5}'], '{"v":NaN}', {}, {"v": "double"}, [{"v": 5.0}, {"v": NAN}]),
    "both in one batch": ((), '{"v":5}\n{"v":NaN}', {}, {"v": "double"}, [{"v": 5.0}, {"v": NAN}]),
    "long integers": (
        ['{"v":5000000000}'],
        '{"v":NaN}',
        {},
        {"v": "bigint", "v_double": "double"},
        [{"v": 5000000000}, {"v_double": NAN}],
    ),
    "integers in mode split": (
        ['{"v":5}'],
        '{"v":Infinity}',
        {"evolve": "split"},
        {"v": "bigint", "v_double": "double"},
        [{"v": 5}, {"v_double": INFINITY}],
    ),
    # No decimal is NaN. The text is the column of all values, as beside a decimal and 1e300.
    "decimals": (
        ['{"v":12.50}'],
        '{"v":NaN}',
        {"numbers": "decimal"},
        {"v": "decimal(4,2)", "v_double": "double", "v_string": "string"},
        [{"v": "12.50"}, {"v_double": NAN, "v_string": "NaN"}],
    ),
    "rounded doubles": (
        ['{"v":0.1000000000000000000001}'],
        '{"v":NaN}',
        {"numbers": "double"},
        {"v": "double"},
        [{"v": 0.1}, {"v": NAN}],
    ),
    "texts": (['{"v":"x"}'], '{"v":NaN}', {}, {"v": "string"}, [{"v": "x"}, {"v": "NaN"}]),
    "booleans": (
        ['{"v":true}'],
        '{"v":NaN}',
        {},
        {"v": "boolean", "v_double": "double"},
        [{"v": True}, {"v_double": NAN}],
    ),
    "floats": (
        ['{"v":0.5}'],
        '{"v":NaN}\n{"v":-Infinity}',
        {"pins": {"v": "float"}},
        {"v": "float", "v_double": "double"},
        [{"v": 0.5, "v_double": 0.5}, {"v": NAN, "v_double": NAN}, {"v": -INFINITY, "v_double": -INFINITY}],
    ),
    "a pinned integer": (
        (),
        '{"v":NaN}',
        {"pins": {"v": "int"}},
        {"v": "int", "v_double": "double"},
        [{"v_double": NAN}],
    ),
    "a pinned text": ((), '{"v":[NaN]}', {"pins": {"v": "json"}}, {"v": "string"}, [{"v": "[NaN]"}]),
    "arrays and records": (
        (),
        '{"a":[NaN,1,null],"b":{"c":-Infinity},"d":[{"e":NaN}]}',
        {},
        {"a": "array<double>", "b": "struct<c: double>", "d": "array<struct<e: double>>"},
        [{"a": [NAN, 1.0, None], "b": {"c": -INFINITY}, "d": [{"e": NAN}]}],
    ),
    "maps": (
        ['{"m":{"x":1}}'],
        '{"m":{"x":NaN,"y":2}}',
        {"pins": {"m": "map"}},
        {"m": "map<string,double>"},
        [{"m": [("x", 1.0)]}, {"m": [("x", NAN), ("y", 2.0)]}],
    ),
    "an array with another value": ((), '[{"v":NaN},{"v":1.5}]', {}, {"v": "double"}, [{"v": 1.5}, {"v": NAN}]),
    "no columns": (
        ['{"v":5}'],
        '{"v":NaN,"w":[NaN,{"a":Infinity}]}',
        {"evolve": "freeze"},
        {"_rescued": "string"},
        [{"_rescued": '{"v":5}'}, {"_rescued": '{"v":NaN,"w":[NaN,{"a":Infinity}]}'}],
    ),
    "masks": (
        (),
        '{"v":NaN,"w":NaN}',
        {"mask": ["v"]},
        {"v": "string", "w": "double"},
        [{"v": "***", "w": NAN}],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_value_goes_where_a_double_would(tmp_path: Path, kernel: str, name: str) -> None:
    before, batch, options, types, rows = CASES[name]
    loader = Loader(tmp_path, **options)
    if before:
        loader.load(*before)
    assert loader.load(batch).corrupt == 0
    assert loader.types == types
    assert [row.replace("Decimal(", "").replace(")}", "}") for row in loader.rows() if name == "decimals"] == (
        sorted(map(repr, rows)) if name == "decimals" else []
    )
    assert name == "decimals" or loader.rows() == sorted(map(repr, rows))


@pytest.mark.parametrize("token", ["NaN", "Infinity", "-Infinity"])
def test_without_it_the_record_is_corrupt_and_the_reason_says_what_to_do(
    tmp_path: Path, kernel: str, token: str
) -> None:
    loader = Loader(tmp_path, allow_nan=None)
    done = loader.load('{"v":1}', f'{{"v":{token}}}')
    assert (done.records, done.corrupt) == (1, 1)
    assert done.corrupt_reason == (
        f"not a JSON record: {token} is not JSON; allow_nan (--allow-nan) reads it as a double"
    )
    with pytest.raises(SourceError, match="--allow-nan"):
        loader.load(f'{{"v":{token}}}')


@pytest.mark.parametrize("token", ["nan", "+NaN", "-NaN", "+Infinity", "inf", "-INF"])
def test_other_spellings_stay_corrupt(tmp_path: Path, kernel: str, token: str) -> None:
    loader = Loader(tmp_path)
    done = loader.load('{"v":1}', f'{{"v":{token}}}', '{"v":NaN}')
    assert (done.records, done.corrupt) == (2, 1)


def test_iceberg(tmp_path: Path, kernel: str) -> None:
    loader = Loader(tmp_path, catalog=str(tmp_path / "c.db"))
    loader.location = "shop.orders"
    loader.load('{"id":1,"v":5}')
    loader.load('{"id":2,"v":NaN}', '{"id":3,"v":-Infinity}')
    result = CliRunner().invoke(app, ["read", "shop.orders", "--catalog", str(tmp_path / "c.db"), "--json"])
    assert result.exit_code == 0, result.output
    rows = {row["id"]: (row["v"], row["v_double"]) for row in map(json.loads, result.stdout.splitlines())}
    assert rows == {1: (5, None), 2: (None, "NaN"), 3: (None, "-Infinity")}


def test_keys_are_doubles(tmp_path: Path, kernel: str) -> None:
    loader = Loader(tmp_path, key=["k"])
    loader.load('{"k":NaN,"v":1}', '{"k":1.5,"v":2}', '{"k":"NaN","v":3}')
    loader.load('{"k":NaN,"v":4}', '{"k":"NaN","v":NaN}')
    rows = {(row["k"], str(row["k_double"]), str(row["v"])) for row in loader.table.to_arrow().to_pylist()}
    assert rows == {("NaN", "nan", "4.0"), ("1.5", "1.5", "2.0"), ("NaN", "None", "nan")}


@pytest.mark.parametrize("history", [False, True])
def test_a_sequence_without_a_number_orders_nothing(tmp_path: Path, kernel: str, history: bool) -> None:
    loader = Loader(tmp_path, key=["k"], sequence_by="s", history=history)
    assert loader.load('{"k":1,"s":1.5,"v":1}', '{"k":1,"s":NaN,"v":2}').quarantined == 1
    assert loader.load('{"k":1,"s":Infinity,"v":3}', '{"k":1,"s":-Infinity,"v":4}').quarantined == 2
    loader.load('{"k":1,"s":2,"v":NaN}')
    rows = loader.table.to_arrow().to_pylist()
    assert sorted(str(row["v"]) for row in rows) == (["1.0", "nan"] if history else ["nan"])
    reasons = widen.Table(f"{loader.location}_quarantine").to_arrow()["reason"].to_pylist()
    assert reasons == ["s has no value that tells which record is newer"] * 3


def test_conditions_of_deletions_take_it_for_more_than_all_numbers(tmp_path: Path, kernel: str) -> None:
    loader = Loader(tmp_path, key=["k"], delete_when="v > 1000")
    loader.load('{"k":1,"v":1.5}', '{"k":2,"v":1.5}', '{"k":3,"v":1.5}')
    loader.load('{"k":1,"v":NaN}', '{"k":2,"v":Infinity}', '{"k":3,"v":-Infinity}')
    assert loader.rows() == [repr({"k": 3, "v": -INFINITY})]


ENVELOPE = {"after": "after", "before": "before", "op": "op", "deletes": ["d"]}


def test_rows_in_envelopes(tmp_path: Path, kernel: str) -> None:
    loader = Loader(tmp_path, key=["k"], envelope=ENVELOPE)
    loader.load(
        '{"after":{"k":1,"v":NaN},"op":"u","ts":Infinity}',
        '{"after":"{\\"k\\":2,\\"v\\":-Infinity}","op":"u"}',
        '[{"after":{"k":3,"v":1.5},"op":"u"},{"after":{"k":4,"v":NaN},"op":"u"}]',
    )
    done = loader.load('{"before":{"k":1,"v":NaN},"op":"d"}', '{"after":{"k":9,"v":NaN,"v":1},"op":"u"}')
    assert done.quarantined == 1
    (reason,) = widen.Table(f"{loader.location}_quarantine").to_arrow()["reason"].to_pylist()
    assert "the key 'v' appears twice in one object" in reason
    values = {row["k"]: str(row["v"]) for row in loader.table.to_arrow().to_pylist()}
    assert values == {2: "-inf", 3: "1.5", 4: "nan"}


def test_what_came_without_consent_is_replayed_with_it(tmp_path: Path, kernel: str) -> None:
    loader = Loader(tmp_path, key=["k"], allow_nan=None)
    assert loader.load('{"k":1,"v":0.5}', '{"k":2,"v":NaN}').quarantined == 1
    quarantine = f"{loader.location}_quarantine"
    assert widen.replay(quarantine, loader.location).left == 1
    result = CliRunner().invoke(app, ["replay", quarantine, "--into", loader.location, "--allow-nan", "--json"])
    assert (result.exit_code, json.loads(result.stdout)["replayed"]) == (0, 1), result.output
    assert sorted(str(row["v"]) for row in loader.table.to_arrow().to_pylist()) == ["0.5", "nan"]


def test_a_record_that_a_rule_refused_is_replayed(tmp_path: Path, kernel: str) -> None:
    loader = Loader(tmp_path)
    widen.create_table(loader.location, "k int, v double").add_constraint("small", "v < 100")
    assert loader.load('{"k":1,"v":NaN}', '{"k":2,"v":-Infinity}').quarantined == 1
    loader.table.drop_constraint("small")
    quarantine = f"{loader.location}_quarantine"
    assert widen.replay(quarantine, loader.location).replayed == 0
    assert widen.replay(quarantine, loader.location, allow_nan=True).replayed == 1
    assert sorted(str(row["v"]) for row in loader.table.to_arrow().to_pylist()) == ["-inf", "nan"]


def _by_option(source: Path, table: Path) -> None:
    result = CliRunner().invoke(app, ["ingest", str(source), "--into", str(table), "--allow-nan", "--verify"])
    assert result.exit_code == 0, result.output


def _by_file(source: Path, table: Path) -> None:
    (source.parent / "policy.toml").write_text("allow_nan = true\n")
    widen.ingest(source, table, config=source.parent / "policy.toml")


def _by_stream(source: Path, table: Path) -> None:
    folder = source.parent / "landing"
    folder.mkdir()
    source.rename(folder / source.name)
    widen.ingest_stream(str(folder), table, checkpoint=str(source.parent / "cp"), once=True, allow_nan=True).wait()


@pytest.mark.parametrize("load", [_by_option, _by_file, _by_stream])
def test_every_way_to_load_has_it(tmp_path: Path, load: Callable[[Path, Path], None]) -> None:
    (tmp_path / "a.json").write_text('{"v":NaN}\n{"v":1}\n')
    load(tmp_path / "a.json", tmp_path / "t")
    assert sorted(map(str, widen.Table(tmp_path / "t").to_arrow()["v"].to_pylist())) == ["1.0", "nan"]


def test_plans_and_contracts_have_it(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    source.write_text('{"v":NaN}\n{"v":1}\n')
    plan = widen.plan(source, tmp_path / "t", allow_nan=True)
    assert [field.type.sql.lower() for field in plan.schema] == ["double"]
    contract = {"type": "object", "properties": {"v": {"type": "number", "maximum": 10}}}
    assert [reason for _, reason, _ in widen.check_contract(source, contract).counts] == [
        "is not a JSON record: NaN is not JSON; allow_nan (--allow-nan) reads it as a double"
    ]
    assert widen.check_contract(source, contract, allow_nan=True).counts == [("v", "is more than 10", 1)]


def test_spark_reads_and_merges_the_same(spark: SparkSession, tmp_path: Path) -> None:
    """Where Spark merges rows of a key, a rescued NaN stays beside what a later record adds."""
    loader = Loader(tmp_path, key=["k"], missing="keep", max_columns=2, spark=spark)
    loader.load('{"k":1,"v":5}')
    loader.load('{"k":1,"v":NaN,"x":-Infinity,"y":1}')
    loader.load('{"k":1,"z":2}')
    assert loader.types == {"k": "int", "v": "double", "_rescued": "string"}
    assert loader.rows() == [repr({"k": 1, "v": NAN, "_rescued": '{"x":-Infinity,"y":1,"z":2}'})]
