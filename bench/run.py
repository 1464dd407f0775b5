"""Every benchmark, one after the other, and one table of ratios at the end; exit code 1 if a target is missed.

    python bench/run.py [ingest] [warm] [small] [snapshot] [alter] [read] [dml] [drop] [large]

Without names all but the last, which writes 10 GB.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SCRIPTS = ["ingest", "warm", "small", "snapshot", "alter", "read", "dml", "drop"]

# What every script prints for a ratio that has a target: "first / infer   0.93  (at most 1.0)".
RATIO = re.compile(r"^\s*(\S.*?)\s{2,}([\d.]+)\s+\(at most ([\d.]+)\)(?:\s+MISSED)?\s*$")


def main(names: list[str]) -> int:
    """Run the scripts, let their lines through, and repeat the ratios together."""
    found: list[tuple[str, float, float]] = []
    failed = 0
    for name in names or SCRIPTS:
        lines, code = _run(HERE / f"{name}.py")
        failed = failed or code
        found += [(f"{name}: {what}", float(ratio), float(most)) for what, ratio, most in _ratios(lines)]
    print("\nRatios")
    for what, ratio, most in found:
        print(f"  {what:<60}{ratio:>7.3f}  at most {most:<5}{'' if ratio <= most else 'MISSED'}")
    return failed


def _run(script: Path) -> tuple[list[str], int]:
    """Run one script; its lines, which are also printed as they come, and its exit code: 1 if it missed a target."""
    lines = []
    with subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line)
    if process.returncode not in (0, 1) or not lines:
        sys.exit(f"{script.name} failed with exit code {process.returncode}")
    return lines, process.returncode


def _ratios(lines: list[str]) -> list[tuple[str, str, str]]:
    return [(match[1], match[2], match[3]) for line in lines if (match := RATIO.match(line))]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
