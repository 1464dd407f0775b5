"""The file of a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest

from widen.errors import InvalidConfig
from widen.flows.flow_step import FlowCheckpoint, FlowProgress, to_flow_id
from widen.log.log_store import LogStore

FIRST = FlowProgress(flow_id="f", source="a", source_id="1", into="b", query="q", keys={})


def test_progress_is_read_as_it_was_written(tmp_path: Path) -> None:
    checkpoint = FlowCheckpoint(LogStore(tmp_path / "cp"))
    assert checkpoint.read() is None
    assert checkpoint.create(FIRST) == FIRST == checkpoint.read()
    other = FlowProgress(flow_id="g", source="a", source_id="1", into="b", query="q", keys={"k": "`k`"}, version=3)
    assert checkpoint.create(other) == FIRST
    assert checkpoint.write(other) == other == checkpoint.read()


@pytest.mark.parametrize(("text", "reason"), [("{", "truncated"), ("{}", "flow_id"), ('{"format": 9}', "flow_id")])
def test_a_damaged_file_is_told(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "flow.json").write_text(text)
    with pytest.raises(InvalidConfig, match=reason):
        FlowCheckpoint(LogStore(tmp_path)).read()


def test_a_later_format_is_told(tmp_path: Path) -> None:
    checkpoint = FlowCheckpoint(LogStore(tmp_path))
    checkpoint.create(FIRST)
    text = (tmp_path / "flow.json").read_text()
    (tmp_path / "flow.json").write_text(text[:-1] + ',"format":2}')
    with pytest.raises(InvalidConfig, match="format 2"):
        checkpoint.read()


def test_a_flow_has_the_same_id_again() -> None:
    assert to_flow_id("1", "q", {"a": "b"}) == to_flow_id("1", "q", {"a": "b"})
    assert len({to_flow_id("1", "q", {}), to_flow_id("2", "q", {}), to_flow_id("1", "r", {})}) == 3
