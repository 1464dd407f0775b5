"""Run flows until they have everything, or until they are stopped."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import TypeAlias

from widen.flows.flow_result import FlowBatch
from widen.flows.flow_step import FlowStep
from widen.formats.table_format import after_commit

OnBatch: TypeAlias = Callable[[FlowBatch], object]
"""Called with the result of each batch after its commit."""

KEPT_BATCHES = 1000


class Flow:
    """One flow, or a chain of flows that run one after another, again and again.

    Args:
        steps: The flows, in the order of the chain.
        on_batch: Called with the result of each batch.
    """

    def __init__(self, steps: Sequence[FlowStep], on_batch: OnBatch | None) -> None:
        self._steps, self._on_batch = steps, on_batch
        self._batches: deque[FlowBatch] = deque(maxlen=KEPT_BATCHES)
        self._stop, self._thread, self._failure = threading.Event(), threading.Thread(), _Failure()

    @property
    def batches(self) -> list[FlowBatch]:
        """The results of the last batches, at most 1000, oldest first."""
        return list(self._batches)

    @property
    def is_active(self) -> bool:
        """Whether the flow is still running."""
        return self._thread.is_alive()

    def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the flow has ended, and return whether it has.

        Args:
            timeout_seconds: The longest time to wait; by default unlimited.

        Raises:
            WidenError: a batch has failed. Earlier batches stay committed; a flow that is started again repeats it.
        """
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)
        if self._failure.error is not None:
            raise self._failure.error
        return not self._thread.is_alive()

    def stop(self, timeout_seconds: float = 60) -> None:
        """Stop the flow after the batch that is being written.

        Args:
            timeout_seconds: How long to wait for that batch.
        """
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(timeout_seconds)

    def run_once(self) -> None:
        """Run every step until its target has what its source has now.

        Raises:
            WidenError: a batch has failed.
        """
        for step in self._steps:
            for batch in step.run():
                self._batches.append(batch)
                if self._on_batch is not None:
                    version = None if batch.result is None else batch.result.version
                    with nullcontext() if version is None else after_commit(batch.into, version):
                        self._on_batch(batch)
                if self._stop.is_set():
                    return

    def start(self, every_seconds: float) -> None:
        """Run in its own thread until the flow is stopped.

        Args:
            every_seconds: The time to wait before the sources are looked at again.
        """
        self._thread = threading.Thread(target=self._loop, args=(every_seconds,), name="widen-flow", daemon=True)
        self._thread.start()

    def _loop(self, every_seconds: float) -> None:
        with self._failure:
            while not self._stop.is_set():
                self.run_once()
                self._stop.wait(every_seconds)


class _Failure:
    """Keeps the error of a thread, of any kind, for the caller who waits for it."""

    error: BaseException | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error
        return True
