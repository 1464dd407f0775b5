"""What a policy and a table say of the fields that records get from their file.

Source: docs/evolution-rules.md#d9, #d21; see `widen.observe.file_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from widen.model.column_path import Path
from widen.model.types import StructType
from widen.observe.file_fields import LOADED_AT, SIGN
from widen.observe.observation import RecordObservation
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.source_metadata import SOURCE, role_of

_Said = TypeVar("_Said")


def for_file_fields(policy: Policy) -> Policy:
    """Return a policy that says of each field of the file what it says of the name of that field.

    So a rule to mask ``region`` masks the folder ``region=eu``, too. The time of the load is a timestamp.
    """
    names = policy.file_fields
    if not names:
        return policy
    dated = _also(policy.dated, names) | {(LOADED_AT + SIGN,) for name in names if name == LOADED_AT}
    return replace(
        policy,
        pins=_copied(policy.pins, names),
        dated=frozenset(dated),
        epoch_units=_copied(policy.epoch_units, names),
        left_out=_also(policy.left_out, names),
        masked=_also(policy.masked, names),
    )


def _copied(said: Mapping[Path, _Said], names: frozenset[str]) -> dict[Path, _Said]:
    return {**{(name + SIGN,): said[(name,)] for name in names if (name,) in said}, **said}


def _also(said: frozenset[Path], names: frozenset[str]) -> frozenset[Path]:
    return said | {(name + SIGN,) for name in names if (name,) in said}


def adopted(schema: StructType, seen: RecordObservation, names: frozenset[str]) -> StructType:
    """Return the columns of a table, of which declared ones hold the fields of the file that are called so.

    A column that was declared and has not been ingested into holds the field of its name. If no record has such a
    field itself, that is the one of the file: a table that is partitioned by ``day`` takes the folders ``day=…``.

    Args:
        schema: The columns of the table.
        seen: What the records hold.
        names: What the fields of the file are called.
    """
    known = {field.metadata[SOURCE][-1] for field in schema if SOURCE in field.metadata}
    free = {name for name in names if name not in seen and name + SIGN not in known}
    if not free.intersection(schema.names):
        return schema
    return StructType(
        tuple(
            field.with_metadata(**{SOURCE: [field.name + SIGN]})
            if field.name in free and SOURCE not in field.metadata and role_of(field) is None
            else field
            for field in schema
        )
    )
