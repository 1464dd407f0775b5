"""A chain of flows in a TOML file: a table ``[[step]]`` for each flow, in their order.

Source: docs/guide/flow.md#a-chain; TOML 1.0.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike, fspath
from pathlib import Path

import msgspec

from widen.errors import InvalidConfig
from widen.errors.foreign import open_failure


class ChainStep(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The arguments of `widen.flow` that a file can set; `widen.flow` describes them."""

    source: str
    into: str
    checkpoint: str
    sql: str | None = None
    keys: list[str] | dict[str, str] | None = None
    max_bytes: int | None = None
    removed: str = "fail"
    verify: bool | float = False
    to: str | None = None
    catalog: str | None = None
    partition_by: list[str] | None = None
    source_catalog: str | None = None
    evolve: str | None = None
    pins: dict[str, str] | None = None
    config: str | None = None
    max_columns: int | None = None
    numbers: str | None = None
    quarantine: str | None = None
    samples: str | None = None


class _Chain(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    step: list[ChainStep]


def read_chain(file: str | PathLike[str]) -> Sequence[ChainStep]:
    """Return the flows in a file.

    Raises:
        InvalidConfig: the file cannot be read, is not TOML, has an unknown setting or an invalid value, or two of its
            flows have one checkpoint.
    """
    name = fspath(file)
    try:
        steps = msgspec.toml.decode(Path(name).read_text(encoding="utf-8"), type=_Chain).step
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        expected = "Must have a table [[step]] for each flow, with source, into, checkpoint and the options of a flow."
        raise InvalidConfig(place=name, reason=str(error).rstrip("."), expected=expected) from error
    except (OSError, ValueError) as error:
        raise InvalidConfig(place=name, reason=open_failure(error), expected="Check the path of the chain.") from error
    folders = [step.checkpoint.rstrip("/") for step in steps]
    for folder in folders:
        if folders.count(folder) > 1:
            expected = "Each flow needs its own checkpoint."
            raise InvalidConfig(place=name, reason=f"two flows have the checkpoint {folder}", expected=expected)
    return steps
