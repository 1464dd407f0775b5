"""How a policy and a table handle the fields that records get from their file.

Source: docs/evolution-rules.md#d9, #d21; see `widen.observe.file_fields`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeVar

from widen.model.column_path import Path, fold_path
from widen.model.types import StructType
from widen.observe.file_fields import LOADED_AT, SIGN
from widen.observe.observation import RecordObservation
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.source_metadata import SOURCE, role_of

_Rule = TypeVar("_Rule")


def for_file_fields(policy: Policy) -> Policy:
    """Return a policy in which a rule for a name also applies to the file field of that name.

    For example, a rule to mask ``region`` also masks the folder ``region=eu``. The load time is a timestamp.
    """
    names = policy.file_fields
    if not names:
        return policy
    date_fields = _add_file_fields(policy.date_fields, names) | {
        (LOADED_AT + SIGN,) for name in names if name == LOADED_AT
    }
    return replace(
        policy,
        pins=_with_file_fields(policy.pins, names),
        date_fields=frozenset(date_fields),
        local_time_fields=_add_file_fields(policy.local_time_fields, names),
        epoch_units=_with_file_fields(policy.epoch_units, names),
        excluded=policy.excluded | _hidden_file_fields(policy.excluded, names),
        masked=policy.masked | _hidden_file_fields(policy.masked, names),
        no_stats=policy.no_stats | _hidden_file_fields(policy.no_stats, names),
    )


def _with_file_fields(rules: Mapping[Path, _Rule], names: frozenset[str]) -> dict[Path, _Rule]:
    return {**{(name + SIGN,): rules[(name,)] for name in names if (name,) in rules}, **rules}


def _add_file_fields(rules: frozenset[Path], names: frozenset[str]) -> frozenset[Path]:
    return rules | {(name + SIGN,) for name in names if (name,) in rules}


def _hidden_file_fields(rules: frozenset[Path], names: frozenset[str]) -> frozenset[Path]:
    """Return the file fields that rules to hide values name, however they capitalize them."""
    hidden = set(map(fold_path, rules))
    return frozenset((name + SIGN,) for name in names if fold_path((name,)) in hidden)


def with_file_fields(schema: StructType, observed: RecordObservation, names: frozenset[str]) -> StructType:
    """Return the columns of a table, with file fields assigned to declared columns of the same name.

    A declared column that was never ingested into holds the source field of its name. If no record has that field, it
    holds the file field instead: a table partitioned by ``day`` takes the folders ``day=…``.
    """
    source_names = {field.metadata[SOURCE][-1] for field in schema if SOURCE in field.metadata}
    free = {name for name in names if name not in observed and name + SIGN not in source_names}
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
