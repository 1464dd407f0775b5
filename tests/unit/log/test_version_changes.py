"""What a version changed, as its commit says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from support import log_table as log
from widen.log.log_store import LogStore
from widen.log.version_changes import change_slices, version_changes

NOTHING = {"numTargetRowsInserted": "0", "numTargetRowsUpdated": "0", "numTargetRowsDeleted": "0"}


@pytest.mark.parametrize(
    ("info", "count"),
    [
        ({"operation": "MERGE", "operationMetrics": NOTHING}, 0),
        ({"operation": "MERGE", "operationMetrics": {**NOTHING, "numTargetRowsUpdated": "1"}}, 2),
        ({"operation": "MERGE", "operationMetrics": {"numTargetRowsUpdated": "0"}}, 2),
        ({"operation": "MERGE"}, 2),
        ({"operation": "MERGE", "operationMetrics": "text"}, 2),
        ({"operation": "UPDATE", "operationMetrics": NOTHING}, 2),
    ],
)
def test_a_merge_that_only_wrote_files_again_changed_no_row(tmp_path: Path, info: dict[str, Any], count: int) -> None:
    (tmp_path / "_delta_log").mkdir()
    remove = {"remove": {"path": "a", "dataChange": True, "deletionTimestamp": 1, "partitionValues": {}, "size": 1}}
    commits = [[log.PROTOCOL, log.metadata(), log.add("a")], [{"commitInfo": info}, remove, log.add("b")]]
    for version, lines in enumerate(commits):
        (tmp_path / "_delta_log" / f"{version:020}.json").write_text("\n".join(map(json.dumps, lines)))
    changes = list(version_changes(LogStore(str(tmp_path)), 1, 1))
    assert [len(list(change_slices(each))) for each in changes] == [count]
