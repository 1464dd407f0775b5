"""Examples in the help of each command; a test parses every one of them."""

from __future__ import annotations

from collections.abc import Mapping

EXAMPLES: Mapping[str, tuple[str, ...]] = {
    "ingest": (
        "widen ingest orders/monday/ --into shop/orders --verify",
        "widen ingest landing/ --into shop/orders --new",
        "widen ingest landing/ --into shop/orders --follow --checkpoint cp",
        "widen ingest orders/monday/ --into shop.orders --catalog shop/catalog.db",
    ),
    "plan": (
        "widen plan orders/tuesday/ --into shop/orders",
        "widen plan orders/tuesday/ --into shop/orders --pin total=text --json",
        "widen plan orders/tuesday/ --contract orders.json",
    ),
    "flow": ("widen flow shop/orders --into shop/days --keys day --checkpoint cp --once", "widen flow chain.toml"),
    "show": ("widen show shop/orders", "widen show shop/orders --version 3 --json"),
    "history": ("widen history shop/orders --limit 10",),
    "contract": ("widen contract shop/orders",),
    "diff": ("widen diff shop/orders --from 3 --to 9",),
    "loads": ("widen loads shop/orders",),
    "report": (
        "widen report shop/orders",
        "widen report shop/orders --html report.html",
        "widen report shop/orders --scan --samples raw --json",
    ),
    "read": (
        "widen read shop/orders --where 'total > 100' --select id --select total",
        "widen read shop/orders --unified --limit 5 --json",
    ),
    "explain": ("widen explain U8", "widen explain"),
    "alter": (
        "widen alter shop/orders customer.id --type bigint",
        "widen alter shop/orders total --comment 'in euro' --first --dry-run",
    ),
    "properties": ("widen properties shop/orders", "widen properties shop/orders --set delta.appendOnly=true"),
    "rewrite": ("widen rewrite shop/orders",),
    "optimize": ("widen optimize shop/orders --dry-run",),
    "vacuum": ("widen vacuum shop/orders --dry-run",),
    "restore": (
        "widen restore shop/orders --version 3",
        "widen restore shop/orders --timestamp '2024-01-31 12:00:00Z'",
    ),
    "drop-feature": ("widen drop-feature shop/orders typeWidening",),
    "handover": ("widen handover shop/orders --to deltalake --dry-run", "widen handover shop/orders --to polars"),
    "mirror": ("widen mirror shop/orders --catalog lake.db --identifier shop.orders",),
    "sql": ("widen sql 'DESCRIBE DETAIL delta.`shop/orders`'",),
    "view": ("widen view shop/orders --name orders_by_field", "widen view shop/orders --data-source"),
    "fold": ("widen fold shop/orders total_string --dry-run",),
    "replay": ("widen replay shop/orders_quarantine --into shop/orders",),
}
"""The examples by command."""

_KEEP_LINES = "\b\n"
"""The mark before a paragraph whose lines click must not join."""


def examples_text(command: str) -> str | None:
    """Return the examples of a command for the end of its help; None if it has none."""
    lines = EXAMPLES.get(command)
    return None if lines is None else _KEEP_LINES + "\n".join(("Examples:", *(f"  {line}" for line in lines)))
