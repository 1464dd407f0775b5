"""The proof finds out itself which fields records get from their files, with or without a key."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import PostCommitFailed
from widen.json.field_rules import FileFields


@pytest.mark.parametrize("words", [{}, {"key": ["id"], "sequence_by": "n"}], ids=["rows", "keys"])
@pytest.mark.parametrize("options", [{"source_columns": True}, {}], ids=["path and time", "folders"])
def test_fields_of_files_that_the_writer_leaves_out_are_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Mapping[str, Any], options: Mapping[str, Any]
) -> None:
    source = tmp_path / "in" / ("a.json" if options else "day=1/a.json")
    source.parent.mkdir(parents=True)

    def is_proved(text: str) -> bool:
        source.write_text(text)
        try:
            done = widen.ingest(
                str(source),
                str(tmp_path / "t"),
                verify=True,
                engine="local",
                partition_folders=not options,
                **words,
                **options,
            )
        except PostCommitFailed as error:
            return "rows differ from their records" not in str(error)  # only Spark finds out which
        assert done.verification is not None
        return done.verification.is_clean

    assert is_proved('{"id": 1, "n": 1}\n')
    monkeypatch.setattr(FileFields, "of", lambda *_: {})
    assert not is_proved('{"id": 1, "n": 2}\n')
