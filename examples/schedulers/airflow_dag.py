"""Load every hour with Apache Airflow, and retry only what time may repair.

The exit code of `widen` says how a run ended: 0, everything is loaded; 1, an error that may pass, such as a store that
does not answer; 3, a batch is over one of its limits, which a retry cannot change. So the last one fails at once, and
a person is called.

Copy this file to the folder of the DAGs. The workers need `widen[spark]` and Java.
"""

from __future__ import annotations

import subprocess
from datetime import datetime, timedelta

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowException, AirflowFailException

PIPELINES = "/etc/widen/pipelines.toml"
OVER_LIMIT = 3


@task(retries=3, retry_delay=timedelta(minutes=5))
def run_widen(*words: str) -> None:
    """Run a command of Widen; its output is in the log of the task."""
    done = subprocess.run(["widen", *words], check=False)
    if done.returncode == OVER_LIMIT:
        raise AirflowFailException("A batch is over a limit; see the log. Nothing of it was written.")
    if done.returncode:
        raise AirflowException(f"widen {' '.join(words)} ended with exit code {done.returncode}; see the log.")


@dag(schedule="@hourly", start_date=datetime(2024, 1, 1), catchup=False, max_active_runs=1)
def widen_loads() -> None:
    """Load what has arrived, then look after the tables."""
    run_widen("run", PIPELINES) >> run_widen.override(task_id="optimize", retries=0)("optimize", "lake/orders")


widen_loads()
