"""Widen a column of the demo's table by hand, and show that only the log has grown."""

from __future__ import annotations

import sys

import widen


def main(location: str) -> None:
    """Widen the customers' ids, for the numbers that will come."""
    table = widen.Table(location)
    files = table.files().num_rows
    table.alter_column("customer.id", type="bigint")
    print(
        f"customer.id is a bigint from version {table.version} on; files before {files}, after {table.files().num_rows}"
    )


if __name__ == "__main__":
    main(sys.argv[1])
