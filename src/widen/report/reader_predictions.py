"""What other readers do with a table: predicted from its traits, and from what tested readers did with such tables.

A trait is something of a table that some reader does not handle, e.g. a table feature, or a column with inexact bounds.
`readers.json` says for each trait what each tested reader did: it is written by ``tools/readers.py``, which runs the
readers. A table is predicted to be read like all of its traits together.

Source: docs/guide/readers.md
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from widen.errors import InvalidOption
from widen.evolution.plan import PlannedReader
from widen.model.column_path import Path, format_path, leaves
from widen.model.display import READERS_LOG
from widen.model.types import StructType
from widen.model.value_classes import dataclass

DATA = "readers.json"
ALL = "all"
"""Stands for every reader."""
QUESTIONS = ("scan", "equal", "range", "count", "null")
"""What each reader was asked: all rows, filters at the bounds of a column, a count, and nulls."""


class Outcome(str, Enum):
    """What a reader does, from good to bad."""

    READS = "reads"
    REFUSES = "refuses"
    WRONG = "wrong"


_ORDER = (Outcome.READS, Outcome.REFUSES, Outcome.WRONG)


@dataclass(frozen=True, slots=True)
class Trait:
    """Something of a table that matters to readers.

    Args:
        name: A key of `TRAITS`.
        column: The column that has it; None for the whole table.
        is_certain: False if only the footers of many files would tell.
    """

    name: str
    column: Path | None = None
    is_certain: bool = True

    @property
    def text(self) -> str:
        """The trait for a reader, with its column."""
        where = "" if self.column is None else f"{format_path(self.column)}: "
        return where + TRAITS[self.name].text + ("" if self.is_certain else " (possibly)")

    @property
    def remedy(self) -> str:
        """The command that removes the trait from a table T; empty if none does."""
        return TRAITS[self.name].remedy


@dataclass(frozen=True, slots=True)
class TraitInfo:
    """The words for a trait.

    Args:
        text: What the table has.
        remedy: What to do about it; empty if Widen cannot do anything.
    """

    text: str
    remedy: str = ""


_DROP = "widen drop-feature T {}"
_STATISTICS, REWRITE = "widen rewrite T --statistics", "widen rewrite T"
_OPTIMIZE = "widen optimize T"
_UNMAP = "widen properties T --set delta.columnMapping.mode=none"

TRAITS: Mapping[str, TraitInfo] = {
    "typeWidening": TraitInfo("the table feature typeWidening", _DROP.format("typeWidening")),
    "columnMapping": TraitInfo("the table feature columnMapping", _UNMAP),
    "columnMapping-2": TraitInfo("column mapping by reader version 2", _UNMAP),
    "mapping-name": TraitInfo("files have another name for it", _UNMAP),
    "mapping-swapped": TraitInfo("files have the name of another column for it", _UNMAP),
    "mapping-readded": TraitInfo("old files have a dropped column of this name", _UNMAP),
    "mapping-partition": TraitInfo("a partition column with another name in the log", _UNMAP),
    "no-field-ids": TraitInfo("files without the ids of column mapping", _UNMAP),
    "deletionVectors": TraitInfo("the table feature deletionVectors", _DROP.format("deletionVectors")),
    "deleted-rows": TraitInfo("rows deleted by deletion vectors", _DROP.format("deletionVectors")),
    "timestampNtz": TraitInfo("the table feature timestampNtz"),
    "v2Checkpoint": TraitInfo("the table feature v2Checkpoint", _DROP.format("v2Checkpoint")),
    "variantType": TraitInfo("the table feature variantType"),
    "vacuumProtocolCheck": TraitInfo("the table feature vacuumProtocolCheck", _DROP.format("vacuumProtocolCheck")),
    "other-feature": TraitInfo("a table feature that was not tested"),
    "float-became-double": TraitInfo("float became double", REWRITE),
    "decimal-grew": TraitInfo("decimal got more digits, and the same scale", REWRITE),
    "decimal-rescaled": TraitInfo("decimal got a larger scale", REWRITE),
    "integer-became-decimal": TraitInfo("integer became decimal", REWRITE),
    "date-became-timestamp": TraitInfo("date became timestamp_ntz", REWRITE),
    "type-changed": TraitInfo("another type change", REWRITE),
    "short-bounds": TraitInfo("bounds of floats are not exact as doubles", _STATISTICS),
    "rounded-decimals": TraitInfo("bounds of decimals are rounded", _STATISTICS),
    "exponent-bounds": TraitInfo("bounds of decimals have exponents", _STATISTICS),
    "long-decimals": TraitInfo("bounds of decimals with 16 to 18 digits"),
    "boolean": TraitInfo("boolean without bounds", _STATISTICS),
    "infinity": TraitInfo("infinite values, without bounds"),
    "nan": TraitInfo("files of NaN only"),
    "nan-beside": TraitInfo("NaN beside numbers"),
    "nan-hidden": TraitInfo("NaN that the bounds leave out"),
    "nested-null": TraitInfo("nested, and may be null"),
    "int96": TraitInfo("INT96 timestamps"),
    "int96-far": TraitInfo("INT96 timestamps before 1678 or after 2261", REWRITE),
    "negative-partition": TraitInfo("negative decimals as partition values"),
    "bad-partition": TraitInfo("a partition value that is not a number"),
    "format-version-3": TraitInfo("format version 3"),
    "default-value": TraitInfo("old rows have the default of a new column"),
    "name-swapped": TraitInfo("another column had its name"),
    "name-readded": TraitInfo("a dropped column had its name"),
    "partitioning-changed": TraitInfo("files with different partitioning"),
    "partition-before-1970": TraitInfo("partitions of times before 1970"),
    "position-deletes": TraitInfo("position deletes", _OPTIMIZE),
    "equality-deletes": TraitInfo("equality deletes", _OPTIMIZE),
    "deletion-vectors": TraitInfo("deletion vectors", _OPTIMIZE),
}
"""The traits of tables by name."""


@dataclass(frozen=True, slots=True)
class Reader:
    """A tested reader.

    Args:
        name: How commands name it.
        title: What it is.
        version: The version that was tested.
        format: ``delta`` or ``iceberg``.
    """

    name: str
    title: str
    version: str
    format: str


@dataclass(frozen=True, slots=True)
class Prediction:
    """What a reader does with a table.

    Args:
        answers: By question, what it does.
        reasons: The traits that keep it from simply reading the table.
    """

    reader: Reader
    answers: Mapping[str, Outcome]
    reasons: tuple[Trait, ...]

    @property
    def outcome(self) -> Outcome:
        """The worst answer."""
        return max(self.answers.values(), key=_ORDER.index)

    @property
    def when(self) -> str:
        """Which questions are answered wrongly; empty if none is."""
        wrong = [question for question, found in self.answers.items() if found is Outcome.WRONG]
        if "scan" in wrong:
            return "the values"
        return " and ".join(_WHEN[question] for question in wrong)

    @property
    def shown(self) -> str:
        """The outcome, and what is wrong if something is, e.g. ``wrong: filters for a range``."""
        return f"{self.outcome.value}: {self.when}" if self.when else self.outcome.value

    @property
    def because(self) -> tuple[str, ...]:
        """Why it does not read the table; empty if it does."""
        return () if self.outcome is Outcome.READS else tuple(trait.text for trait in self.reasons)

    def to_value(self) -> dict[str, Any]:
        """Return the prediction as a JSON object."""
        return {
            "reader": self.reader.name,
            "version": self.reader.version,
            "outcome": self.outcome.value,
            "answers": {question: found.value for question, found in self.answers.items()},
            "reasons": [
                {
                    "trait": trait.name,
                    "column": None if trait.column is None else format_path(trait.column),
                    "certain": trait.is_certain,
                    "text": trait.text,
                    "remedy": trait.remedy or None,
                }
                for trait in self.reasons
            ],
        }


_WHEN = {
    "equal": "filters for one value",
    "range": "filters for a range",
    "count": "counts",
    "null": "filters for null",
}


@dataclass(frozen=True, slots=True)
class TraitChange:
    """The traits of a table before and after a plan.

    Args:
        format: ``delta`` or ``iceberg``.
        before: None for a new table.
    """

    format: str
    before: Sequence[Trait] | None
    after: Sequence[Trait]


def plan_readers(change: TraitChange, readers: Sequence[Reader]) -> tuple[PlannedReader, ...]:
    """Return what readers do with a table before and after a plan."""
    before = ["" for _ in readers]
    if change.before is not None:
        before = [each.outcome.value for each in predict(change.before, readers)]
    after = predict(change.after, readers)
    return tuple(_planned(old, new) for old, new in zip(before, after, strict=True))


def made_wrong(change: TraitChange) -> tuple[PlannedReader, ...]:
    """Return the tested readers that read a table before a change, and return something wrong after it."""
    if set(change.after) <= set(change.before or ()):
        return ()
    planned = plan_readers(change, tested_readers(change.format))
    return tuple(each for each in planned if (each.before, each.after) == (Outcome.READS, Outcome.WRONG))


def warn_wrong_readers(location: str, readers: Sequence[PlannedReader]) -> None:
    """Log which readers return something wrong after a change."""
    for reader in readers:
        _log.warning("%s: %s", location, reader)


_log = logging.getLogger(READERS_LOG)


def _planned(before: str, after: Prediction) -> PlannedReader:
    return PlannedReader(
        after.reader.name,
        after.reader.title,
        after.reader.version,
        before,
        after.outcome.value,
        after.when,
        after.because,
    )


def new_column_traits(schema: StructType, old: StructType | None) -> Iterator[Trait]:
    """Yield the traits that values of new columns may have, by the types of the columns."""
    known = set() if old is None else {path for path, _ in leaves(old)}
    nested = {path[:1]: None for path, _ in leaves(schema) if len(path) > 1 and path not in known}
    yield from (Trait("nested-null", top, is_certain=False) for top in nested)


@cache
def _data() -> Any:
    return msgspec.json.decode(files("widen.report").joinpath(DATA).read_bytes())


@cache
def tested_readers(table_format: str) -> tuple[Reader, ...]:
    """Return the tested readers of a format."""
    return tuple(
        Reader(name, each["title"], each["version"], each["format"])
        for name, each in _data()["readers"].items()
        if each["format"] == table_format
    )


def choose_readers(table_format: str, names: Sequence[str] | None) -> tuple[Reader, ...]:
    """Return the readers with some names, or all; a name stands for every way to read with that program.

    Raises:
        InvalidOption: no tested reader of the format has a name.
    """
    known = tested_readers(table_format)
    if not names or ALL in names:
        return known
    families = {reader.name: reader.name.partition("-")[0] for reader in known}
    for name in names:
        if name not in families and name not in families.values():
            expected = f"Must be one of: {', '.join(families)}."
            raise InvalidOption(option="--readers", value=name, expected=expected)
    return tuple(reader for reader in known if {reader.name, families[reader.name]} & set(names))


def predict(traits: Iterable[Trait], readers: Iterable[Reader]) -> list[Prediction]:
    """Return what readers do with a table that has some traits."""
    found = tuple(traits)
    return [_predict(found, reader) for reader in readers]


def _predict(traits: Collection[Trait], reader: Reader) -> Prediction:
    answers = dict.fromkeys(QUESTIONS, Outcome.READS)
    table = _data()["answers"][reader.format]
    reasons = [trait for trait in traits if table.get(trait.name, {}).get(reader.name)]
    known = [{question: Outcome(text) for question, text in table[each.name][reader.name].items()} for each in reasons]
    for found in known:
        for question, outcome in found.items():
            answers[question] = max(answers[question], outcome, key=_ORDER.index)
    for found in known:  # a reader that refuses the table returns nothing wrong
        if found.get("scan") is Outcome.REFUSES:
            answers |= {question: outcome for question, outcome in found.items() if outcome is Outcome.REFUSES}
    return Prediction(reader, answers, tuple(reasons))
