"""Ingestion against Spark alone and against dlt: the same bytes, cases in turn, medians.

    python bench/ingest.py [--runs 3] [--records 600000] [--cases infer,known,first,quiet,dlt-duckdb,dlt-parquet]

Cold: a process for each run, warmed by 2,000 lines. Warm: one session, from the second turn on, with 20 % and with 1 %
of the records drifting; ratios in seconds and in processor seconds of all processes. dlt runs once, for it takes
minutes. JVM is Spark's driver with its executors, workers are the Python processes of the executors, all together.
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
from typing import Any

import dataset

HERE = Path(__file__).resolve().parent
DATA = HERE.parent / ".work" / "data" / "bench"
SPARK_CASES = ["infer", "known", "first", "quiet"]
DLT_CASES = ["dlt-duckdb", "dlt-parquet"]
KEYS = ("seconds", "cpu_seconds", "python_mb", "jvm_mb", "workers_mb")
LATER = ["known", "quiet"]
ENVIRONMENT = {**os.environ, "PYSPARK_PYTHON": sys.executable}
Measured = dict[str, dict[str, float]]
WARM_DRIFTS = [dataset.DRIFTING, 0.01]

# What is divided by what, and the most it may be.
# The proof takes at most twice the interval, so both together at most three times.
WARM_TARGETS = {
    0.2: [("quiet", "known", 0.8), ("first", "infer", 0.6), ("verified", "quiet", 3.0)],
    0.01: [("quiet", "known", 0.5), ("verified", "quiet", 3.0)],
}
TARGETS = [("first", "infer", 1.0), ("quiet", "known", 1.25), *(("first", each, 0.05) for each in DLT_CASES)]


def main(arguments: list[str]) -> int:
    """Measure, print the table, and return 1 if a target is missed."""
    options = _options(arguments)
    measured = measure(options.cases.split(","), options.runs, options.records)
    print("\n".join(lines(measured, options.records)))
    missed = any(ratio > most for _, ratio, most in ratios(measured))
    for drifting in WARM_DRIFTS if options.turns > 1 else []:
        warm = measure_warm(options.turns, options.records, drifting)
        print("\n".join(warm_lines(warm, drifting)))
        missed |= any(ratio > most for _, ratio, most in warm_ratios(warm, drifting))
    return int(missed)


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
    rows += [
        f"  {what:<24}{ratio:>6.3f}  (at most {most}){'' if ratio <= most else '  MISSED'}"
        for what, ratio, most in ratios(measured)
    ]
    return [head, *rows]


def measure_warm(turns: int, records: int, drifting: float) -> Measured:
    """Run the cases in turn in one session, and return the medians of all turns but the first."""
    first = dataset.write(DATA / _name("first", records, drifting), seed=1, records=records, drifting=drifting)
    later = dataset.write(DATA / _name("quiet", records, drifting), seed=2, records=records, drifting=drifting)
    seen = DATA / _name("table", records, drifting)
    _prepare(["known", "quiet"], first, later, seen)
    found = _lines_of("warm_case.py", str(first), str(later), str(seen), str(DATA / "target"), str(turns))
    warm = [line for line in found if line["turn"]]
    cases = list(dict.fromkeys(line["case"] for line in warm))
    keys = ("seconds", "cpu_seconds")
    return {case: {key: median(line[key] for line in warm if line["case"] == case) for key in keys} for case in cases}


def _name(kind: str, records: int, drifting: float) -> str:
    return f"{kind}-{records}" if drifting == dataset.DRIFTING else f"{kind}-{records}-{drifting}"


def warm_ratios(warm: Measured, drifting: float) -> list[tuple[str, float, float]]:
    """Return (what against what, ratio, the most it may be) in seconds and in processor seconds."""
    return [
        (f"warm, {drifting:.0%} drift: {mine} / {theirs}, {unit}", warm[mine][key] / warm[theirs][key], most)
        for mine, theirs, most in WARM_TARGETS[drifting]
        for key, unit in (("seconds", "s"), ("cpu_seconds", "CPU s"))
    ]


def warm_lines(warm: Measured, drifting: float) -> list[str]:
    """Return the printed table of the warm turns, line by line."""
    load = os.getloadavg()[0]
    head = f"Warm: one session, the same records, {drifting:.0%} drifting, local[2]; load of the machine {load:.1f}"
    rows = [f"  {case:<12}{it['seconds']:>10.2f}{it['cpu_seconds']:>10.2f}" for case, it in warm.items()]
    rows += [
        f"  {what:<48}{ratio:>6.3f}  (at most {most}){'' if ratio <= most else '  MISSED'}"
        for what, ratio, most in warm_ratios(warm, drifting)
    ]
    return [head, f"  {'case':<12}{'seconds':>10}{'CPU s':>10}", *rows]


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


def _lines_of(script: str, *arguments: str) -> list[dict[str, Any]]:
    """Run a script and return its lines as JSON."""
    command = [sys.executable, str(HERE / script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
    if done.returncode:
        sys.exit(f"{script} {arguments[0]} failed:\n{done.stderr[-4000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def _run(case: str, source: Path, target: Path) -> dict[str, float]:
    script = "dlt_case.py" if case in DLT_CASES else "case.py"
    found: dict[str, float] = _lines_of(script, case, str(source), str(target))[-1]
    print(f"  {case}: {found['seconds']:.2f} s", file=sys.stderr)
    return found


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {key: median(each[key] for each in found) for key in KEYS}


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--records", type=int, default=dataset.RECORDS)
    parser.add_argument("--turns", type=int, default=4, help="turns of the warm part; 0 leaves it out")
    parser.add_argument("--cases", default=",".join(SPARK_CASES + DLT_CASES))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
