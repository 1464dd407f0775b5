"""The names of the columns that a plan adds to a struct.

Source: docs/evolution-rules.md#u12, #u18, #d9, #d22
"""

from __future__ import annotations

from collections.abc import Sequence

from widen.model.types import Field, StructType
from widen.planning.evolution.field_evolution import BuiltColumn, FieldEvolution
from widen.planning.evolution.policy import Policy, TextForm
from widen.planning.evolution.source_metadata import FORM, NameAllocator, reserved_names, source_field


def name_columns(
    struct: StructType, parts: Sequence[FieldEvolution], policy: Policy, *, is_root: bool
) -> list[tuple[FieldEvolution, BuiltColumn, Field]]:
    """Return the new columns of a struct with their names, in the order of the parts.

    Keys that are valid names get theirs first, then other keys, then evolved columns: a real field `a_long` keeps its
    name, and the column that evolved from `a` becomes `a_long_2`.

    Args:
        is_root: Whether the struct is the whole table; only its columns must not have reserved names.

    Source: docs/evolution-rules.md#u12, #u18, #d9, #d22
    """
    reserved = (*reserved_names(policy.table_format), *sorted(policy.reserved_names))
    names = NameAllocator((*struct.names, *reserved) if is_root else struct.names)
    new = [(part, built) for part in parts for built in part.built]
    wanted_names = [part.wanted_name(built.request, policy.table_format) for part, built in new]
    is_plain = [not part.suffix(built.request) for part, built in new]
    order = sorted(range(len(new)), key=lambda n: (not is_plain[n], wanted_names[n] != new[n][0].key))
    names_in_order = {turn: names.take(wanted_names[turn]) for turn in order}
    return [(part, built, _new_field(names_in_order[n], part, built, policy)) for n, (part, built) in enumerate(new)]


def _new_field(name: str, part: FieldEvolution, built: BuiltColumn, policy: Policy) -> Field:
    is_plain = not part.suffix(built.request)
    field = source_field(name, part.wrap_in_maps(built.type), part.source, is_evolved=not is_plain)
    pin = policy.pins.get(part.source)
    # The column remembers its text form, so that later ingestions need not pin the field again.
    return field.with_metadata(**{FORM: pin.value}) if isinstance(pin, TextForm) and is_plain else field
