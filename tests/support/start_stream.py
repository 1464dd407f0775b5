"""Streams whose source is a Python data source, on a machine that has much else to do."""

from __future__ import annotations

import time
from collections.abc import Callable

from pyspark.sql.streaming.query import StreamingQuery

_TOO_SLOW = "Python worker failed to connect back"
_IN_BETWEEN = ("Initializing", "Terminated")
"""How the states begin that a stream leaves by itself: an active one may already have failed."""

_ATTEMPTS = 20


def start_stream(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """Start a stream, and return it when its source is there, or when the stream has failed.

    Spark starts a Python process for the source, and ends the stream before it reads anything if that takes longer than
    ten seconds, which no setting changes (4.0 to 4.3). Here it is started again.
    """
    for _ in range(_ATTEMPTS):
        query = start()
        while query.isActive and query.status["message"].startswith(_IN_BETWEEN):
            time.sleep(0.1)
        error = query.exception()
        if error is None or _TOO_SLOW not in str(error):
            break
    return query
