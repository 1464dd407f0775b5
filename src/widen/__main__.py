"""Run the command line with ``python -m widen``."""

from __future__ import annotations

from widen.cli import main

if __name__ == "__main__":
    main()
