"""Conditions of deletions are about the fields of the source, whatever their columns are named."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from widen.evolution.key_rules import KeyRules
from widen.model.types import INTEGER, Field, StructType, quote_name
from widen.proof.conditions import UnsupportedCondition, build_condition
from widen.protocol.column_metadata import ALIASES
from widen.schema.source_metadata import SOURCE


def column(name: str, source: str | None = None, inner: StructType | None = None, others: Sequence[str] = ()) -> Field:
    metadata = ({} if source is None else {SOURCE: [source]}) | ({ALIASES: [*others]} if others else {})
    return Field(name, inner or INTEGER, metadata=metadata)


SCHEMA = StructType(
    (
        column("_metadata_2", "_metadata", StructType((column("op_type", "op type"), column("n")))),
        column("_op_type", "_op type"),
        column("id"),
        column("ID_2", "ID"),
        column("v"),
        column("amount", others=["total"]),
    )
)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("v = 1", "v = 1"),
        ("V = 1 AND id > 2", "V = 1 AND id > 2"),
        ("ID = 1", "ID_2 = 1"),
        ("_metadata.`op type` = 'd'", "_metadata_2.op_type = 'd'"),
        ("`_metadata` . n IN (1)", "_metadata_2.n IN (1)"),
        ("_metadata_2.op_type = 1", "_metadata_2.op_type = 1"),
        ("`_op type` = '`_op type` _metadata'", "_op_type = '`_op type` _metadata'"),
        ("""v = "_metadata" -- _metadata""", """v = "_metadata" -- _metadata"""),
        ("_metadata(v) = 1 /* ID */", "_metadata(v) = 1 /* ID */"),
        (r"v = 'it\'s _metadata' OR _metadata.n = 1", r"v = 'it\'s _metadata' OR _metadata_2.n = 1"),
        ("missing.n = 1", "NULL = 1"),
        ("gone = 'x' OR `op type`.`a b` IS NULL AND v = 1", "NULL = 'x' OR NULL IS NULL AND v = 1"),
        ("date > DATE '2024-01-01' AND upper(op) IN ('D')", "NULL > DATE '2024-01-01' AND upper(NULL) IN ('D')"),
        ("_metadata.missing = 'op' AND current_date() > '2024-01-01'", "NULL = 'op' AND current_date() > '2024-01-01'"),
        ("current_date > '2024-01-01' AND v IS NULL", "current_date > '2024-01-01' AND v IS NULL"),
        ("op = 'd' AND (", "op = 'd' AND ("),
        ("total = 1", "amount = 1"),
    ],
)
def test_fields_are_spelled_as_their_columns(condition: str, expected: str) -> None:
    assert KeyRules((("id",),), delete_when=condition).deletes(SCHEMA) == expected


def test_the_proof_finds_the_same_column() -> None:
    generator, found = random.Random(9), 0
    names = ["a", "A", "a b", "a_b", "_metadata", "_metadata_2", "b", "B_2", "x"]
    for _ in range(2_000):
        columns = generator.sample(["a", "a_b", "_metadata_2", "b", "b_2", "c"], generator.randint(1, 5))
        sources = generator.sample(names, len(columns))
        fields = tuple(
            column(
                each,
                source if generator.random() < 0.7 else None,
                others=generator.sample(["b", "B_2", "x", "X"], generator.choice([0, 0, 1, 2])),
            )
            for each, source in zip(columns, sources, strict=True)
        )
        schema, condition = StructType(fields), f"{quote_name(generator.choice(names))} = 1"
        spelled = KeyRules((("id",),), delete_when=condition).deletes(schema)
        assert spelled is not None
        word = spelled.removesuffix(" = 1").strip("`")
        ours = [each for each in fields if each.name.lower() == word.lower()]
        try:
            is_met = build_condition(condition, schema)
        except UnsupportedCondition:
            continue
        if not ours:
            assert (spelled, is_met({})) == ("NULL = 1", None)
            continue
        (wanted,) = ours
        source = wanted.metadata.get(SOURCE, [wanted.name])
        assert isinstance(source, list)
        assert is_met({source[0]: 1}) is True
        found += 1
    assert found > 500
