"""What of the data a report shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.drift_log import write_drift
from widen.log.snapshot import open_snapshot
from widen.log.store import LogStore
from widen.report.build import build
from widen.report.mask import Samples, shown


@pytest.mark.parametrize(
    ("samples", "sample", "low"), [(Samples.NONE, "", None), (Samples.MASKED, "99.9", "x"), (Samples.FULL, "12.5", "a")]
)
def test_samples_and_bounds_of_texts_are_shown_so(
    tmp_path: Path, samples: Samples, sample: str, low: str | None
) -> None:
    report = shown(build(open_snapshot(LogStore(str(write_drift(tmp_path / "orders"))))), samples)
    assert [r.sample for c in report.intervals[1].changes for r in c.reasons][:1] == [sample]
    assert report.columns[1].low == low
    assert (report.columns[0].low, report.columns[0].high) == (0.5, 90.0), "numbers are statistics"
