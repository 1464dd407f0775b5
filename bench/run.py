"""Every benchmark, one after the other, and one table at the end; exit code 1 if a goal is missed.

    python bench/run.py [--small] [ingest] [warm] [shapes] [small] [snapshot] [alter] [read] [dml] [keys] [sink] [drop]
                        [memory] [twelve] [upkeep] [iceberg] [large]

Without names all but the last, which writes 10 GB. ``--small`` runs each at a size that takes a minute or two: it shows
that the scripts work, not how fast Widen is.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from threading import Event, Thread

import psutil

HERE = Path(__file__).resolve().parent
SCRIPTS: dict[str, list[str]] = {
    "ingest": ["--records", "4000", "--runs", "1", "--turns", "2", "--cases", "infer,known,first,quiet"],
    "warm": ["--small", "--turns", "2"],
    "shapes": ["--small", "--turns", "2", "--only", "nested events,CSV"],
    "small": ["--columns", "20", "--files", "100", "--runs", "3"],
    "snapshot": ["10000"],
    "alter": ["--files", "100,10000", "--runs", "1"],
    "read": ["--rows", "10000", "--files", "50", "--runs", "1"],
    "dml": ["--rows", "10000", "--runs", "1"],
    "keys": ["--rows", "10000", "--runs", "1"],
    "sink": ["--batches", "2", "--megabytes", "0.2", "--rows", "10000", "--runs", "1"],
    "drop": ["--rows", "1000", "--runs", "1"],
    "memory": ["--rows", "20000", "--dicts", "1000", "--runs", "1"],
    "twelve": ["--days", "2"],
    "upkeep": ["--files", "40", "--rows", "100", "--runs", "1"],
    "iceberg": ["--records", "2000", "--turns", "1"],
    "large": ["--gigabytes", "0.1", "--heap", "1g"],
}
"""The arguments of each script at its small size."""

# What every script prints for a goal: "first / infer   1.2  1.3  -  0.93  (at most 1.0)", the costs being optional.
ROW = re.compile(
    r"^\s*(?P<work>\S.*?)\s{2,}(?:(?P<ours>[\d.]+)\s+(?P<peer>[\d.]+|-)\s+(?P<limit>[\d.]+|-)\s+)?"
    r"(?P<ratio>[\d.]+)\s+\(at most (?P<goal>[\d.]+)\)(?:\s+MISSED)?\s*$"
)
SAMPLE_SECONDS = 0.5


def main(arguments: list[str]) -> int:
    """Run the scripts, let their lines through, and repeat the rows together."""
    names = [name for name in arguments if name != "--small"] or [name for name in SCRIPTS if name != "large"]
    found: list[tuple[str, str]] = []
    failed = 0
    for name in names:
        lines, code = _run(HERE / f"{name}.py", SCRIPTS[name] if "--small" in arguments else [])
        failed = failed or code
        found += [(name, line) for line in lines]
    print(f"\n{'work':<68}{'ours':>10}{'peer':>10}{'limit':>10}{'ratio':>8}{'goal':>7}")
    for name, line in found:
        row = ROW.match(line)
        if row is not None:
            print(_line(name, row))
        elif line.startswith("peak of memory"):
            print(f"{name}: {line.rstrip()}")
    print(f"load of the machine: {', '.join(f'{load:.1f}' for load in os.getloadavg())}")
    return failed


def _line(name: str, row: re.Match[str]) -> str:
    costs = "".join(f"{row[key] or '-':>10}" for key in ("ours", "peer", "limit"))
    missed = "" if float(row["ratio"]) <= float(row["goal"]) else "  MISSED"
    return f"{name + ': ' + row['work']:<68}{costs}{float(row['ratio']):>8.3f}{row['goal']:>7}{missed}"


def _run(script: Path, arguments: list[str]) -> tuple[list[str], int]:
    """Run one script; its lines, which are also printed as they come, and its exit code: 1 if it missed a goal."""
    lines: list[str] = []
    peaks: Counter[str] = Counter()
    ended = Event()
    with subprocess.Popen([sys.executable, str(script), *arguments], stdout=subprocess.PIPE, text=True) as process:
        sampler = Thread(target=_sample_memory, args=(process.pid, peaks, ended), daemon=True)
        sampler.start()
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
        ended.set()
        sampler.join()
    if process.returncode not in (0, 1) or not lines:
        sys.exit(f"{script.name} failed with exit code {process.returncode}")
    peak = ", ".join(f"{kind} {megabytes:,} MB" for kind, megabytes in peaks.items())
    lines.append(f"peak of memory: {peak}\n")
    print(lines[-1], end="", flush=True)
    return lines, process.returncode


def _sample_memory(pid: int, peaks: Counter[str], ended: Event) -> None:
    """Keep the largest memory of the script, of its JVMs, and of all other processes below it, together."""
    while not ended.wait(SAMPLE_SECONDS):
        held: Counter[str] = Counter()
        try:
            script = psutil.Process(pid)
            for process in (script, *script.children(recursive=True)):
                kind = "driver" if process.pid == pid else "JVM" if process.name() == "java" else "workers"
                held[kind] += process.memory_info().rss >> 20
        except psutil.Error:  # one of them has ended
            continue
        peaks |= held


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
