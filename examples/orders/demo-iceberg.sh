#!/bin/sh
# The three days of `make demo` into an Iceberg table with an embedded catalog. Run it with `make demo-iceberg`.
set -eu
here=$(dirname "$0")
place=$(mktemp -d)
catalog=$place/catalog.db
trap 'rm -rf "$place"' EXIT

say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
run() { printf '\033[2m$ widen %s\033[0m\n' "$*"; widen "$@"; }

say "Monday: the first interval creates the catalog, the namespace and the table."
run ingest "$here/day1" --into shop.orders --to iceberg --catalog "$catalog" --verify

say "Tuesday's file is a JSON array, with fractions, lists and a coupon. What would it change?"
run plan "$here/day2" --into shop.orders --catalog "$catalog" || [ $? -eq 2 ]

say "Take it in: int becomes long in place; an int that meets fractions gets a double beside it."
run ingest "$here/day2" --into shop.orders --catalog "$catalog" --verify

say "Wednesday: ids past 2^53 from a market place, loose beans by weight, and one line that is no JSON."
run ingest "$here/day3" --into shop.orders --catalog "$catalog" --verify

say "The table as PyIceberg sees it."
pyiceberg --uri "sqlite:///$catalog" schema shop.orders
