"""The promise of ingestion: documents that drift, in batches cut anywhere; every leaf of each is found again, exactly.

And the column with the plain name never changes its meaning: it holds its own field, in its own type or a wider one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from support.drift import records
from support.leaf import lost
from support.stable_interval import ingest_texts, records_of, through_arrow
from widen.evolution.policy import Mode, Names, Policy, build_field_rules
from widen.model.types import ArrayType, DataType, MapType, StructType
from widen.protocol.type_widening import is_widening

documents = st.lists(records, min_size=1, max_size=10)
cuts = st.sets(st.integers(1, 9), max_size=4)


@given(documents, cuts, st.sampled_from([Mode.WIDEN, Mode.SPLIT]), st.booleans())
def test_every_leaf_of_every_document_is_found_again(
    texts: list[bytes], cut: set[int], mode: Mode, dated: bool
) -> None:
    # In any case, a name stays with a field until a record has both: then values move, and that is no loss.
    policy = Policy(mode, date_fields=frozenset([()] if dated else []), names=Names.EXACT)
    schemas: list[StructType] = []
    rows: list[dict[str, object]] = []
    for batch in _batches(texts, cut):
        done = ingest_texts(schemas[-1] if schemas else None, batch, policy)
        schemas.append(done.plan.schema)
        rows += [row for found in done.rows for row in found]
    for text, row in zip(texts, through_arrow(schemas[-1], rows), strict=True):
        [document] = records_of(text) or [{}]
        record = build_field_rules(schemas[-1], policy).record(document)
        assert lost(schemas[-1], row, record) == [], text
        held = {_source(field.metadata) for field in schemas[-1] if row[field.name] is not None}
        assert held <= record.keys(), "a column holds what is not of its field"
    for before, after in pairwise(schemas):
        _check_meaning(before, after, may_widen=mode is Mode.WIDEN)


def _batches(texts: list[bytes], cut: set[int]) -> Iterator[list[bytes]]:
    ends = [*sorted(at for at in cut if at < len(texts)), len(texts)]
    for start, end in zip([0, *ends], ends, strict=False):
        yield texts[start:end]


def _source(metadata: object) -> str:
    assert isinstance(metadata, dict)
    return str(metadata["widen.source"][-1])


def _check_meaning(before: DataType, after: DataType, *, may_widen: bool) -> None:
    match before, after:
        case StructType(), StructType():
            kept = {field.name: field for field in after}
            for field in before:
                assert _source(field.metadata) == _source(kept[field.name].metadata)
                _check_meaning(field.type, kept[field.name].type, may_widen=may_widen)
        case (ArrayType(old), ArrayType(new)) | (MapType(_, old), MapType(_, new)):
            _check_meaning(old, new, may_widen=may_widen)
        case _:
            assert before == after or (may_widen and is_widening(before, after)), (before, after)
