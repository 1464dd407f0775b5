"""Several measured cases in turn, in one session; prints one JSON line for each turn of each case.

    python bench/warm_case.py FIRST LATER SEEN TARGET TURNS

In the first turn Spark compiles and starts its workers, so that only the turns after it are warm.
"""

from __future__ import annotations

import json
import shutil
import sys
import time

from case import CASES, session
from processor_time import processor_time

ORDER = ["known", "quiet", "verified", "infer", "first"]


def main(first: str, later: str, seen: str, target: str, turns: str) -> None:
    """Run every case in every turn and print what each took."""
    spark = session()
    for turn in range(int(turns)):
        for case in ORDER:
            shutil.rmtree(target, ignore_errors=True)
            if case in ("quiet", "verified"):
                shutil.copytree(seen, target)
            with processor_time() as used:
                started = time.perf_counter()
                CASES[case](spark, first if case in ("infer", "first") else later, target)
                seconds = time.perf_counter() - started
            print(json.dumps({"case": case, "turn": turn, "seconds": seconds, "cpu_seconds": sum(used.values())}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
