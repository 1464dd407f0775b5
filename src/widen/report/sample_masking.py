"""Mask or drop the data values in a report or a history, so that people who may not see the data can get it.

Source: docs/evolution-rules.md#d24
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from widen.planning.evolution.samples import Samples, mask, sample_formatter
from widen.planning.table.column_change import ChangeReason, ColumnChange
from widen.planning.table.schema_changes import EVENTS
from widen.protocol.partition_values import Scalar
from widen.report.report_model import IntervalRecord, json_scalar
from widen.report.table_report import Report, ReportColumn

__all__ = ["Samples", "mask", "mask_report", "sample_formatter", "shown_intervals"]


def mask_report(report: Report, samples: Samples | str) -> Report:
    """Return the report with its samples and column bounds masked.

    Args:
        report: The report with raw values.
    """
    samples = Samples(samples)
    columns = tuple(_column(column, samples) for column in report.columns)
    families = tuple(
        replace(family, columns=tuple(_column(column, samples) for column in family.columns))
        for family in report.families
    )
    intervals = shown_intervals(report.intervals, samples)
    return replace(report, columns=columns, families=families, intervals=intervals)


def shown_intervals(intervals: Iterable[IntervalRecord], samples: Samples | str) -> tuple[IntervalRecord, ...]:
    """Return the intervals with their samples masked."""
    return tuple(_interval(each, Samples(samples)) for each in intervals)


def _column(column: ReportColumn, samples: Samples) -> ReportColumn:
    origin = column.origin and replace(column.origin, reason=_reason(column.origin.reason, samples))
    low, high = (_bound(bound, samples) for bound in (column.low, column.high))
    texts = tuple(text for text in map(sample_formatter(samples), column.samples) if text)
    return replace(column, low=low, high=high, samples=tuple(dict.fromkeys(texts)), origin=origin)


def _bound(bound: Scalar | None, samples: Samples) -> Scalar | None:
    if bound is None or samples is Samples.RAW:
        return bound
    return sample_formatter(samples)(str(json_scalar(bound))) or None


def _interval(interval: IntervalRecord, samples: Samples) -> IntervalRecord:
    changes = tuple(_change(change, samples) for change in interval.changes)
    return replace(interval, changes=changes, parameters=_parameters(interval.parameters, samples))


def _parameters(parameters: Mapping[str, Any], samples: Samples) -> Mapping[str, Any]:
    """Return the parameters of a commit with masked events; other writers may have stored raw values in them."""
    text = parameters.get(EVENTS)
    if not isinstance(text, str) or samples is Samples.RAW:
        return parameters
    try:
        events = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return parameters
    masked = [_event(event, samples) for event in events] if isinstance(events, list) else events
    return {**parameters, EVENTS: msgspec.json.encode(masked).decode()}


def _event(event: Any, samples: Samples) -> Any:
    sample = event.get("sample") if isinstance(event, dict) else None
    return {**event, "sample": sample_formatter(samples)(sample)} if isinstance(sample, str) else event


def _change(change: ColumnChange, samples: Samples) -> ColumnChange:
    return replace(change, reasons=tuple(_reason(reason, samples) for reason in change.reasons))


def _reason(reason: ChangeReason, samples: Samples) -> ChangeReason:
    return replace(reason, sample=sample_formatter(samples)(reason.sample))
