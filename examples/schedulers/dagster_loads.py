"""Load tables as Dagster assets, and retry only what time may repair.

The exit code of `widen` says how a run ended: 0, everything is loaded; 1, an error that may pass, such as a store that
does not answer; 3, a batch is over one of its limits, which a retry cannot change. What a load has done is in the JSON
on its standard output, and becomes the metadata of the asset.

    dagster dev -f dagster_loads.py
"""

from __future__ import annotations

import json
import subprocess

from dagster import Definitions, Failure, MaterializeResult, RetryPolicy, asset

OVER_LIMIT = 3


def run_widen(*words: str) -> dict[str, object]:
    """Run a command of Widen and return its JSON."""
    done = subprocess.run(["widen", *words, "--json"], check=False, capture_output=True, text=True)
    if done.returncode:
        raise Failure(done.stderr.strip(), allow_retries=done.returncode != OVER_LIMIT)
    value: dict[str, object] = json.loads(done.stdout)
    return value


@asset(retry_policy=RetryPolicy(max_retries=3, delay=300))
def orders() -> MaterializeResult:
    """The orders of the shop, as they arrive in `landing/orders/`."""
    loaded = run_widen("ingest", "landing/orders/", "--into", "lake/orders", "--new", "--max-corrupt", "1%")
    return MaterializeResult(metadata={name: loaded[name] for name in ("version", "records", "corrupt", "quarantined")})


definitions = Definitions(assets=[orders])
