"""The keyword arguments of flows, each declared once; see `widen.ingestion.ingest_options`, too."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from widen.ingestion.ingest_options import EventOptions, GrowthOptions, PartitionOptions, QuarantineOptions
from widen.model.keyword_options import Option

if TYPE_CHECKING:
    from widen.flows.flow_step import OnBatch
    from widen.iceberg.catalog import CatalogSource
    from widen.spark.spark_types import DataFrame

# A declaration is one paragraph.
# fmt: off


class StepOptions(PartitionOptions, GrowthOptions, QuarantineOptions, total=False):
    """What a file can say about a flow."""

    sql: Annotated[str | None, Option(
        "A query over the table ``source``, instead of ``transform``. With neither, the rows are copied unchanged.",
        metavar="QUERY",
        help="A query over the table `source`.")]
    keys: Annotated[Sequence[str] | Mapping[str, str] | None, Option(
        "The columns that identify rows to replace, or expressions over the source by the column names, e.g. "
        '``{"day": "to_date(placed_at)"}``. The query then sees all rows of the source whose keys occur in a row '
        "that was added, updated or removed, and its result replaces the rows of the target with these keys. "
        "Without keys the query sees the added rows, and its result is appended.",
        metavar="COLUMN[=SQL]",
        help="A column by which rows are replaced, or an expression over the source; can be repeated.")]
    max_bytes: Annotated[int | None, Option(
        "A batch is full once the added files have this size; it has at least one version, or for the first "
        "version of a flow without keys, at least one file.",
        minimum=1,
        help="Close a batch at this size, in bytes.")]
    removed: Annotated[str, Option(
        "What a flow without keys does with a version that updates or removes rows: ``fail``, or ``skip`` to leave "
        "out the whole version.",
        default="fail", choices=("fail", "skip"),
        help="Without keys: fail on updates and deletions, or skip their versions.")]
    verify: Annotated[bool | float, Option(
        "Whether to compare the rows of each batch with the table after the commit; or the share of the rows.",
        default=False,
        help="Compare the rows of each batch with the table.")]
    source_catalog: Annotated["CatalogSource | None", Option(
        "The catalog of an Iceberg table to read; as ``catalog``.",
        metavar="NAME|FILE.db",
        help="The catalog of an Iceberg table to read.")]


class ChainOptions(EventOptions, total=False):
    """The arguments of `flow_chain`."""

    once: Annotated[bool, Option(
        "Whether to return when the target has what the source has now; otherwise the flow runs in its own thread "
        "until it is stopped.",
        default=False,
        help="Stop when the target has what the source has now.")]
    every_seconds: Annotated[float, Option(
        "The time to wait before the source is looked at again.",
        default=5, flag="--every", minimum=0,
        help="How often to poll the source, in seconds.")]
    rebuild: Annotated[bool, Option(
        "Whether to begin with a batch that replaces all rows of the target, computed from the newest version of "
        "the source: after a change of the query, or if the source has lost its history.",
        default=False,
        help="Recompute the target: the first batch replaces all of its rows.")]
    on_batch: Annotated["OnBatch | None", Option(
        "Called with the `FlowBatch` of each batch after its commit.")]


class FlowOptions(ChainOptions, StepOptions, total=False):
    """The arguments of `flow`."""

    transform: Annotated[Callable[["DataFrame"], "DataFrame"] | None, Option(
        "Computes the rows of the target from rows of the source.")]
