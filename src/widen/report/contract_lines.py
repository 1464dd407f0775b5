"""Where a batch breaks a contract, for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.text import Text

from widen.report.text_format import count_noun, count_text, printable
from widen.report.widgets import heading_part, table_of

if TYPE_CHECKING:
    from widen.spark.text.contract_check import ContractReport

MAX_LISTED = 20


def contract_parts(report: ContractReport) -> Iterator[RenderableType]:
    """Yield each kind of breach with its number, then the first breaches with their places."""
    records = count_noun(report.records, "record")
    if not report.breaches:
        yield Text(f"The contract holds for {records}.")
        return
    yield heading_part(f"The contract is broken {count_noun(report.breaches, 'time')} in {records}")
    counts = table_of("field", "reason", "times")
    for path, reason, count in sorted(report.counts, key=lambda each: -each[2])[:MAX_LISTED]:
        counts.add_row(Text(printable(path or "other fields")), Text(printable(reason)), Text(count_text(count)))
    yield counts
    for file, number, path, reason in report.listed[:MAX_LISTED]:
        yield Text(f"  {printable(file)}:{number}: {printable(path)} {printable(reason)}")
    if report.breaches > MAX_LISTED:
        yield Text(f"  … and {count_text(report.breaches - MAX_LISTED)} more; --json lists the first 100", "dim")
