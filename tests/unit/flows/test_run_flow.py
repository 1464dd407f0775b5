"""A chain of flows in a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from widen.errors import InvalidConfig, InvalidOption
from widen.flows.run_flow import check_chain, read_chain

STEP = '[[step]]\nsource = "a"\ninto = "b"\ncheckpoint = "c"\n'


def test_each_step_has_the_options_of_a_flow(tmp_path: Path) -> None:
    file = tmp_path / "chain.toml"
    file.write_text(f'{STEP}sql = "SELECT 1"\nkeys = ["x"]\n[step.pins]\nx = "text"\n')
    (step,) = read_chain(file)
    assert step == {
        "source": "a",
        "into": "b",
        "checkpoint": "c",
        "sql": "SELECT 1",
        "keys": ["x"],
        "pins": {"x": "text"},
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "step"),
        ("x", "="),
        (f"{STEP}unknown = 1", "unknown setting"),
        (f"{STEP}max_byte = 1", "Did you mean max_bytes"),
        (f"{STEP}max_bytes = 'x'", "max_bytes"),
        ('[[step]]\nsource = "a"\ninto = "b"', "checkpoint"),
        (f"{STEP}{STEP}", "two flows have the checkpoint c"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, text: str, reason: str) -> None:
    file = tmp_path / "chain.toml"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=reason):
        read_chain(file)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="No such file"):
        read_chain(tmp_path / "chain.toml")


@pytest.mark.parametrize("checkpoint", ["a/cp", "b", "b/x/cp", "b_quarantine/cp"])
def test_a_checkpoint_in_a_table_is_refused(tmp_path: Path, checkpoint: str) -> None:
    file, folder = tmp_path / "chain.toml", tmp_path / checkpoint
    file.write_text(
        STEP.replace('"a"', f'"{tmp_path}/a"').replace('"b"', f'"{tmp_path}/b"').replace('"c"', f'"{folder}"')
    )
    with pytest.raises(InvalidOption, match="a vacuum deletes"):
        check_chain(file, None)
    folder.mkdir(parents=True)
    (folder / "flow.json").write_text("{}")
    check_chain(file, None)
