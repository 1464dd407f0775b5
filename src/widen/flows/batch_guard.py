"""What a batch of a flow requires of the version of the target that it is committed to.

Source: docs/guide/flow.md#exactly-once
"""

from __future__ import annotations

from dataclasses import dataclass

from widen.errors import FlowKeyRefused, FlowTaken
from widen.formats.table_format import IngestTarget, ReplacedRows, RowReplacingDraft, StreamInterval, TableDraft
from widen.ingestion.commit_batch import CommitGuard
from widen.model.types import is_same_name
from widen.planning.evolution.plan import Plan
from widen.planning.evolution.source_metadata import source_key


@dataclass(frozen=True, slots=True)
class FlowGuard(CommitGuard):
    """Lets a batch be committed if the target is as the batch expects it.

    Args:
        previous: The last batch of the flow that the target has; None before the first.
    """

    into: str = ""
    previous: StreamInterval | None = None
    replaced: ReplacedRows | None = None

    def is_repeated(self, target: IngestTarget) -> bool:
        """Tell whether the target has the batch already.

        Raises:
            FlowTaken: it has another batch of the flow, of which this one does not know.
        """
        assert self.interval is not None
        if self.replaced is not None and self.replaced.keys is None:
            return False  # all rows are replaced, so that it may be done again
        if target.has_interval(self.interval):
            return True
        last = target.last_interval(self.interval.app_id)
        if last is not None and last != self.previous:
            raise FlowTaken(location=target.location, version=last.number)
        return False

    def prepare_draft(self, draft: TableDraft, plan: Plan) -> TableDraft:
        """Return the draft, with the rows that its commit removes.

        Raises:
            FlowKeyRefused: a key would go to a column with another name.
        """
        if self.replaced is None:
            return draft
        for key in self.replaced.columns:
            sources = {field.name: source_key(field) for field in plan.schema}
            exact = [name for name, source in sources.items() if source == key]
            columns = exact or [name for name, source in sources.items() if is_same_name(source, key)]
            is_kept_as_text = any(each.source == (key,) for each in plan.rescued)
            if len(columns) != 1 or is_kept_as_text:
                reason = "its values have a type that its column cannot hold"
                raise FlowKeyRefused(key=key, into=self.into, reason=reason, fix=_FIX)
        assert isinstance(draft, RowReplacingDraft)
        return draft.with_replaced_rows(self.replaced)


_FIX = "Cast the key in the query and in keys, and use rebuild=True (--rebuild); or widen the column of the target."
