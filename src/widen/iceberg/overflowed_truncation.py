"""Truncated integers that have overflowed: the partitions in which Iceberg for Java puts the smallest numbers.

A type does not hold the multiple of the width below its smallest values. Java gives these rows a partition at the other
end of the type, which a filter such as ``x < 0`` would skip. Rows that we write there are refused or quarantined; see
`widen.iceberg.partitions.truncation_limits`.

Source: Iceberg's table specification, "Truncate Transform Details"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.transforms import TruncateTransform

from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression, BoundPredicate

ice = import_lazily("pyiceberg.expressions")

_BITS = {"int": (32,), "long": (32, 64)}
"""The sizes of the integers that a column of each type has had, since an integer may have been widened."""


class OverflowingTruncation(TruncateTransform[int]):
    """A truncation by which no file is skipped whose partition value has overflowed."""

    # PyIceberg combines any expressions, whatever its annotation says.
    def project(self, name: str, pred: BoundPredicate) -> BooleanExpression | None:  # type: ignore[override]
        """Return the condition on the partition value under which a file may have rows that fulfil a predicate."""
        projected: BooleanExpression | None = super().project(name, pred)
        sizes = _BITS.get(str(pred.term.ref().field.field_type), ())
        overflowed = [2 ** (bits - 1) - rest for bits in sizes if (rest := -(2 ** (bits - 1)) % self.width)]
        return ice.Or(projected, ice.In(name, overflowed)) if projected is not None and overflowed else projected
