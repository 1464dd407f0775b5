"""Truncated integers that have overflowed: the partitions in which Iceberg for Java puts the smallest numbers.

A type does not hold the multiple of the width below its smallest values. Java gives these rows a partition at the other
end of the type, which a filter such as ``x < 0`` would skip. Rows that we write there are refused or quarantined; see
`widen.iceberg.partition_limits.truncation_limits`.

Source: Iceberg's table specification, "Truncate Transform Details"
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression, BoundPredicate
    from pyiceberg.transforms import TruncateTransform

ice = import_lazily("pyiceberg.expressions")
ice_transforms = import_lazily("pyiceberg.transforms")

_BITS = {"int": (32,), "long": (32, 64)}
"""The sizes of the integers that a column of each type has had, since an integer may have been widened."""


def overflowing_truncation(width: int) -> TruncateTransform[int]:
    """Return a truncation by which no file is skipped whose partition value has overflowed."""
    truncation: TruncateTransform[int] = _truncation_class()(width)
    return truncation


@cache
def _truncation_class() -> type[TruncateTransform[int]]:
    class OverflowingTruncation(ice_transforms.TruncateTransform):  # type: ignore[misc, name-defined]
        def project(self, name: str, pred: BoundPredicate) -> BooleanExpression | None:
            projected: BooleanExpression | None = super().project(name, pred)
            sizes = _BITS.get(str(pred.term.ref().field.field_type), ())
            overflowed = [2 ** (bits - 1) - rest for bits in sizes if (rest := -(2 ** (bits - 1)) % self.width)]
            if projected is not None and overflowed:
                projected = ice.Or(projected, ice.In(name, overflowed))
            return projected

    return OverflowingTruncation
