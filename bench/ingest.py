"""Ingestion against Spark alone and against dlt: the same bytes, one process per run, cases in turn, medians.

    python bench/ingest.py [--runs 3] [--records 600000] [--cases infer,known,first,quiet,dlt-duckdb,dlt-parquet]

dlt runs once, for it takes minutes. JVM is Spark's driver with its executors, workers are the Python processes of the
executors, all together.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median

import dataset

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / ".work" / "data" / "bench"
SPARK_CASES = ["infer", "known", "first", "quiet"]
DLT_CASES = ["dlt-duckdb", "dlt-parquet"]
KEYS = ("seconds", "cpu_seconds", "python_mb", "jvm_mb", "workers_mb")
LATER = ["known", "quiet"]
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable}
Measured = dict[str, dict[str, float]]

# What is divided by what, and the most it may be.
TARGETS = [("first", "infer", 1.0), ("quiet", "known", 1.25), *(("first", each, 0.05) for each in DLT_CASES)]


def main(arguments: list[str]) -> int:
    """Measure, print the table, and return 1 if a target is missed."""
    options = _options(arguments)
    measured = measure(options.cases.split(","), options.runs, options.records)
    print("\n".join(lines(measured, options.records)))
    return int(any(ratio > most for _, ratio, most in ratios(measured)))


def measure(cases: list[str], runs: int, records: int) -> Measured:
    """Run every case ``runs`` times, in turn, and return the medians."""
    first = dataset.write(DATA / f"first-{records}", seed=1, records=records)
    later = dataset.write(DATA / f"quiet-{records}", seed=2, records=records)
    seen = DATA / f"table-{records}"
    _prepare(cases, first, later, seen)
    results: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
    for run in range(runs):
        for case in cases if run == 0 else [case for case in cases if case not in DLT_CASES]:
            results[case].append(_once(case, later if case in LATER else first, seen))
    return {case: _medians(found) for case, found in results.items()}


def ratios(measured: Measured) -> list[tuple[str, float, float]]:
    """Return (what against what, ratio of the seconds, the most it may be) for the cases that ran."""
    return [
        (f"{mine} / {theirs}", measured[mine]["seconds"] / measured[theirs]["seconds"], most)
        for mine, theirs, most in TARGETS
        if mine in measured and theirs in measured
    ]


def lines(measured: Measured, records: int) -> list[str]:
    """Return the printed table, line by line."""
    size_mb = sum(file.stat().st_size for file in (DATA / f"first-{records}").glob("*.json")) / 1e6
    head = f"Ingestion: {records:,} records, {size_mb:.0f} MB of JSON, {dataset.DRIFTING:.0%} drifting, local[2]"
    rows = [f"  {'case':<12}{'seconds':>10}{'CPU s':>10}{'python MB':>12}{'JVM MB':>10}{'workers MB':>12}"]
    rows += [
        f"  {case:<12}{it['seconds']:>10.2f}{it['cpu_seconds']:>10.2f}{it['python_mb']:>12.0f}{it['jvm_mb']:>10.0f}"
        f"{it['workers_mb']:>12.0f}"
        for case, it in measured.items()
    ]
    rows += [f"  {what:<24}{ratio:>6.3f}  (at most {most})" for what, ratio, most in ratios(measured)]
    return [head, *rows]


def _prepare(cases: list[str], first: Path, later: Path, seen: Path) -> None:
    """Make what the timed runs start from: the known schema, and a table that has seen the data."""
    if "known" in cases:
        _run("schema", later, DATA / "none")
    if "quiet" in cases:
        shutil.rmtree(seen, ignore_errors=True)
        _run("first", first, seen)


def _once(case: str, source: Path, seen: Path) -> dict[str, float]:
    target = DATA / "target"
    shutil.rmtree(target, ignore_errors=True)
    if case == "quiet":
        shutil.copytree(seen, target)
    return _run(case, source, target)


def _run(case: str, source: Path, target: Path) -> dict[str, float]:
    script = HERE / ("dlt_case.py" if case in DLT_CASES else "case.py")
    command = [sys.executable, str(script), case, str(source), str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"{case} failed:\n{done.stderr[-4000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    print(f"  {case}: {found['seconds']:.2f} s", file=sys.stderr)
    return found


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: median(each[key] for each in found) for key in KEYS}


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, default=dataset.RECORDS)
    parser.add_argument("--cases", default=",".join(SPARK_CASES + DLT_CASES))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
