"""What of the data a report shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.drift_log import write_drift
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.report.build_report import build_report, read_history
from widen.report.text_format import Samples, mask_report, shown_intervals


@pytest.mark.parametrize(
    ("samples", "sample", "low", "numbers"),
    [
        (Samples.NONE, "", None, (None, None)),
        (Samples.MASKED, "99.9", "x", ("9.9", "99.9")),
        (Samples.RAW, "12.5", "a", (0.5, 90.0)),
    ],
)
def test_samples_and_bounds_are_shown_so(
    tmp_path: Path, samples: Samples, sample: str, low: str | None, numbers: tuple[object, object]
) -> None:
    report = mask_report(build_report(open_snapshot(LogStore(str(write_drift(tmp_path / "orders"))))), samples)
    assert [r.sample for c in report.intervals[1].changes for r in c.reasons][:1] == [sample]
    assert report.columns[1].low == low
    assert (report.columns[0].low, report.columns[0].high) == numbers


def test_a_history_hides_what_others_have_stored(tmp_path: Path) -> None:
    place = str(write_drift(tmp_path / "orders", sample="0170 1234567"))
    intervals = read_history(open_snapshot(LogStore(place)))
    raw, masked = (str(shown_intervals(intervals, samples)) for samples in (Samples.RAW, Samples.MASKED))
    assert "0170 1234567" in raw
    assert "1234567" not in masked
    assert '"sample":"9999 9999999"' in masked
